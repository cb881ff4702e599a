"""Copies of conversations.db: made while it is in use, verified, seven of them kept; and the way back to one.

Knows no tables. Thread: that of the caller; a daily backup has one of its own. A copy gets its final name only when it is whole and on the
disk. Restoring deletes nothing: the file that was there, damaged or not, is put aside, beside the database, and goes as backups do.
Whoever makes a copy holds backup.lock meanwhile; an unfinished copy that nobody holds the lock for was left by a process that was killed, and may go.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from localkv.errors import ConversationError, ConversationsLost, NotWritable
from localkv.files import TEMP_SUFFIX, Files

KEPT = 7
DAY_SECONDS = 86400.0
RESTORE = "localkv sessions restore"
LOCK_SECONDS = 30.0
"""How long a restore, or a change of the schema, waits for a backup that is being made."""

PARTS = ("", "-wal", "-shm", "-journal")
"""What SQLite calls the files of one database; the last only where a disk allows no write-ahead log."""

_STAMP = "%Y%m%dT%H%M%S.%fZ"
_LOGS = ("-wal", "-journal")
_ASIDE = ".before-restore"
_AHEAD_SECONDS = 600.0
"""A copy that is dated further ahead than this was made while the clock was wrong: how old it is nobody knows."""
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
"""The bytes that SQLite locks while a connection is open in WAL mode."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy, and what is in it."""

    path: Path
    made: float
    """Seconds since the epoch, from its name."""
    n_bytes: int
    schema: int
    conversations: int
    messages: int
    problem: str
    """Why it cannot be used; empty if it can."""


def list_backups(backups: Path, database: Path, now: float | None = None) -> list[Path]:
    """The backups of `database`, newest first; last come those whose age is not known (`is_dated`)."""
    now = time.time() if now is None else now
    found = backups.glob(f"{database.stem}-*.db")
    return sorted(found, key=lambda path: (is_dated(path, now), path.name), reverse=True)


def list_aside(database: Path) -> list[Path]:
    """The files that restores have put aside, their logs among them, newest first."""
    return sorted(database.parent.glob(f"{database.name}.*{_ASIDE}*"), reverse=True)


def back_up(database: Path, backups: Path, version: int) -> Path:
    """A verified, durable copy of `database` in `backups`; only the newest seven stay. Files of other names are not counted.

    What a restore put aside goes when seven backups are newer, and not within a week: an update may make seven at once.
    The caller makes sure that no other process backs up the same database. Raises NotWritable.
    """
    files = Files()
    stamp = datetime.now(UTC).strftime(_STAMP)
    target = backups / f"{database.stem}-{stamp}-schema{version}.db"
    temp = target.with_name(target.name + TEMP_SUFFIX)
    try:
        files.make_dir(backups)
        _remove_leftovers(files, backups, database)
        files.write_temp(temp, [])
        _copy(database, temp, version)
        files.sync(temp)
        files.rename(temp, target)
        files.sync_dir(backups)
        others = [path for path in list_backups(backups, database) if path != target and _stamped(path) is not None]
        for old in (*others[KEPT - 1 :], *_outlived(database, [target, *others[: KEPT - 1]], time.time())):
            files.remove(old)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):  # the folder itself may be the trouble, and that is what is raised
            _remove_leftovers(files, backups, database)
        raise NotWritable(
            f"{database} cannot be backed up to {target} ({error}); free some space or mend the folder"
        ) from error
    return target


def back_up_daily(database: Path, backups: Path, version: int, now: float) -> Path | None:
    """A backup unless there is one of the last 24 hours, nothing has changed since the newest, or nothing is in it yet.

    Raises NotWritable; older backups stay then.
    """
    try:
        if not _is_due(database, backups, now):
            return None
        with _locked(database, 0.0):
            return back_up(database, backups, version) if _has_conversations(database) else None
    except Timeout:
        return None  # another face is at it
    except (OSError, sqlite3.Error) as error:
        raise NotWritable(
            f"{database} cannot be backed up ({error}); to go back to a backup, run: {RESTORE} --list"
        ) from error


def _is_due(database: Path, backups: Path, now: float) -> bool:
    known = [path for path in list_backups(backups, database, now) if is_dated(path, now)]
    if any(now - made_at(path) < DAY_SECONDS for path in known):
        return False
    changed = max((path.stat().st_mtime for path in _files_of(database)), default=0.0)
    return not known or changed > max(path.stat().st_mtime for path in known)


