"""Which records are on SSD: one SQLite database for the stores of all identities.

Knows rows and tombstones; opens no record file. The cache is disposable, so a database that is damaged or was written by
a newer localkv is set aside and an empty one begun: the files it named are recomputed, never guessed at.

Thread: any one at a time; a lock keeps two callers apart. A commit takes about 0.6 ms (WAL, synchronous=FULL; with
synchronous=NORMAL 200 of 200 commits were gone after a power cut [measured]). Token ids are not in the rows: 100,000 rows
load in well under a second without them.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self, TypeVar

import msgspec

from localkv.errors import NoSpace, StoreError
from localkv.events import EventLog
from localkv.figures import Written
from localkv.kv.record import MAX_HEADER_BYTES, Record, RecordKind
from localkv.paths import PRIVATE_FILE
from localkv.tiers import written

CATALOGUE = "catalogue.db"
VERSION = 1
MAX_TOMBSTONES = 10_000
BUSY_SECONDS = 5.0
_CHUNK = 500
"""Names per statement: SQLite's oldest limit on parameters is 999."""

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE records (
    identity TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, parent TEXT NOT NULL, lookup TEXT NOT NULL,
    position INTEGER NOT NULL, fingerprint TEXT NOT NULL, n_bytes INTEGER NOT NULL, digest TEXT NOT NULL, xxh3 TEXT NOT NULL,
    header_bytes INTEGER NOT NULL, used REAL NOT NULL, saved REAL NOT NULL, PRIMARY KEY (identity, name)) WITHOUT ROWID;
CREATE TABLE tombstones (
    id INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT NOT NULL, name TEXT NOT NULL, reason TEXT NOT NULL,
    time REAL NOT NULL, UNIQUE (identity, name) ON CONFLICT REPLACE);
PRAGMA user_version = {VERSION};
COMMIT;
"""
_COLUMNS = "name, kind, parent, lookup, position, fingerprint, n_bytes, digest, xxh3, header_bytes, used"

_FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""What sqlite3 raises; the second where the message about a damaged schema quotes bytes that are not UTF-8."""

T = TypeVar("T")


Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-z]+$")]
"""A name or identity. Files are found and removed by it, so a damaged one must not get far."""

