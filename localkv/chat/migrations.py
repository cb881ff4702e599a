"""The schema of conversations.db: ordered migrations, and a verified backup before each one.

Knows nothing of what the rows mean. Thread: that of the caller, who opens the store. Each migration and its number in
`PRAGMA user_version` are one transaction: after a crash a database has the old schema or the new one, whole. The backup is
taken while the write lock is held, so it is exactly the database that the migration starts from.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localkv.chat.backups import alone, back_up
from localkv.errors import ConversationError, NotWritable, SchemaTooNew


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from one schema to the next. Its place in the list is the version it leads to."""

    title: str
    statements: tuple[str, ...]
    filling: str = ""
    """Run for all messages, a range of `seq` at a time, after the statements: what takes long shows how far it is."""


Progress = Callable[[str, int, int], None]
"""Gets the title of a migration, and how many of how many messages are done."""

_RANGE = 2000
"""Messages filled between two reports: some 80 ms."""


def silent(title: str, done: int, total: int) -> None:
    """A Progress that nobody sees."""
    del title, done, total


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "conversations and the tree of their messages",
        (
            """
            CREATE TABLE conversations (
                id         TEXT PRIMARY KEY NOT NULL,
                name       TEXT NOT NULL UNIQUE,
                title      TEXT NOT NULL,
                model      TEXT NOT NULL,               -- JSON of config.ModelSection
                sampling   TEXT NOT NULL,               -- JSON of config.SamplingSection
                created    REAL NOT NULL,
                updated    REAL NOT NULL,
                leaf       TEXT,
                pinned     INTEGER NOT NULL DEFAULT 0,
                trashed    REAL,
                n_messages INTEGER NOT NULL DEFAULT 0,
                draft      TEXT NOT NULL DEFAULT '',
                system     TEXT NOT NULL,
                FOREIGN KEY (id, leaf) REFERENCES messages (conversation, id)
            )
            """,
            # seq is the order of writing: a parent has a smaller one than its children. The long columns stand last, so that
            # walking the tree does not read them. Keys name the conversation, so a parent can't be in another one.
            """
            CREATE TABLE messages (
                seq          INTEGER PRIMARY KEY AUTOINCREMENT,
                id           TEXT NOT NULL UNIQUE,
                conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
                parent       TEXT,
                role         TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
                state        TEXT NOT NULL CHECK (state IN ('complete', 'streaming', 'stopped', 'cut', 'failed')),
                created      REAL NOT NULL,
                writer       TEXT,                      -- the process that streams it, while it does
                head         TEXT,                      -- JSON of kv.record.Head
                numbers      TEXT,                      -- JSON
                text         TEXT NOT NULL,
                ids          BLOB NOT NULL,             -- uint32, little endian
                UNIQUE (conversation, id),
                FOREIGN KEY (conversation, parent) REFERENCES messages (conversation, id)
            )
            """,
            "CREATE INDEX messages_by_parent ON messages (conversation, parent)",
            "CREATE INDEX messages_streaming ON messages (state) WHERE state = 'streaming'",
        ),
    ),
    Migration(
        "private conversations",
        ("ALTER TABLE conversations ADD COLUMN private INTEGER NOT NULL DEFAULT 0",),
    ),
    Migration(
        "tags, the archive and waiting messages",
        (
            "ALTER TABLE conversations ADD COLUMN tags TEXT NOT NULL DEFAULT '[]'",  # JSON list of texts
            "ALTER TABLE conversations ADD COLUMN archived REAL",
            "ALTER TABLE conversations ADD COLUMN queue TEXT NOT NULL DEFAULT '[]'",  # JSON list of texts
        ),
    ),
    # The index has no text of its own: it reads `spoken`. What is streamed changes every second and is indexed when it
    # ends. A table that forgets by itself (contentless_delete) needs SQLite 3.43.
    Migration(
        "words of all messages",
        (
            "CREATE VIEW spoken AS SELECT seq, text FROM messages WHERE role != 'system' AND state != 'streaming'",
            """
            CREATE VIRTUAL TABLE words USING fts5 (
                text, content = 'spoken', content_rowid = 'seq', tokenize = 'unicode61 remove_diacritics 2'
            )
            """,
            """
            CREATE TRIGGER words_of_new AFTER INSERT ON messages WHEN new.role != 'system' AND new.state != 'streaming'
            BEGIN INSERT INTO words (rowid, text) VALUES (new.seq, new.text); END
            """,
            """
            CREATE TRIGGER words_of_old AFTER DELETE ON messages WHEN old.role != 'system' AND old.state != 'streaming'
            BEGIN INSERT INTO words (words, rowid, text) VALUES ('delete', old.seq, old.text); END
            """,
            """
            CREATE TRIGGER words_before_change AFTER UPDATE OF text, state, role ON messages
            WHEN old.role != 'system' AND old.state != 'streaming'
            BEGIN INSERT INTO words (words, rowid, text) VALUES ('delete', old.seq, old.text); END
            """,
            """
            CREATE TRIGGER words_after_change AFTER UPDATE OF text, state, role ON messages
            WHEN new.role != 'system' AND new.state != 'streaming'
            BEGIN INSERT INTO words (rowid, text) VALUES (new.seq, new.text); END
            """,
        ),
        filling="INSERT INTO words (rowid, text) SELECT seq, text FROM spoken WHERE seq > ? AND seq <= ?",
    ),
    # A table of its own: a column of messages would stand behind the long ones, and each walk would read them.
    Migration(
        "branches that were taken away",
        (
            """
            CREATE TABLE hidden (
                message TEXT PRIMARY KEY NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
                since   REAL NOT NULL
            ) WITHOUT ROWID
            """,
        ),
    ),
    Migration(
        "records that forks share",
        ("CREATE TABLE forked_heads (name TEXT PRIMARY KEY NOT NULL) WITHOUT ROWID",),
    ),
    # Copies of older conversations are known by time, speaker and text. That alone would not do from now on: an import that
    # knows no times gives the same to all, and who says "ok" twice in one conversation has said it twice.
    Migration(
        "words of system prompts, copies, erasures that are not complete",
        (
            "DROP TRIGGER words_of_new",
            "DROP TRIGGER words_of_old",
            "DROP TRIGGER words_before_change",
            "DROP TRIGGER words_after_change",
            "DROP VIEW spoken",
            "CREATE VIEW spoken AS SELECT seq, text FROM messages WHERE state != 'streaming'",
            """
            CREATE TRIGGER words_of_new AFTER INSERT ON messages WHEN new.state != 'streaming'
            BEGIN INSERT INTO words (rowid, text) VALUES (new.seq, new.text); END
            """,
            """
            CREATE TRIGGER words_of_old AFTER DELETE ON messages WHEN old.state != 'streaming'
            BEGIN INSERT INTO words (words, rowid, text) VALUES ('delete', old.seq, old.text); END
            """,
            """
            CREATE TRIGGER words_before_change AFTER UPDATE OF text, state, role ON messages WHEN old.state != 'streaming'
            BEGIN INSERT INTO words (words, rowid, text) VALUES ('delete', old.seq, old.text); END
            """,
            """
            CREATE TRIGGER words_after_change AFTER UPDATE OF text, state, role ON messages WHEN new.state != 'streaming'
            BEGIN INSERT INTO words (rowid, text) VALUES (new.seq, new.text); END
            """,
            "INSERT INTO words (rowid, text) SELECT seq, text FROM messages WHERE role = 'system' AND state != 'streaming'",
            """
            CREATE TABLE copies (
                message TEXT PRIMARY KEY NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
                first   TEXT NOT NULL                   -- the id of the message that was copied first; it may be gone
            ) WITHOUT ROWID
            """,
            "CREATE INDEX copies_by_first ON copies (first)",
            """
            INSERT INTO copies (message, first) SELECT id, first FROM (
                SELECT id, conversation, first_value(id) OVER same AS first, first_value(conversation) OVER same AS home
                FROM messages WINDOW same AS (PARTITION BY created, role, text ORDER BY seq)
            ) WHERE conversation != home
            """,
            # Numbers are never used again: who removes one that is done must not remove another process's.
            "CREATE TABLE erasures (n INTEGER PRIMARY KEY AUTOINCREMENT)",
        ),
    ),
)


