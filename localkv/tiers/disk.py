"""The store: records of one identity as files on SSD, and their rows in the catalogue.

    <root>/catalogue.db                             rows of all identities
    <root>/<identity>/<aa>/<name>.safetensors       aa = the first two hex digits of the name
    <root>/quarantine/                              the newest bad files, for a person to look at

Publishing is in publish.py, clearing up in sweep.py. Opening reads the catalogue and no record file.

Thread: `read` may run on many threads at once: it uses no SQLite and holds the GIL only between system calls. All
other methods run on one thread, the writing one. Invariant: a row names a whole, synced file; a removed record loses its
row, durably, before its file. Every read is verified before it returns: name, parent, ids, shapes, length, checksum.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from localkv.errors import BadRecord, StoreError
from localkv.events import EventLog, Reason
from localkv.figures import Written
from localkv.files import Files
from localkv.kv.layout import Layout
from localkv.kv.record import Record, verify
from localkv.messages import TokenLog
from localkv.tiers.catalogue import CATALOGUE, Catalogue, Cold, Row
from localkv.tiers.publish import Publisher, free_bytes, record_path, unlink_all
from localkv.tiers.sweep import ORPHAN_SECONDS, Problem, Quarantine, Sweep, find_problems
from localkv.tiers.upkeep import Freed, Upkeep
from localkv.tiers.written import today

__all__ = ["CATALOGUE", "Store"]


class Store:
    """The SSD tier of one identity."""

    def __init__(
        self, root: Path, identity: str, layout: Layout, files: Files, events: EventLog, catalogue: Catalogue
    ) -> None:
        self.root = root
        self.identity = identity
        self._layout = layout
        self._files = files
        self._events = events
        self._catalogue = catalogue
        self._publisher = Publisher(root, identity, layout, files, catalogue, events)
        self._quarantine = Quarantine(root, files, events)
        self._sweep = Sweep(root, catalogue, files, events)

    @classmethod
    def open(cls, root: Path, identity: str, layout: Layout, files: Files, events: EventLog) -> Self:
        """The store of `identity` below `root`, made if it is not there. Raises StoreError."""
        store = cls.later(root, identity, layout, files, events)
        store.prepare()
        return store

    @classmethod
    def later(cls, root: Path, identity: str, layout: Layout, files: Files, events: EventLog) -> Self:
        """The same store, not looked at yet: `prepare` comes before anything else."""
        assert identity.isalnum(), "an identity is a digest: it names a directory"
        return cls(root, identity, layout, files, events, Catalogue(root / CATALOGUE, events))

    def prepare(self) -> None:
        """Make the directory and the catalogue if they are not there. Raises StoreError; may be called again."""
        try:
            self._files.make_dir(self.root)
            self._files.sync_dir(self.root.parent)
        except OSError as error:
            raise StoreError(f"the store {self.root} cannot be made: {error.strerror}; check the cache directory") from error
        self._catalogue.connect()

    def close(self) -> None:
        self._catalogue.close()

    # ---- what is there ----

    def rows(self) -> list[Row]:
        """All records of this identity. A row that can't be one of this model's (damage) is dropped."""
        rows = self._catalogue.rows(self.identity)
        unfit = [row.name for row in rows if not self._fits(row)]
        if unfit:
            self._events.emit("store.unfit_rows", rows=len(unfit))
            self.remove(unfit, Reason.CHECKSUM)
        return [row for row in rows if self._fits(row)] if unfit else rows

    def tombstones(self) -> dict[str, str]:
        """Why records of this identity are gone: name -> reason, the newest 10,000."""
        return self._catalogue.tombstones(self.identity)

    def used_bytes(self) -> int:
        """Bytes below the root, all identities: record files with a row, catalogue, quarantine."""
        return self._catalogue.record_bytes() + self._loose_bytes() + self._quarantine.used_bytes()

    @property
    def written_bytes(self) -> int:
        """Of record files, by this store since it was opened; any thread."""
        return self._publisher.written_bytes

    def written(self, now: float) -> Written:
        """Bytes of record files that were written on the day of `now`, and ever: by all stores below this root."""
        return self._catalogue.written(today(now))

    def free_bytes(self) -> int:
        """Space left on the disk; 0 if it cannot be told."""
        return free_bytes(self._files, self.root)

    def coldest(self, n: int) -> list[Cold]:
        """The `n` records of other identities that are least likely to be wanted."""
        return self._catalogue.coldest(n, self.identity)

    def check(self) -> list[Problem]:
        """Rows of any identity without a file of the right size. Reads no file's content."""
        return find_problems(self.root, self._catalogue, self._files)

    # ---- reading ----

    def read(self, row: Row, ids: bytes, payload: memoryview) -> None:
        """Fill `payload`, `row.n_bytes` long, with the verified bytes of the record whose token ids are `ids`.

        Any thread. Raises BadRecord with the reason missing_file, short_read, checksum or read_error; `payload` then
        holds anything.
        """
        assert len(payload) == row.n_bytes, "the payload must have the record's own length"
        header = bytearray(row.header_bytes)
        beyond = bytearray(1)
        try:
            path = record_path(self.root, self.identity, row.name)
            n = self._files.read_parts(path, [memoryview(header), payload, memoryview(beyond)])
        except FileNotFoundError as error:
            raise BadRecord(row.name, Reason.MISSING_FILE, "its file is gone") from error
        except OSError as error:
            raise BadRecord(row.name, Reason.READ_ERROR, error.strerror or str(error)) from error
        if n < row.file_bytes:
            raise BadRecord(row.name, Reason.SHORT_READ, f"{n:,} of {row.file_bytes:,} bytes")
        if n > row.file_bytes:
            raise BadRecord(row.name, Reason.CHECKSUM, f"the file is longer than {row.file_bytes:,} bytes")
        verify(row.record(ids), bytes(header), payload, self._layout)

    # ---- changing ----

    def publish(self, batch: Sequence[tuple[Record, memoryview]], replaces: Sequence[str] = ()) -> list[Row]:
        """Make `batch` durable and drop the records named in `replaces`, in one commit; returns the rows of `batch`.

        A record that is there already is not written again. Raises StoreError, NoSpace for a full disk; then nothing of
        the batch remains and `replaces` are still there.
        """
        return self._publisher.publish(batch, replaces)

    def remove(self, names: Iterable[str], reason: str) -> None:
        """Drop records of this identity, leaving tombstones."""
        self.remove_any([(self.identity, name) for name in names], reason)

    def remove_any(self, pairs: Sequence[tuple[str, str]], reason: str) -> None:
        """Drop records of any identity, given as (identity, name), leaving tombstones."""
        self._catalogue.change(self.identity, remove=pairs, reason=reason)
        unlink_all(self._files, self._events, [record_path(self.root, *pair) for pair in pairs])

    def quarantine(self, name: str, reason: str) -> None:
        """Drop a record of this identity and keep its file, for a while, where a person can look at it."""
        self._catalogue.change(self.identity, remove=[(self.identity, name)], reason=reason)
        self._quarantine.take(record_path(self.root, self.identity, name), reason)

    def forget(self, logs: Sequence[TokenLog], names: Sequence[tuple[str, str]]) -> Freed:
        """Remove the records of `logs` beyond what they share, and (identity, name) `names`, of any identity. Raises StoreError."""
        return Upkeep(self.root, self._catalogue, self._files, self._events).forget(logs, names)

    def warm(self, used: Mapping[str, float]) -> None:
        """Note for records of this identity how lately they were wanted, in one commit."""
        self._catalogue.warm(self.identity, used)

    def sweep(self, age_seconds: float = ORPHAN_SECONDS, max_directories: int = 64) -> bool:
        """Delete temporary files and files without a row that are older than `age_seconds`; True if more remains to look at.

        One call looks at `max_directories` directories; a later call goes on there. Raises StoreError.
        """
        return self._sweep.step(age_seconds, max_directories, time.time())

    def _fits(self, row: Row) -> bool:
        """True if the payload has a length that the layout allows: places in memory are made for those."""
        if row.kind == "block":
            return row.n_bytes == self._layout.block_bytes
        return row.n_bytes <= self._layout.max_checkpoint_bytes

    def _loose_bytes(self) -> int:
        try:
            paths = [self.root / name for name in self._files.list_dir(self.root)]
            return sum(self._files.size(path) for path in paths if path.is_file())
        except OSError:
            return 0  # a file may go between listing and asking; the sum is taken again at the next save