Natural = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record on SSD, without its token ids."""

    name: Digest
    kind: RecordKind
    parent: str
    lookup: str
    position: Natural
    fingerprint: str
    n_bytes: Natural
    """Length of the payload."""
    digest: str
    check: str
    header_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_HEADER_BYTES + 8)]
    used: float
    """When it was last wanted, seconds since the epoch, wall clock; the later, the oftener it was wanted before."""

    @property
    def file_bytes(self) -> int:
        return self.header_bytes + self.n_bytes

    def record(self, ids: bytes) -> Record:
        """The record this row stands for, if `ids` are its token ids."""
        return Record(
            self.name, self.kind, self.parent, ids, self.position, self.fingerprint, self.n_bytes, self.digest, self.check
        )


class Cold(msgspec.Struct, frozen=True, array_like=True):
    """A record of any identity, as far as is needed to choose who goes."""

    identity: Digest
    name: Digest
    kind: RecordKind
    parent: str
    position: Natural
    file_bytes: Natural
    used: float


def row_of(record: Record, header_bytes: int, used: float) -> Row:
    """The row of `record`, whose file has `header_bytes` before the payload."""
    return Row(
        record.name, record.kind, record.parent, record.lookup, record.position, record.fingerprint, record.n_bytes,
        record.digest, record.check, header_bytes, used,
    )  # fmt: skip


class Catalogue:
    """The database. Each changing method is one commit, durable when it returns.

    All raise StoreError or NoSpace, but not for damage: a damaged database is set aside, with an event, and the call is
    answered from the empty one that begins.
    """

    def __init__(self, path: Path, events: EventLog) -> None:
        self._path = path
        self._events = events
        self._lock = threading.RLock()
        self._total: tuple[int, int] | None = None
        """(data_version, bytes of all rows); None after a change of our own."""
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def open(cls, path: Path, events: EventLog) -> Self:
        """The catalogue at `path`, made if it is not there, set aside and begun anew if it cannot be used."""
        catalogue = cls(path, events)
        catalogue.connect()
        return catalogue

    def connect(self) -> None:
        """Open the database now, and not with the first question: reads none of its rows."""
        self._read(lambda db: db)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    # ---- reading ----

    def rows(self, identity: str) -> list[Row]:
        """All rows of `identity`."""
        query = f"SELECT {_COLUMNS} FROM records WHERE identity = ?"  # noqa: S608
        return self._read(lambda db: _checked(db.execute(query, (identity,)).fetchall(), list[Row]))

    def find(self, identity: str, names: Sequence[str]) -> dict[str, Row]:
        """The rows of those `names` that have one."""
        return {row.name: row for row in self._read(lambda db: _checked(_select_named(db, identity, names), list[Row]))}

    def names(self, identity: str, prefix: str) -> set[str]:
        """The names of `identity` that begin with `prefix`."""
        query = "SELECT name FROM records WHERE identity = ? AND name >= ? AND name < ?"
        return self._read(lambda db: {name for (name,) in db.execute(query, (identity, prefix, prefix + "g"))})

    def tombstones(self, identity: str) -> dict[str, str]:
        """Why records are gone: name -> reason."""
        query = "SELECT name, reason FROM tombstones WHERE identity = ?"
        return dict(self._read(lambda db: _checked(db.execute(query, (identity,)).fetchall(), list[tuple[str, str]])))

    def identities(self) -> list[str]:
        """Those that have records."""
        found = self._read(
            lambda db: _checked(db.execute("SELECT DISTINCT identity FROM records").fetchall(), list[tuple[Digest]])
        )
        return [identity for (identity,) in found]

    def record_bytes(self) -> int:
        """Bytes of all files that have a row, of every identity. Summed again only after a change."""
        return self._read(self._sum)

    def _sum(self, db: sqlite3.Connection) -> int:
        (version,) = db.execute("PRAGMA data_version").fetchone()
        if self._total is None or self._total[0] != version:
            (total,) = db.execute("SELECT COALESCE(SUM(n_bytes + header_bytes), 0) FROM records").fetchone()
            self._total = (version, total)
        return self._total[1]

    def least_used(self, n: int, exclude: str) -> list[tuple[str, str, int]]:
        """(identity, name, file bytes) of the `n` records longest unused outside `exclude`; children before parents."""
        query = "SELECT identity, name, n_bytes + header_bytes FROM records WHERE identity != ? ORDER BY used, position DESC LIMIT ?"
        return self._read(
            lambda db: _checked(db.execute(query, (exclude, n)).fetchall(), list[tuple[Digest, Digest, Natural]])
        )

    def coldest(self, n: int, exclude: str) -> list[Cold]:
        """The `n` records outside `exclude` that are least likely to be wanted; children before parents."""
        query = (
            "SELECT identity, name, kind, parent, position, n_bytes + header_bytes, used FROM records WHERE identity != ? "
            "ORDER BY used, position DESC, kind DESC LIMIT ?"
        )
        return self._read(lambda db: _checked(db.execute(query, (exclude, n)).fetchall(), list[Cold]))

    def written(self, day: str) -> Written:
        """Bytes of record files that were written on `day`, and ever."""
        ((of_day, of_all),) = self._read(lambda db: _checked([written.sums(db, day)], list[tuple[Natural, Natural]]))
        return Written(today_bytes=of_day, total_bytes=of_all)

    # ---- changing ----

    def change(
        self,
        identity: str,
        add: Sequence[Row] = (),
        remove: Sequence[tuple[str, str]] = (),
        reason: str = "",
        n_written: int = 0,
    ) -> None:
        """In one commit: rows `add` of `identity` in, rows `remove` (identity, name) out, each leaving a tombstone.

        `n_written` bytes of record files are counted for today.
        """
        now = time.time()

        def act(db: sqlite3.Connection) -> None:
            for each, name in remove:
                if db.execute("DELETE FROM records WHERE identity = ? AND name = ?", (each, name)).rowcount:
                    db.execute("INSERT INTO tombstones VALUES (NULL, ?, ?, ?, ?)", (each, name, reason, now))
            db.executemany(
                f"INSERT OR REPLACE INTO records ({_COLUMNS}, identity, saved) VALUES ({'?, ' * 12}?)",  # noqa: S608
                [(*msgspec.structs.astuple(row), identity, now) for row in add],
            )
            gone = [(identity, row.name) for row in add]
            db.executemany("DELETE FROM tombstones WHERE identity = ? AND name = ?", gone)
            db.execute(
                "DELETE FROM tombstones WHERE id <= (SELECT id FROM tombstones ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (MAX_TOMBSTONES,),
            )
            if n_written:
                written.count(db, now, n_written)

        self._write(act)

    def warm(self, identity: str, used: Mapping[str, float]) -> None:
        """Note for each name how lately it was wanted, in one commit."""
        changes = [(when, identity, name) for name, when in used.items()]
        query = "UPDATE records SET used = ? WHERE identity = ? AND name = ?"
        if changes:
            self._write(lambda db: db.executemany(query, changes))

    # ---- the connection ----

    def _read(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """What `act` gives. A damaged database is set aside, and `act` asks the empty one that follows it."""
        with self._lock:
            try:
                return act(self._connected())
            except _FAILURES as error:
                if not _is_damage(error):
                    raise _translated(error, self._path) from error
                self._disconnect()
                set_aside(self._path, self._events, str(error))
            try:
                return act(self._connected())
            except _FAILURES as error:
                raise _translated(error, self._path) from error

    def _write(self, act: Callable[[sqlite3.Connection], object]) -> None:
        """Run `act` as one transaction, on the database that is at the path now."""
        with self._lock:
            if not os.path.exists(self._path):  # noqa: PTH110  a path that can't be looked at counts as gone
                self._events.emit("catalogue.vanished", path=str(self._path))
                self._disconnect()
            self._total = None
            self._read(lambda db: self._transact(db, act))

    def _transact(self, db: sqlite3.Connection, act: Callable[[sqlite3.Connection], object]) -> None:
        db.execute("BEGIN IMMEDIATE")
        try:
            act(db)
            db.execute("COMMIT")
        except _FAILURES:
            self._roll_back(db)
            raise

    def _roll_back(self, db: sqlite3.Connection) -> None:
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()  # the next use begins with a new connection and SQLite's own recovery

    def _disconnect(self) -> None:
        self._total = None
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):  # nothing of ours is pending: each change was committed or failed
                self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connect(self._path)
        return self._connection


def read_rows(path: Path) -> list[tuple[str, Row]]:
    """(identity, row) of every record, for a look from outside: nothing is changed or set aside. Raises StoreError, also for damage."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)) as db:
            db.execute("PRAGMA query_only = 1")
            (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise StoreError(f"the catalogue {path} is damaged: {verdict}; run: localkv verify --fix")
            return _checked(
                [(row[-1], row[:-1]) for row in db.execute(f"SELECT {_COLUMNS}, identity FROM records")],  # noqa: S608
                list[tuple[Digest, Row]],
            )
    except _FAILURES as error:
        raise StoreError(f"the catalogue {path} cannot be read: {error}; run: localkv verify --fix") from error


def set_aside(path: Path, events: EventLog, why: str) -> None:
    """Rename the database with a time stamp, so that an empty one can begin. Only the newest such file is kept.

    Its write-ahead log goes with it: SQLite would replay a log that it finds beside a new database.
    """
    target = path.with_name(f"{path.stem}.{time.strftime('%Y%m%dT%H%M%S')}.old")
    try:
        for old in path.parent.glob(f"{path.stem}.*.old*"):
            old.unlink()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{suffix}").replace(f"{target}{suffix}")
    except OSError as error:
        raise StoreError(
            f"the catalogue {path} cannot be used ({why}) and cannot be set aside: {error.strerror}; remove it by hand"
        ) from error
    events.emit("catalogue.set_aside", path=str(path), kept_as=str(target), why=why)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
    except OSError as error:
        raise StoreError(f"the catalogue {path} cannot be opened: {error.strerror}; check the cache directory") from error
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = 1", "checkpoint_fullfsync = 1"):
            db.execute(f"PRAGMA {pragma}")
        _prepare(db)
    except _FAILURES:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    """Make the tables in an empty database; refuse one of another version."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == 0 and not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        db.executescript(_SCHEMA)
    elif version != VERSION:
        raise _Unusable(f"it has version {version}, this localkv writes {VERSION}")
    db.execute(f"SELECT {_COLUMNS}, identity, saved FROM records LIMIT 1").fetchone()  # noqa: S608
    db.execute("SELECT id, identity, name, reason, time FROM tombstones LIMIT 1").fetchone()


class _Unusable(sqlite3.DatabaseError):
    """A catalogue of another version, or with values that were never written."""

    sqlite_errorcode = sqlite3.SQLITE_NOTADB


def _is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """True if the database itself is unusable, not just busy, full, or on a failing disk."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return isinstance(error, (sqlite3.OperationalError, UnicodeDecodeError))  # text that is not UTF-8 comes without a code
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA)


def _translated(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return NoSpace(f"the catalogue {path}", 4096, 0)
    return StoreError(f"the catalogue {path} failed: {error}; answers go on without saving until it works again")


def _checked(values: Sequence[object], kind: type[T]) -> T:
    """`values` as `kind`. SQLite has no checksums: a flipped bit may leave a well-formed row of nonsense."""
    try:
        return msgspec.convert(values, type=kind)
    except msgspec.ValidationError as error:
        raise _Unusable(f"it holds a value that was never written: {error}") from error


def _select_named(db: sqlite3.Connection, identity: str, names: Sequence[str]) -> list[object]:
    found: list[object] = []
    for start in range(0, len(names), _CHUNK):
        some = names[start : start + _CHUNK]
        marks = ", ".join("?" * len(some))
        query = f"SELECT {_COLUMNS} FROM records WHERE identity = ? AND name IN ({marks})"  # noqa: S608
        found += db.execute(query, (identity, *some)).fetchall()
    return found
