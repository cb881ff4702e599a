"""What the writing thread does for placement, one job after the other.

Each job in this order: bad files out, leaving records out, warmths noted, new records in.

Torch-free; decides nothing: what is in a job was chosen on the control thread (saver.py). A job that does not fit into budget and
free-space floor writes nothing and says so. Thread: the transfers' one writer, which alone changes the store.
"""

import time
from dataclasses import dataclass, field, replace

from localkv.errors import StoreError
from localkv.figures import Written
from localkv.kv.record import Record
from localkv.tiers.catalogue import Cold, Row
from localkv.tiers.disk import Store

Pair = tuple[str, str]
"""(identity, name)."""

HEADER_BYTES = 8192
"""Reckoned for the header of a file that is not written yet."""

STRANGERS = 256
"""Records of other identities that are considered at once when some must go."""


@dataclass(frozen=True, slots=True)
class SsdLimits:
    """What the store may take."""

    budget_bytes: int
    free_floor_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """What the writer thread is to do, in this order."""

    bad: tuple[tuple[str, str], ...] = ()
    """(name, reason) of records whose file goes to quarantine."""
    leaving: tuple[tuple[Pair, str], ...] = ()
    """Records that go, each with the reason."""
    warm: dict[str, float] = field(default_factory=dict)
    batch: tuple[tuple[Record, memoryview], ...] = ()
    replaces: tuple[str, ...] = ()
    reads_rows: bool = False
    """The catalogue could not be read before."""

    @property
    def n_bytes(self) -> int:
        """What the new files will take."""
        return sum(record.n_bytes + HEADER_BYTES for record, _ in self.batch)


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a job."""

    rows: tuple[Row, ...] | None
    """Of the new records; None if there was no room for them."""
    used_bytes: int = 0
    free_bytes: int = 0
    strangers: tuple[Cold, ...] = ()
    """Of other identities, if somebody must go."""
    found: tuple[list[Row], dict[str, str]] | None = None
    """Rows and tombstones, if the job was to read them."""
    written: Written | None = None
    """None: it could not be read."""
    removal_seconds: float = 0.0
    """For all that left."""


def carry_out(job: Job, store: Store, limits: SsdLimits, high: float) -> Report:
    """Do `job`; new records only within budget and floor. Writing thread. Raises StoreError."""
    if not store.root.is_dir():
        store.prepare()  # the cache directory may be deleted at any time
    found = _read_rows(store) if job.reads_rows else None
    for name, reason in job.bad:
        store.quarantine(name, reason)
    began = time.monotonic()
    for reason in sorted({why for _, why in job.leaving}):
        store.remove_any([pair for pair, why in job.leaving if why == reason], reason)
    removal_seconds = time.monotonic() - began
    store.warm(job.warm)
    used, free = store.used_bytes(), store.free_bytes()
    fits = used + job.n_bytes <= limits.budget_bytes and free - job.n_bytes >= limits.free_floor_bytes
    rows: tuple[Row, ...] | None = None
    if fits or not job.batch:
        rows = tuple(store.publish(job.batch, job.replaces)) if job.batch else ()
    done = Report(rows, used + sum(row.file_bytes for row in rows or ()), free, (), found, None, removal_seconds)
    try:
        return _reckoned(done, store, limits, high)
    except StoreError:
        if not rows:
            raise
        return done  # what is durable is durable; the next job tells of the trouble


def _reckoned(done: Report, store: Store, limits: SsdLimits, high: float) -> Report:
    """The report with what the store says of itself after the job. Raises StoreError."""
    used, free = (store.used_bytes(), store.free_bytes()) if done.rows else (done.used_bytes, done.free_bytes)
    crowded = done.rows is None or used > high * limits.budget_bytes or free < limits.free_floor_bytes
    strangers = tuple(store.coldest(STRANGERS)) if crowded else ()
    return replace(done, used_bytes=used, free_bytes=free, strangers=strangers, written=store.written(time.time()))


def _read_rows(store: Store) -> tuple[list[Row], dict[str, str]]:
    store.prepare()
    return store.rows(), store.tombstones()


def sweep_all(store: Store) -> None:
    """Delete what an earlier engine left half written."""
    while store.sweep(age_seconds=0.0):
        pass