def migrate(
    connection: sqlite3.Connection,
    database: Path,
    backups: Path,
    migrations: Sequence[Migration] = MIGRATIONS,
    progress: Progress = silent,
) -> list[Path]:
    """Bring the schema up to date; returns the backups made on the way.

    `connection` is in autocommit mode with foreign keys off. Raises SchemaTooNew, NotWritable (the backup could not be
    made: nothing is changed then), ConversationError, and sqlite3.Error of the migration itself, which leaves no trace.
    """
    made: list[Path] = []
    is_new = not schema_version(connection, database, migrations)  # nothing is in it that a backup could save
    while (version := schema_version(connection, database, migrations)) < len(migrations):
        made.extend(_apply(connection, database, None if is_new else backups, migrations[version], version, progress))
    return made


def schema_version(connection: sqlite3.Connection, database: Path, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The version that the database has; 0 if it is empty. Raises SchemaTooNew, or ConversationError if it isn't ours."""
    # One statement, one moment: between two, another process may make the tables.
    version, n_objects = connection.execute(
        "SELECT (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_master)"
    ).fetchone()
    if version > len(migrations):
        raise SchemaTooNew(
            f"{database} was written by a newer localkv (schema {version}; this one knows {len(migrations)}); "
            "install that localkv, or set LOCALKV_HOME to another folder"
        )
    if version == 0 and n_objects:
        raise ConversationError(f"{database} belongs to another program; move it away, or set LOCALKV_HOME")
    return int(version)


def _apply(
    connection: sqlite3.Connection,
    database: Path,
    backups: Path | None,
    migration: Migration,
    version: int,
    progress: Progress,
) -> list[Path]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _user_version(connection) != version:
            return []  # another process was faster
        made = [_back_up_first(database, backups, version)] if backups is not None else []
        for statement in migration.statements:
            connection.execute(statement)
        _fill(connection, migration, progress)
        if broken := connection.execute("PRAGMA foreign_key_check").fetchall():
            raise ConversationError(
                f'{database}: the migration "{migration.title}" would break {len(broken):,} references and was undone; '
                "keep using the older localkv and report this"
            )
        connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
        return made
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _fill(connection: sqlite3.Connection, migration: Migration, progress: Progress) -> None:
    if not migration.filling:
        return
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM messages").fetchone()
    for done in range(0, last, _RANGE):
        progress(migration.title, done, last)
        connection.execute(migration.filling, (done, done + _RANGE))


def _back_up_first(database: Path, backups: Path, version: int) -> Path:
    """The write lock is held, so no other process changes the database meanwhile."""
    try:
        with alone(database):
            return back_up(database, backups, version)
    except (NotWritable, OSError) as error:
        raise NotWritable(f"the schema of the conversations must change, and {error}; nothing was changed") from error


def _user_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
