"""The schema of conversations.db: steps, backups, refusals."""

import sqlite3

import pytest

from localkv.chat import migrations as module
from localkv.chat.backups import KEPT, list_backups
from localkv.chat.migrations import MIGRATIONS, Migration
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError, NotWritable, SchemaTooNew

COLOUR = Migration("colours", ("ALTER TABLE conversations ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'",))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "conversations.db"


@pytest.fixture
def backups(tmp_path):
    return tmp_path / "backups"


@pytest.fixture
def filled(path, backups):
    """A database of today's schema with one conversation in it."""
    store = ConversationStore.open(path, backups)
    key = store.create("first", model=ModelSection(), sampling=SamplingSection()).id
    store.ask(key, None, "hello")
    store.close()
    return path


def look(file, query):
    connection = sqlite3.connect(file)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def version(file):
    return look(file, "PRAGMA user_version")[0][0]


def test_a_new_database_needs_no_backup(path, backups):
    """The first start makes the schema and nothing else."""
    ConversationStore.open(path, backups).close()
    assert version(path) == len(MIGRATIONS)
    assert not backups.exists()


def test_opening_again_changes_nothing(filled, backups):
    """An up-to-date database is neither migrated nor backed up."""
    ConversationStore.open(filled, backups).close()
    assert not backups.exists()


def test_every_migration_of_an_existing_database_is_backed_up_first(filled, backups):
    """Before each step a whole copy with the old schema lies in the backups, readable only by its owner."""
    steps = (*MIGRATIONS, COLOUR, Migration("sizes", ("ALTER TABLE conversations ADD COLUMN size TEXT",)))
    store = ConversationStore.open(filled, backups, migrations=steps)
    assert [each.name for each in store.list()] == ["first"]
    store.close()
    made = list_backups(backups, filled)
    assert [version(file) for file in made] == [len(steps) - 1, len(steps) - 2]
    assert "colour" not in str(look(made[1], "SELECT sql FROM sqlite_master"))
    assert [look(file, "SELECT text FROM messages") for file in made] == [[("hello",)]] * 2
    assert [file.stat().st_mode & 0o777 for file in made] == [0o600] * 2
    assert [look(file, "PRAGMA journal_mode") for file in made] == [[("delete",)]] * 2, "can be read from a read-only medium"
    assert sorted(backups.iterdir()) == sorted(made), "no temporary files, no -wal beside a backup"
    assert version(filled) == len(steps)


def test_a_backup_has_what_only_the_log_holds(filled, backups):
    """Commits that are not in the main file yet, because another process has it open, are in the backup as well."""
    other = ConversationStore.open(filled, backups)
    other.ask(other.by_name("first").id, None, "in the log")
    ConversationStore.open(filled, backups, migrations=(*MIGRATIONS, COLOUR)).close()
    other.close()
    assert ("in the log",) in look(list_backups(backups, filled)[0], "SELECT text FROM messages")


def test_only_the_newest_backups_stay(filled, backups):
    """Years of updates don't fill the disk; copies cut by a crash go, and other files are not touched."""
    backups.mkdir()
    (backups / "notes.txt").write_text("mine")
    (backups / "conversations-20190101T000000.000000Z-schema1.db.part").write_bytes(b"cut by a crash")
    for n in range(KEPT + 3):
        old = backups / f"conversations-202001{n + 1:02}T000000.000000Z-schema1.db"
        old.write_bytes(b"old")
    ConversationStore.open(filled, backups, migrations=(*MIGRATIONS, COLOUR)).close()
    kept = list_backups(backups, filled)
    assert len(kept) == KEPT
    assert version(kept[0]) == len(MIGRATIONS)
    assert kept[-1].name.startswith("conversations-20200105")
    assert sorted(backups.iterdir()) == sorted([*kept, backups / "notes.txt"])


def test_a_backup_of_a_wrong_clock_is_not_pruned_at_once(filled, backups):
    """With the clock set back the new backup is the newest all the same, and stays."""
    backups.mkdir()
    for n in range(KEPT):
        (backups / f"conversations-2999010{n + 1}T000000.000000Z-schema1.db").write_bytes(b"future")
    ConversationStore.open(filled, backups, migrations=(*MIGRATIONS, COLOUR)).close()
    kept = list_backups(backups, filled)
    assert len(kept) == KEPT
    assert version(kept[0]) == len(MIGRATIONS)