def begin_daily_backup(database: Path, backups: Path, version: int, tell: Callable[[str], None]) -> threading.Thread:
    """Back up in a thread, so that nobody waits for it at the start; join it before the end. `tell` gets what went wrong.

    What a killed backup or restore left is cleared away first.
    """

    def work() -> None:
        try:
            clear_unfinished(database, backups)
            back_up_daily(database, backups, version, time.time())
        except ConversationError as error:
            tell(str(error))

    thread = threading.Thread(target=work, name="daily-backup", daemon=True)
    thread.start()
    return thread


def made_at(path: Path) -> float:
    """When a backup was made, by its name; by its file where the name says nothing."""
    stamped = _stamped(path)
    return path.stat().st_mtime if stamped is None else stamped


def is_dated(path: Path, now: float) -> bool:
    """Whether the name of a backup says when it was made, and that was not after `now`."""
    stamped = _stamped(path)
    return stamped is not None and stamped <= now + _AHEAD_SECONDS


def _stamped(path: Path) -> float | None:
    return _moment(path.stem.rsplit("-", 2)[-2:][0])


def _moment(stamp: str) -> float | None:
    with suppress(ValueError):
        return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).timestamp()
    return None


def look(path: Path, known_schema: int) -> Backup:
    """What is in the copy at `path`, all of it checked."""
    n_bytes, problem, numbers = 0, "", (0, 0, 0)
    try:
        n_bytes = path.stat().st_size
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            (schema,) = db.execute("PRAGMA user_version").fetchone()
            (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            (conversations,) = db.execute("SELECT count(*) FROM conversations").fetchone()
            (messages,) = db.execute("SELECT count(*) FROM messages").fetchone()
            numbers = (schema, conversations, messages)
            if verdict != "ok":
                problem = f"it is damaged: {verdict}"
            elif not 0 < schema <= known_schema:
                problem = f"it was written by another localkv (schema {schema})"
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        problem = f"it cannot be read: {error}"
    return Backup(path, made_at(path) if path.exists() else 0.0, n_bytes, *numbers, problem)


def restore(database: Path, chosen: Backup, files: Files | None = None) -> list[Path]:
    """Put the copy `chosen` in the place of `database`, durably; returns where the former files are kept.

    Each name is durable before the next changes, the database's first: after a power cut the former file never stands in its place
    without its log, nor the copy beside a log that is not its own, which SQLite would replay into it. A log that such a cut has left
    behind is kept under the stamp of the next try. Raises ConversationError for a copy that cannot be used or a database that is in
    use, NotWritable.
    """
    if chosen.problem:
        raise ConversationError(f"{chosen.path} cannot be restored: {chosen.problem}; choose another one: {RESTORE} --list")
    if in_use(database):
        raise ConversationError(f"another localkv has {database} open; quit every localkv, then run this again")
    try:
        with alone(database):
            return _replace(database, chosen.path, files or Files())
    except OSError as error:
        raise NotWritable(
            f"{chosen.path} cannot be put in the place of {database}: {error.strerror}; mend that and run this again"
        ) from error


@contextmanager
def alone(database: Path) -> Iterator[None]:
    """A block in which no other process makes a copy of `database` or puts one in its place. Raises ConversationError, OSError."""
    try:
        with _locked(database, LOCK_SECONDS):
            yield
    except Timeout as error:
        raise ConversationError(f"another localkv is making a copy of {database}; wait for it, then run this again") from error


def unfinished(database: Path, backups: Path) -> list[Path]:
    """Copies that a backup or a restore left half made when it was killed; none while one is being made."""
    found = _unfinished(database, backups)
    if not found:
        return []
    try:
        with _locked(database, 0.0):
            return _unfinished(database, backups)
    except OSError:  # somebody is at it; or no lock can be had here, and then nothing can be removed either
        return []


def clear_unfinished(database: Path, backups: Path) -> None:
    """Remove them, unless a copy is being made just now. Raises NotWritable."""
    if not _unfinished(database, backups):
        return
    files = Files()
    try:
        with _locked(database, 0.0):
            for path in _unfinished(database, backups):
                files.remove(path)
    except Timeout:
        return
    except OSError as error:
        raise NotWritable(
            f"unfinished copies of {database} cannot be removed ({error.strerror}); mend the folders, or remove them yourself"
        ) from error


def in_use(database: Path) -> bool:
    """Whether another process has the database open. Not known on Windows, where an open file cannot be renamed anyway.

    This process must not have it open: closing any descriptor of a file drops all its locks. Raises NotWritable.
    """
    if os.name == "nt":
        return False
    import fcntl

    try:
        fd = os.open(database, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError as error:
        what = f"whether another localkv has {database} open cannot be seen ({error.strerror})"
        raise NotWritable(f"{what}; give yourself the right to write to it, then run this again") from error
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def refuse_to_begin_anew(database: Path, backups: Path, *, blank: bool = False) -> None:
    """Return unless `database` is missing or empty where conversations have been.

    `blank`: it was opened, and nothing is in it. Raises ConversationsLost, or ConversationError where there is no backup.
    """
    if not blank and database.exists() and database.stat().st_size:
        return
    known = list_backups(backups, database)
    logs = [path for part in _LOGS if (path := Path(f"{database}{part}")).exists() and path.stat().st_size]
    if not known and (blank or not logs):
        return
    what = "is empty" if database.exists() else "is missing"
    if not known:
        raise ConversationError(
            f"{database} {what}, but {logs[0]} is still there; put the database back, or move that file away"
        )
    other = f"To begin without your conversations, move the folder {backups} away"
    raise ConversationsLost(f"{database} {what}", f"{_way_back(known)}\n{other}")


def damaged(database: Path, backups: Path, error: Exception) -> ConversationError:
    """What is said of a damaged database: with what is wrong, and the way back if there is one."""
    known = list_backups(backups, database)
    what = f"{database} is damaged ({error})"
    if not known:
        return ConversationError(f"{what}; there is no backup in {backups}; move it away to start anew")
    return ConversationsLost(what, f"{_way_back(known)}\nThe damaged file is kept; `--list` shows all backups")


def _way_back(known: Sequence[Path]) -> str:
    return f"to go back to the newest of {len(known)} backups ({known[0].name}), run: {RESTORE}"


def _files_of(database: Path) -> list[Path]:
    return [path for part in PARTS if (path := Path(f"{database}{part}")).exists()]


def _has_conversations(database: Path) -> bool:
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return db.execute("SELECT 1 FROM conversations LIMIT 1").fetchone() is not None


def _locked(database: Path, seconds: float) -> FileLock:
    return FileLock(database.with_name("backup.lock"), timeout=seconds, mode=0o600)


def _replace(database: Path, source: Path, files: Files) -> list[Path]:
    temp = _half_restored(database)
    stamp = datetime.now(UTC).strftime(_STAMP)
    kept = []
    try:
        files.remove(temp)
        files.write_temp(temp, [source.read_bytes()])
        files.sync(temp)
        for path in _files_of(database):
            part = path.name.removeprefix(database.name)
            target = database.with_name(f"{database.name}.{stamp}{_ASIDE}{part}")
            files.rename(path, target)
            files.sync_dir(database.parent)
            kept.append(target)
        files.rename(temp, database)
    except OSError:
        with suppress(OSError):  # the folder itself may be the trouble, and that is what is raised
            files.remove(temp)
        raise
    files.sync_dir(database.parent)
    return kept


def _half_restored(database: Path) -> Path:
    return database.with_name(f".{database.name}{TEMP_SUFFIX}")


def _half_copied(database: Path, backups: Path) -> list[Path]:
    """SQLite may have put a journal beside the copy."""
    return sorted(backups.glob(f"{database.stem}-*.db{TEMP_SUFFIX}*"))


def _unfinished(database: Path, backups: Path) -> list[Path]:
    return [path for path in (_half_restored(database), *_half_copied(database, backups)) if path.exists()]


def _remove_leftovers(files: Files, backups: Path, database: Path) -> None:
    """Remove copies that a crash or an error left unfinished."""
    for path in _half_copied(database, backups):
        files.remove(path)


def _outlived(database: Path, kept: Sequence[Path], now: float) -> list[Path]:
    """What was put aside longer ago than all seven backups that are `kept` were made, and than a week."""
    dated = [made_at(path) for path in kept if is_dated(path, now)]
    if len(dated) < KEPT:
        return []
    oldest = min(*dated, now - KEPT * DAY_SECONDS)
    moments = {
        path: _moment(path.name.removeprefix(f"{database.name}.").partition(_ASIDE)[0]) for path in list_aside(database)
    }
    return [path for path, moment in moments.items() if moment is not None and moment < oldest]


def _copy(database: Path, target: Path, version: int) -> None:
    """Copy what is committed in `database`, and check that the copy is whole."""
    source = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm beside it
        verdict = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
        found = int(copy.execute("PRAGMA user_version").fetchone()[0])
        if verdict != "ok" or found != version:
            raise sqlite3.DatabaseError(f"the copy is not whole: {verdict}, schema {found}")
    finally:
        copy.close()
        source.close()
