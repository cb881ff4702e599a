"""conversations.db as one connection: how it is opened, locked, made durable, and how its errors read.

Knows no tables. Thread: any one at a time, a lock sees to it. Nothing of sqlite3 leaves this module as an exception: what
refuses writes is NotWritable (the database stays usable and the call may be repeated), all else a ConversationError. A
write is durable when its block ends: WAL with synchronous=NORMAL lost every one of 200 commits at a power cut, FULL none.
"""

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from localkv.chat.backups import damaged, refuse_to_begin_anew
from localkv.chat.migrations import MIGRATIONS, Migration, Progress, migrate, schema_version, silent
from localkv.errors import ConversationError, NotWritable
from localkv.paths import PRIVATE_FILE

BUSY_SECONDS = 5.0
_PAUSE_SECONDS = 0.02

_REFUSALS = {
    sqlite3.SQLITE_READONLY: "check its permissions and whether its disk is mounted read-only",
    sqlite3.SQLITE_PERM: "check its permissions",
    sqlite3.SQLITE_CANTOPEN: "check its permissions and those of its folder",
    sqlite3.SQLITE_FULL: "free some space on its disk",
    sqlite3.SQLITE_IOERR: "check its disk",
    sqlite3.SQLITE_BUSY: "another program holds it; close that program",
    sqlite3.SQLITE_LOCKED: "another program holds it; close that program",
}
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Database:
    """An open, migrated database."""

    def __init__(self, connection: sqlite3.Connection, path: Path, backups: Path, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self.backups = backups
        self._busy_seconds = busy_seconds
        self._connection = connection
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        path: Path,
        backups: Path,
        migrations: Sequence[Migration] = MIGRATIONS,
        busy_seconds: float = BUSY_SECONDS,
        progress: Progress = silent,
    ) -> "Database":
        """The database at `path`, made (0600) if missing, its schema brought up to date.

        Raises SchemaTooNew before anything is written, NotWritable, and ConversationsLost for a file that is damaged, or that
        is missing or blank although it has backups.
        """
        refuse_to_begin_anew(path, backups)
        _make_private(path)
        with translated(path, backups), ExitStack() as undo:
            connection = _connected(path, busy_seconds)
            undo.callback(connection.close)
            if not schema_version(connection, path, migrations):
                refuse_to_begin_anew(path, backups, blank=True)
            _make_durable(connection, busy_seconds)
            migrate(connection, path, backups, migrations, progress)
            _make_careful(connection)
            undo.pop_all()
        return cls(connection, path, backups, busy_seconds)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for queries. Each statement sees one moment."""
        with self._lock, translated(self.path, self.backups):
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection inside one transaction, which is durable when the block ends and undone if it raises."""
        with self._lock, translated(self.path, self.backups):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def beside(self) -> Iterator[sqlite3.Connection]:
        """Another connection, for long work: nobody waits for it, except that only one can write at a time. Autocommit."""
        with translated(self.path, self.backups), closing(_connected(self.path, self._busy_seconds)) as connection:
            _make_durable(connection, self._busy_seconds)
            _make_careful(connection)
            yield connection

    def close(self) -> None:
        """Release the file. May be called twice."""
        with self._lock, translated(self.path, self.backups):
            self._connection.close()


def truncated(connection: sqlite3.Connection) -> bool:
    """Whether the write-ahead log is in the database now, and empty. Waits for nobody: False while another one reads.

    Most is copied first, without holding up anybody. A database that has no such log is done.
    """
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(patience)}")


@contextmanager
def translated(path: Path, backups: Path) -> Iterator[None]:
    """A block whose sqlite3 errors become ours. Misuse of the module (ProgrammingError) is a bug and passes."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        raise _explained(error, path, backups) from error


def _explained(error: sqlite3.Error, path: Path, backups: Path) -> ConversationError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _REFUSALS:
        return NotWritable(f"the conversations in {path} cannot be written ({error}); {_REFUSALS[code]}")
    if code not in _DAMAGE:
        return ConversationError(f"the database {path} refused ({error}); backups are in {backups}")
    return damaged(path, backups, error)


def _make_private(path: Path) -> None:
    """Make sure that `path` is a file that only its owner may read. sqlite gives -wal and -shm the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), PRIVATE_FILE))
        if os.name != "nt" and path.stat().st_mode & 0o077:
            path.chmod(PRIVATE_FILE)
    except OSError as error:
        raise NotWritable(f"the conversations in {path} cannot be opened ({error.strerror}); check its permissions") from error


def _connected(path: Path, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA temp_store = MEMORY")  # what is sorted is text, and files elsewhere are not erased
    return connection


def _make_careful(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")  # what is erased is gone from the file as well


def _make_durable(connection: sqlite3.Connection, busy_seconds: float) -> None:
    mode = _switch_to_wal(connection, time.monotonic() + busy_seconds)
    # Where WAL is impossible (network disks) the journal is a file whose removal must be synced too: EXTRA.
    connection.execute(f"PRAGMA synchronous = {'FULL' if mode == 'wal' else 'EXTRA'}")
    if sys.platform == "darwin":
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")


def _switch_to_wal(connection: sqlite3.Connection, deadline: float) -> str:
    """The journal mode in force after asking for WAL.

    The waiting that sqlite does does not cover this step: of eight processes that opened a new database at once, five were
    refused.
    """
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