def test_a_failed_migration_leaves_no_trace(filled, backups):
    """A step and its version are one transaction: half a migration can't exist, and the text is all there."""
    broken = Migration("broken", (*COLOUR.statements, "INSERT INTO no_such_table VALUES (1)"))
    with pytest.raises(ConversationError, match="no_such_table"):
        ConversationStore.open(filled, backups, migrations=(*MIGRATIONS, broken))
    assert version(filled) == len(MIGRATIONS)
    assert "colour" not in str(look(filled, "SELECT sql FROM sqlite_master"))
    assert len(list_backups(backups, filled)) == 1
    store = ConversationStore.open(filled, backups)
    assert [each.text for each in store.path(store.by_name("first").id)] == ["hello"]
    store.close()


def test_a_migration_that_breaks_references_is_undone(filled, backups):
    """Foreign keys are off while tables are rebuilt, so they are checked before the commit."""
    orphaning = Migration("orphaning", ("DELETE FROM conversations",))
    with pytest.raises(ConversationError, match="would break"):
        ConversationStore.open(filled, backups, migrations=(*MIGRATIONS, orphaning))
    assert look(filled, "SELECT name FROM conversations") == [("first",)]


def test_no_backup_no_migration(filled, backups):
    """If the copy can't be made, the database stays as it was and the sentence says so."""
    backups.write_text("a file where the folder should be")
    with pytest.raises(NotWritable, match="backed up"):
        ConversationStore.open(filled, backups, migrations=(*MIGRATIONS, COLOUR))
    assert version(filled) == len(MIGRATIONS)


def test_a_copy_that_is_not_whole_stops_the_migration(filled, backups, monkeypatch):
    """The backup is verified, not hoped for."""
    real = sqlite3.connect

    class Torn(sqlite3.Connection):
        def backup(self, target, **_):
            target.execute("CREATE TABLE half (a)")

    monkeypatch.setattr(module.sqlite3, "connect", lambda *a, **k: real(*a, factory=Torn, **k))
    with pytest.raises(NotWritable, match="not whole"):
        ConversationStore.open(filled, backups, migrations=(*MIGRATIONS, COLOUR))
    monkeypatch.undo()
    assert version(filled) == len(MIGRATIONS)
    assert not list(backups.iterdir())


def test_a_newer_schema_is_refused_before_anything_is_written(filled, backups):
    """An older localkv never touches a newer one's database."""
    newer = (*MIGRATIONS, COLOUR)
    ConversationStore.open(filled, backups, migrations=newer).close()
    look(filled, "PRAGMA journal_mode = DELETE")
    before = filled.read_bytes()
    with pytest.raises(SchemaTooNew, match=rf"schema {len(newer)}; this one knows {len(MIGRATIONS)}"):
        ConversationStore.open(filled, backups)
    assert filled.read_bytes() == before


def test_a_database_of_another_program_is_refused(path, backups):
    """LOCALKV_HOME pointed at the wrong folder must not mix our tables into someone else's."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(ConversationError, match="another program"):
        ConversationStore.open(path, backups)
    assert look(path, "SELECT name FROM sqlite_master") == [("theirs",)]


@pytest.mark.slow
def test_a_long_migration_says_how_far_it_is(path, backups):
    """10,000 conversations with 100,000 messages of the schema before search: each is found after, and each 2,000 are reported."""
    titles = [migration.title for migration in MIGRATIONS]
    old = MIGRATIONS[: titles.index("words of all messages")]
    ConversationStore.open(path, backups, migrations=old).close()
    connection = sqlite3.connect(path)
    connection.executemany(
        "INSERT INTO conversations (id, name, title, model, sampling, created, updated, system)"
        " VALUES (?, ?, '', '{}', '{}', 0, 0, '')",
        ((f"c{n}", f"talk {n}") for n in range(10_000)),
    )
    connection.executemany(
        "INSERT INTO messages (id, conversation, role, state, created, text, ids) VALUES (?, ?, 'user', ?, 0, ?, x'')",
        ((f"m{n}", f"c{n // 10}", "streaming" if n == 7 else "complete", f"said {n}") for n in range(100_000)),
    )
    connection.commit()
    connection.close()
    seen = []
    store = ConversationStore.open(path, backups, progress=lambda title, done, total: seen.append((title, done, total)))
    assert seen == [("words of all messages", done, 100_000) for done in range(0, 100_000, 2000)]
    assert [hit.message for hit in store.search('"said 99999"')] == ["m99999"]
    assert [hit.message for hit in store.search('"said 0"')] == ["m0"]
    assert store.search('"said 7"') == [], "what is still being written is found when it ends"
    assert len(store.search("said", limit=200_000)) == 99_999
    assert store.recover() == 1
    assert [hit.message for hit in store.search('"said 7"')] == ["m7"]
    store.close()
