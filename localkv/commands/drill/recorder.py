"""The store of a rehearsed engine: does everything as ever, marks each step, and proves every record that it lets through.

Torch-free. A record is proven by its digest, which is part of its name: another function than the checksum that the store itself trusts.
Thread: any, as in tiers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from localkv.commands.drill.marks import Journal
from localkv.events import EventLog, Reason
from localkv.files import Files
from localkv.kv.record import Record, payload_digest
from localkv.tiers.catalogue import Catalogue, Row
from localkv.tiers.disk import Store

PIECE_BYTES = 32 << 10
"""Files are written in pieces, so that a kill leaves torn ones."""


class RecordingFiles(Files):
    """The real file system, step by step."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def write_temp(self, path: Path, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        """As ever."""
        self._journal.mark("writing", path=path)
        n = super().write_temp(path, parts)
        self._journal.mark("written", path=path)
        return n

    def write_some(self, fd: int, view: memoryview) -> int:
        """One piece at most."""
        n = super().write_some(fd, view[:PIECE_BYTES])
        if n < len(view):
            self._journal.mark("piece")
        return n

    def sync(self, path: Path) -> None:
        super().sync(path)
        self._journal.mark("synced", path=path)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._journal.mark("renamed", path=source, target=target)

    def sync_dir(self, directory: Path) -> None:
        super().sync_dir(directory)
        self._journal.mark("dir_synced", path=directory)

    def make_dir(self, directory: Path) -> None:
        """Each directory that is made is a step."""
        missing = [place for place in (directory, *directory.parents) if not place.is_dir()]
        super().make_dir(directory)
        for place in reversed(missing):
            self._journal.mark("made_dir", path=place)

    def remove(self, path: Path) -> None:
        """As ever."""
        self._journal.mark("removing", path=path)
        super().remove(path)
        self._journal.mark("removed", path=path)


class RecordingCatalogue(Catalogue):
    """The real catalogue, commit by commit."""

    def __init__(self, journal: Journal, path: Path, events: EventLog) -> None:
        super().__init__(path, events)
        self._journal = journal

    def change(
        self,
        identity: str,
        add: Sequence[Row] = (),
        remove: Sequence[tuple[str, str]] = (),
        reason: str = "",
        n_written: int = 0,
    ) -> None:
        """As ever."""
        names, gone = [row.name for row in add], [name for _, name in remove]
        self._journal.mark("commit", names=names, gone=gone)
        super().change(identity, add, remove, reason, n_written)
        self._journal.mark("committed", names=names, gone=gone)


class RecordingStore(Store):
    """The real store: what is saved, what is evicted, and whether what was read is what was written."""

    journal: ClassVar[Journal]

    def read(self, row: Row, ids: bytes, payload: memoryview) -> None:
        """As ever; afterwards the digest says whether it was right to let the bytes through."""
        super().read(row, ids, payload)
        self.journal.mark("restored", names=[row.name], good=payload_digest(payload) == row.digest)

    def publish(self, batch: Sequence[tuple[Record, memoryview]], replaces: Sequence[str] = ()) -> list[Row]:
        """As ever."""
        with self._span("saving", "saved"):
            return super().publish(batch, replaces)

    def remove_any(self, pairs: Sequence[tuple[str, str]], reason: str) -> None:
        """As ever."""
        if reason != Reason.EVICTED:
            super().remove_any(pairs, reason)
            return
        with self._span("evicting", "evicted"):
            super().remove_any(pairs, reason)

    @contextmanager
    def _span(self, begin: str, end: str) -> Iterator[None]:
        self.journal.mark(begin)
        try:
            yield
        finally:
            self.journal.mark(end)
