"""Backups of the conversations: one a day, verified, seven kept; and the way back."""

import contextlib
import errno
import os
import random
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from localkv.chat import backups as module
from localkv.chat.backups import (
    KEPT,
    Backup,
    alone,
    back_up_daily,
    clear_unfinished,
    in_use,
    list_aside,
    list_backups,
    look,
    made_at,
    restore,
    unfinished,
)
from localkv.chat.migrations import MIGRATIONS
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError, ConversationsLost, NotWritable
from tests.tiers.power_cut import Journal, states_after

DAY = 86400
SCHEMA = len(MIGRATIONS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "conversations.db"


@pytest.fixture
def backups(tmp_path):
    return tmp_path / "backups"


def fill(path, backups, *texts):
    store = ConversationStore.open(path, backups)
    for text in texts:
        name = f"talk {len(store.list())}"
        store.ask(store.create(name, model=ModelSection(), sampling=SamplingSection()).id, None, text)
    store.close()


def texts_of(path, backups):
    store = ConversationStore.open(path, backups)
    texts = sorted(message.text for each in store.list() for message in store.path(each.id))
    store.close()
    return texts


def daily(path, backups, now):
    return back_up_daily(path, backups, SCHEMA, now)


def at(path, seconds):
    """Give a backup another date, as if it were made `seconds` later."""
    when = made_at(path) + seconds
    stamp = datetime.fromtimestamp(when, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    target = path.with_name(f"conversations-{stamp}-schema{SCHEMA}.db")
    path.rename(target)
    os.utime(target, (when, when))
    return target


def test_one_backup_a_day(path, backups):
    """The first start with something in it makes one; the next day, and not sooner, another, if anything was said since."""
    fill(path, backups)
    now = path.stat().st_mtime
    assert daily(path, backups, now) is None, "nothing is in it yet"
    fill(path, backups, "one")
    made = daily(path, backups, now)
    assert made is not None
    assert daily(path, backups, now + DAY / 2) is None
    assert daily(path, backups, now + DAY * 2) is None, "nothing has changed"
    os.utime(made, (1, 1))
    second = daily(path, backups, now + DAY * 2)
    assert list_backups(backups, path) == [second, made]
    assert not look(second, SCHEMA).problem
    assert (look(second, SCHEMA).conversations, look(second, SCHEMA).messages) == (1, 1)
    assert second.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("ahead", [3600, DAY / 2, 2 * DAY, 400 * DAY])
def test_a_clock_set_back_neither_stops_nor_floods(path, backups, ahead):
    """A backup that seems to come from the future does not stop new ones, and one a day is still one a day."""
    fill(path, backups, "one")
    now = path.stat().st_mtime
    at(daily(path, backups, now), ahead)
    assert daily(path, backups, now) is not None
    assert daily(path, backups, now) is None
    assert len(list_backups(backups, path)) == 2


def test_what_is_dated_in_the_future_is_not_the_newest(path, backups):
    """A copy that was made while the clock was wrong, or has another name, is listed last: its age is not known."""
    fill(path, backups, "one")
    now = path.stat().st_mtime
    future = at(daily(path, backups, now), 400 * DAY)
    mine = backups / "conversations-mine.db"
    mine.write_bytes(future.read_bytes())
    fill(path, backups, "two")
    older = at(daily(path, backups, now), -2 * DAY)
    newest = daily(path, backups, time.time())
    assert list_backups(backups, path)[:2] == [newest, older]
    assert set(list_backups(backups, path)[2:]) == {future, mine}
    assert list_backups(backups, path, now + 401 * DAY)[0] == future, "its day has come"
    path.unlink()
    with pytest.raises(ConversationsLost, match=newest.name):
        ConversationStore.open(path, backups)


def test_what_is_dated_in_the_future_pushes_nothing_out(path, backups):
    """Of many such copies the last goes before the first of the others; a file of another name is nobody's to remove."""
    fill(path, backups, "one")
    now = path.stat().st_mtime
    mine = backups / "conversations-mine.db"
    for day in range(KEPT):
        at(daily(path, backups, now), (400 + day) * DAY)
    mine.write_bytes(b"mine")
    made = []
    for day in range(KEPT + 1):
        made.append(at(daily(path, backups, now), -(KEPT + 1 - day) * DAY))
        os.utime(made[-1], (1, 1))
        assert [each for each in made[-KEPT:] if not each.exists()] == []
    assert list_backups(backups, path) == [*made[:0:-1], mine]


def test_seven_are_kept(path, backups):
    """The oldest go, one for each new one."""
    fill(path, backups, "one")
    now = path.stat().st_mtime
    for day in range(KEPT + 2):
        made = daily(path, backups, now + DAY * 20)
        at(made, -DAY * (20 - day))
        for each in list_backups(backups, path):
            os.utime(each, (1, 1))
    assert KEPT == 7
    assert len(list_backups(backups, path)) == KEPT


def test_a_damaged_database_pushes_no_good_backup_out(path, backups):
    """A copy that is not whole is not kept, the good ones stay, and the person hears of it with the way back."""
    fill(path, backups, *("x" * 3000 for _ in range(20)))
    now = path.stat().st_mtime
    good = daily(path, backups, now)
    os.utime(good, (1, 1))
    content = bytearray(path.read_bytes())
    content[8192 : 8192 + 20000] = b"\xff" * 20000
    path.write_bytes(content)
    with pytest.raises(NotWritable, match=r"backed up"):
        daily(path, backups, now + 2 * DAY)
    assert list_backups(backups, path) == [good]
    assert sorted(backups.iterdir()) == [good]


def test_two_faces_make_one_backup(path, backups, monkeypatch):
    """While one face backs up another leaves it to it."""
    fill(path, backups, "one")
    real, inner = module.back_up, []

    def slow(*arguments):
        inner.append(daily(path, backups, path.stat().st_mtime))
        return real(*arguments)

    monkeypatch.setattr(module, "back_up", slow)
    assert daily(path, backups, path.stat().st_mtime) is not None
    assert inner == [None]


def test_a_backup_of_a_database_in_use_has_all_that_was_committed(path, backups):
    """Open connections and their log are no obstacle."""
    store = ConversationStore.open(path, backups)
    key = store.create("talk", model=ModelSection(), sampling=SamplingSection()).id
    store.ask(key, None, "only in the log")
    problems = []
    store.begin_daily_backup(problems.append).join()
    store.close()
    assert problems == []
    assert look(list_backups(backups, path)[0], SCHEMA).messages == 1


# ---- missing and damaged databases ----


def test_a_missing_database_with_backups_is_not_begun_anew(path, backups):
    """Neither an empty list nor a new file: a sentence that names the command."""
    fill(path, backups, "precious")
    daily(path, backups, path.stat().st_mtime)
    for kept in (None, b""):
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)
        with pytest.raises(ConversationError, match="localkv sessions restore"):
            ConversationStore.open(path, backups)
        assert path.exists() is (kept is not None)
        path.touch()
    restore(path, look(list_backups(backups, path)[0], SCHEMA))
    assert texts_of(path, backups) == ["precious"]


@pytest.mark.parametrize("content", [b"x", "a database without tables"])
def test_a_blank_database_with_backups_is_not_begun_anew(path, backups, content):
    """What SQLite takes for a new database (a file cut to less than its header, or one that somebody made anew) is no empty list."""
    fill(path, backups, "precious")
    daily(path, backups, path.stat().st_mtime)
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        db = sqlite3.connect(path)
        db.execute("VACUUM")
        db.close()
    before = path.read_bytes()
    with pytest.raises(ConversationsLost, match="is empty"):
        ConversationStore.open(path, backups)
    assert path.read_bytes() == before
    restore(path, look(list_backups(backups, path)[0], SCHEMA))
    assert texts_of(path, backups) == ["precious"]


@pytest.mark.parametrize("log", ["-wal", "-journal"])
def test_a_log_without_its_database_is_not_thrown_away(path, backups, log):
    """SQLite would delete it when a new database begins."""
    (path.parent / f"conversations.db{log}").write_bytes(b"x" * 5000)
    with pytest.raises(ConversationError, match=f"conversations.db{log}"):
        ConversationStore.open(path, backups)
    assert (path.parent / f"conversations.db{log}").stat().st_size == 5000


def test_damage_names_the_command_and_stays(path, backups):
    """A damaged file is a sentence with the command; restoring brings the text back and keeps the damaged file."""
    fill(path, backups, "precious")
    backup = daily(path, backups, path.stat().st_mtime)
    path.write_bytes(b"rubbish" * 3000)
    with pytest.raises(ConversationError, match="localkv sessions restore"):
        ConversationStore.open(path, backups)
    kept = restore(path, look(backup, SCHEMA))[0]
    assert kept.read_bytes() == b"rubbish" * 3000
    assert texts_of(path, backups) == ["precious"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_log_of_the_former_database_does_not_come_back(path, backups):
    """SQLite would replay a log that lies beside the restored file; it is kept with the file it belongs to."""
    fill(path, backups, "old")
    backup = daily(path, backups, path.stat().st_mtime)
    program = (
        "import os, sys; from pathlib import Path; from localkv.chat.store import ConversationStore\n"
        "s = ConversationStore.open(Path(sys.argv[1]), Path(sys.argv[2])); s.ask(s.list()[0].id, s.list()[0].leaf, 'new'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(path), str(backups)], check=True)
    assert (path.parent / "conversations.db-wal").stat().st_size
    kept = restore(path, look(backup, SCHEMA))
    assert texts_of(path, backups) == ["old"]
    assert texts_of(kept[0], backups) == ["new", "old"]


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed there")
@pytest.mark.parametrize("damage", ["missing", "there"])
def test_the_journal_of_the_former_database_does_not_come_back(path, backups, damage):
    """Where a disk allows no write-ahead log, a crash leaves a journal: SQLite would roll the restored file back by it."""
    fill(path, backups, "old")
    backup = daily(path, backups, path.stat().st_mtime)
    copied = texts_of(backup, backups)
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('PRAGMA journal_mode = DELETE')\n"
        "c.execute('PRAGMA cache_size = 2'); c.execute('BEGIN')\n"
        "for n in range(200): c.execute('INSERT INTO forked_heads VALUES (?)', (str(n) * 300,))\n"
        "c.execute(\"UPDATE messages SET text = 'changed'\"); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    journal = path.with_name("conversations.db-journal")
    left = journal.read_bytes()
    assert left.strip(b"\0")
    if damage == "missing":
        path.unlink()
    kept = restore(path, look(backup, SCHEMA))
    assert not journal.exists()
    assert kept[-1].name.endswith(".before-restore-journal")
    assert kept[-1].read_bytes() == left
    assert path.read_bytes() == backup.read_bytes()
    assert texts_of(path, backups) == copied == ["old"]


def test_a_bad_backup_is_refused(path, backups):
    """A copy that cannot be read or is newer than this localkv replaces nothing."""
    fill(path, backups, "precious")
    backup = daily(path, backups, path.stat().st_mtime)
    before = path.read_bytes()
    db = sqlite3.connect(backup)
    db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    with pytest.raises(ConversationError, match="cannot be restored"):
        restore(path, look(backup, SCHEMA))
    backup.write_bytes(b"x" * 9000)
    with pytest.raises(ConversationError, match="cannot be restored"):
        restore(path, look(backup, SCHEMA))
    assert path.read_bytes() == before


def aside(path, days, *parts):
    """Files that a restore put aside so many days ago."""
    stamp = datetime.fromtimestamp(time.time() - days * DAY, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    made = [path.with_name(f"conversations.db.{stamp}.before-restore{part}") for part in parts or ("",)]
    for each in made:
        each.write_bytes(b"erased text")
    return made


@pytest.mark.parametrize(("days", "newer", "stays"), [
    (30, 7, False), (8, 7, False), (30, 6, True), (5, 7, True), (-400, 7, True),
], ids=["old", "just old enough", "fewer backups since", "seven in less than a week", "a wrong clock"])  # fmt: skip
def test_what_was_put_aside_goes_as_backups_do(path, backups, days, newer, stays):
    """Erased text does not stay for ever in the file that was there before a restore, nor in its log; a fresh one stays."""
    fill(path, backups, "one")
    made = aside(path, days, "", "-wal", "-shm", "-journal")
    mine = path.with_name("conversations.db.mine.before-restore")
    mine.write_bytes(b"mine")
    now = path.stat().st_mtime
    at(daily(path, backups, now), -100 * DAY)
    for n in range(newer):
        assert all(each.exists() for each in made)
        os.utime(path, (now, now))
        for each in backups.iterdir():
            os.utime(each, (1, 1))
        latest = daily(path, backups, time.time())
        if n < newer - 1:
            at(latest, (n - 7) * DAY * min(abs(days), 7) / 7.5)
    assert [each.exists() for each in made] == [stays] * 4
    assert list_aside(path) == [mine, *(each for each in sorted(made, reverse=True) if stays)]


def test_what_was_put_aside_in_the_future_pushes_nothing_out(path, backups):
    """Copies that a wrong clock dated are no seven newer backups."""
    fill(path, backups, "one")
    made = aside(path, 30)
    for day in range(KEPT):
        at(daily(path, backups, time.time()), (400 + day) * DAY)
    assert daily(path, backups, time.time()) is not None
    assert [each.exists() for each in made] == [True]


@pytest.mark.skipif(sys.platform == "win32", reason="record locks are POSIX")
def test_a_database_in_use_is_not_replaced(path, backups):
    """What another face writes after that would be lost: restoring waits until it is closed."""
    fill(path, backups, "precious")
    backup = daily(path, backups, path.stat().st_mtime)
    program = (
        "import sys; from pathlib import Path; from localkv.chat.store import ConversationStore\n"
        "s = ConversationStore.open(Path(sys.argv[1]), Path(sys.argv[2])); s.list(); print('open', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path), str(backups)], stdin=pipe, stdout=pipe, text=True
    ) as other:
        assert other.stdout.readline() == "open\n"
        assert in_use(path)
        with pytest.raises(ConversationError, match="quit every localkv"):
            restore(path, look(backup, SCHEMA))
        other.stdin.close()
    assert not in_use(path)
    restore(path, look(backup, SCHEMA))


@pytest.mark.skipif(sys.platform == "win32", reason="record locks are POSIX")
@pytest.mark.parametrize("refusal", [PermissionError(errno.EACCES, "no"), OSError(errno.EROFS, "no"), None])
def test_a_database_that_cannot_be_opened_is_not_replaced(path, backups, monkeypatch, refusal):
    """A file of another user, a disk that is read-only, a folder in its place: nobody can tell who has it open, and that is said."""
    fill(path, backups, "precious")
    backup = look(daily(path, backups, path.stat().st_mtime), SCHEMA)
    real = os.open

    def refuse(file, *flags, **options):
        if file == path:
            raise refusal
        return real(file, *flags, **options)

    if refusal:
        monkeypatch.setattr(os, "open", refuse)
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(NotWritable, match="right to write"):
        restore(path, backup)


def test_a_restore_that_is_cut_off_can_be_repeated(path, backups, monkeypatch):
    """Power lost between the two renames: the database is missing, the sentence names the command, and it works."""
    fill(path, backups, "precious")
    backup = daily(path, backups, path.stat().st_mtime)
    real = module.Files.rename
    monkeypatch.setattr(
        module.Files, "rename", lambda self, a, b: real(self, a, b) if b != path else (_ for _ in ()).throw(OSError(5, "cut"))
    )
    with pytest.raises(NotWritable, match="run this again"):
        restore(path, look(backup, SCHEMA))
    monkeypatch.undo()
    with pytest.raises(ConversationError, match="localkv sessions restore"):
        ConversationStore.open(path, backups)
    restore(path, look(backup, SCHEMA))
    assert texts_of(path, backups) == ["precious"]


# ---- what a killed process leaves ----

KILLED = """
import os, signal, sys, time
from pathlib import Path
from localkv.chat import backups
from localkv.files import Files

what, path, folder, left = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])


def counted(step):
    def do(self, *arguments):
        global left
        done = step(self, *arguments)
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return do


for name in ("make_dir", "remove", "write_some", "write_temp", "sync", "rename", "sync_dir"):
    setattr(Files, name, counted(getattr(Files, name)))
version = int(sys.argv[5])
if what == "restore":
    backups.restore(path, backups.look(backups.list_backups(folder, path)[0], version))
else:
    backups.back_up_daily(path, folder, version, time.time() + 1e6)
"""


def killed_at(what, path, backups, step):
    """Whether the process was killed after `step` steps on files; else it came to its end."""
    arguments = [sys.executable, "-c", KILLED, what, str(path), str(backups), str(step), str(SCHEMA)]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    assert done.returncode in {0, -9}, done.stderr
    return done.returncode == -9


def parts(path):
    return sorted(file for file in path.parent.rglob("*.part*"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
@pytest.mark.parametrize("what", ["restore", "back up"])
def test_a_killed_process_leaves_no_copy_for_ever(path, backups, what):
    """Killed after any step: what it left is found, cleared away at the next start or restore, and no text is lost."""
    fill(path, backups, "precious")
    backup = daily(path, backups, path.stat().st_mtime)
    os.utime(backup, (1, 1))
    left = 0
    for step in range(20):
        if not killed_at(what, path, backups, step):
            break
        assert unfinished(path, backups) == parts(path)
        left += len(parts(path))
        if not path.exists():  # cut off between the renames
            restore(path, look(backup, SCHEMA))
        store = ConversationStore.open(path, backups)
        store.begin_daily_backup(lambda problem: pytest.fail(problem)).join()
        store.close()
        assert parts(path) == []
        assert texts_of(path, backups) == ["precious"]
    assert step > 3
    assert left, "it was never killed while a copy was half made"


def test_a_copy_in_the_making_is_nobodys_leftover(path, backups):
    """What another process is writing is neither reported nor removed; when it is done or dead it is."""
    fill(path, backups, "precious")
    daily(path, backups, path.stat().st_mtime)
    part = path.with_name(".conversations.db.part")
    part.touch()
    with alone(path):
        assert unfinished(path, backups) == []
        clear_unfinished(path, backups)
        assert part.exists()
    assert unfinished(path, backups) == [part]
    clear_unfinished(path, backups)
    assert not part.exists()


def test_a_restore_waits_for_a_backup_and_says_so(path, backups, monkeypatch):
    """A file is not replaced under the hands of who copies it: the person hears what to wait for."""
    fill(path, backups, "precious")
    backup = daily(path, backups, path.stat().st_mtime)
    before = path.read_bytes()
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.0)
    with alone(path), pytest.raises(ConversationError, match="wait for it"):
        restore(path, look(backup, SCHEMA))
    assert path.read_bytes() == before


@pytest.mark.parametrize("step", ["write_some", "sync", "rename"])
def test_a_restore_that_fails_leaves_no_copy(path, backups, monkeypatch, step):
    """A full disk or a folder that refuses: the error is told, and nothing half made stays."""
    fill(path, backups, "precious")
    backup = daily(path, backups, path.stat().st_mtime)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.Files, step, refuse)
    with pytest.raises(NotWritable, match="No space left"):
        restore(path, look(backup, SCHEMA))
    monkeypatch.undo()
    assert parts(path) == []
    with contextlib.suppress(ConversationError):
        assert texts_of(path, backups) == ["precious"]


def test_a_backup_that_another_face_removes_meanwhile_is_no_traceback(path, backups, monkeypatch):
    """Two faces look at the same folder: a file that goes between two looks ends in a sentence at most."""
    fill(path, backups, "precious")
    at(daily(path, backups, path.stat().st_mtime), -2 * DAY)
    monkeypatch.setattr(module, "made_at", lambda path: (_ for _ in ()).throw(FileNotFoundError(2, "gone", str(path))))
    with pytest.raises(NotWritable, match="cannot be backed up"):
        daily(path, backups, path.stat().st_mtime)


# ---- power cuts ----

COPY, FORMER = b"copy" * 3000, b"former" * 3000
LOGS = {"c.db-wal": b"log" * 3000, "c.db-journal": b"journal" * 2000}


def cut_off(root, files):
    """Restore a copy over a database with its log; gives every legal state of the disk, as name -> bytes."""
    data, backups = root / "data", root / "backups"
    for folder in (data, backups):
        files.make_dir(folder)
    begin = {data / "c.db": FORMER, backups / "copy.db": COPY} | {data / name: content for name, content in LOGS.items()}
    for path, content in begin.items():
        files.write_temp(path, [content])
        files.sync(path)
    for folder in (data, backups, root):
        Journal.sync_dir(files, folder)
    n_before = len(files.steps)
    restore(data / "c.db", Backup(backups / "copy.db", 0.0, len(COPY), SCHEMA, 1, 1, ""), files)
    rng = random.Random(1)
    for k in range(n_before, len(files.steps) + 1):
        for found, _ in states_after(files.steps[:k], root, rng):
            yield {path.name: content for path, content in found.items() if path.parent == data}


def wrong_with(state):
    """What must not be after a power cut in the middle of bringing a backup back."""
    live, logs = state.get("c.db"), {name: state[name] for name in LOGS if name in state}
    if live not in (None, FORMER, COPY):
        yield "a torn database"
    if live == COPY and logs:
        yield "a log that is not this database's"
    if live == FORMER and logs != LOGS:
        yield "the former database without its log"
    if not {FORMER, *LOGS.values()} <= set(state.values()):
        yield "something of the former conversations is gone"


def test_no_power_cut_spoils_a_restore(tmp_path):
    """At every step, whatever part of the names has reached the disk: the former file whole, none, or the copy, and nothing is lost."""
    states = list(cut_off(tmp_path, Journal()))
    assert {state.get("c.db") for state in states} == {None, FORMER, COPY}
    assert [wrong for state in states for wrong in wrong_with(state)] == []


class NoSync(Journal):
    """Forgets to sync the copy."""

    def sync(self, path):
        if path.name.startswith("."):
            return
        super().sync(path)


class SyncsNamesOnce(Journal):
    """Syncs the directory at the end only."""

    def sync_dir(self, directory):
        if (directory / "c.db").exists():
            super().sync_dir(directory)


@pytest.mark.parametrize("files", [NoSync, SyncsNamesOnce])
def test_every_sync_of_a_restore_is_needed(tmp_path, files):
    """Without any of them some power cut loses or mixes up something."""
    assert any(wrong for state in cut_off(tmp_path, files()) for wrong in wrong_with(state))
