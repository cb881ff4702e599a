"""How records become durable on SSD: whole files first, then their rows.

    each file: temporary name -> write -> sync     a torn or unsynced file never has a final name
    rename all                                     the final name appears with whole content
    sync each directory once                       names survive a power cut; parents of new directories too
    ONE commit: rows in, replaced rows out         a row never names a file that is not whole
    unlink the replaced files                      a file is gone only after its row

Any other order loses or trusts bytes after a power cut: without the file sync 1,076 of 1,076 rows named a bad file
[measured on ext4]. A failed sync is never retried on the same file: the record is given up, and a later publish writes a
new file from RAM.

Knows files, rows and their order; not who wants the records. Thread: the store's writing thread.
"""

import contextlib
import errno
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localkv.errors import NoSpace, StoreError
from localkv.events import EventLog
from localkv.files import TEMP_SUFFIX, Files
from localkv.kv.layout import Layout
from localkv.kv.record import Record, encode_header
from localkv.tiers.catalogue import Catalogue, Row, row_of

FILE_SUFFIX = ".safetensors"
SUPERSEDED = "superseded"
"""The tombstone of a record that a newer one replaced."""


def record_path(root: Path, identity: str, name: str) -> Path:
    """Where the file of a record lies; two hex digits spread 100,000 files over 256 directories."""
    return root / identity / name[:2] / f"{name}{FILE_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Part:
    """One record on its way to the disk."""

    row: Row
    header: bytes
    payload: memoryview
    temp: Path
    final: Path


class Publisher:
    """Publishes records of one identity. Each `publish` is one group: all of it is durable, or none of it has a row."""

    def __init__(
        self, root: Path, identity: str, layout: Layout, files: Files, catalogue: Catalogue, events: EventLog
    ) -> None:
        self._root = root
        self._identity = identity
        self._layout = layout
        self._files = files
        self._catalogue = catalogue
        self._events = events
        self.written_bytes = 0
        """Of all files, those of failed groups among them."""
        self._counted_bytes = 0
        """Of these, counted in the catalogue."""
        self._known: set[Path] = set()
        """Directories whose own names this process has made durable; an earlier one may have died before it did."""

    def publish(self, batch: Sequence[tuple[Record, memoryview]], replaces: Sequence[str]) -> list[Row]:
        """The rows of `batch`, in its order, durable. Raises StoreError or NoSpace, and then nothing of it remains."""
        present = self._present(batch)
        parts = [self._part(record, payload) for record, payload in _unique(batch) if record.name not in present]
        try:
            self.write(parts)
            self.settle(parts)
            self.commit(parts, [name for name in replaces if all(record.name != name for record, _ in batch)])
        except OSError as error:
            self._undo(parts)
            raise self._failure(parts, error) from error
        except StoreError:
            self._undo(parts)
            raise
        rows = present | {part.row.name: part.row for part in parts}
        return [rows[record.name] for record, _ in batch]

    def write(self, parts: Sequence[Part]) -> None:
        """Whole, synced files under temporary names."""
        for directory in {part.final.parent for part in parts}:
            if directory not in self._known or not directory.is_dir():
                self._known -= {directory, directory.parent}
                self._files.make_dir(directory.parent)
                self._files.make_dir(directory)
        for part in parts:
            n = self._write(part)
            if n != part.row.file_bytes:
                raise OSError(errno.EIO, f"{n:,} of {part.row.file_bytes:,} bytes were written")
            self._files.sync(part.temp)

    def settle(self, parts: Sequence[Part]) -> None:
        """Final names, durable."""
        for part in parts:
            self._files.rename(part.temp, part.final)
        directories = {part.final.parent for part in parts}
        fresh = (directories | {directory.parent for directory in directories}) - self._known
        for directory in sorted(directories | {directory.parent for directory in fresh}):
            self._files.sync_dir(directory)
        self._known |= fresh

    def commit(self, parts: Sequence[Part], replaces: Sequence[str]) -> None:
        """One commit for the rows; then the files of the replaced rows go."""
        if not parts and not replaces:
            return
        gone = [(self._identity, name) for name in replaces]
        uncounted = self.written_bytes - self._counted_bytes
        self._catalogue.change(self._identity, [part.row for part in parts], gone, SUPERSEDED, uncounted)
        self._counted_bytes += uncounted
        unlink_all(self._files, self._events, [record_path(self._root, *pair) for pair in gone])

    def _write(self, part: Part) -> int:
        """The bytes written to `part`'s temporary file. Those of a write that fails count, too: they wear the disk the same."""
        n = 0
        try:
            n = self._files.write_temp(part.temp, [part.header, part.payload])
        except OSError:
            with contextlib.suppress(OSError):  # there may be no file
                n = self._files.size(part.temp)
            raise
        finally:
            self.written_bytes += n
        return n

    def _present(self, batch: Sequence[tuple[Record, memoryview]]) -> dict[str, Row]:
        """The rows of records that are on the disk already: an equal name means equal bytes."""
        rows = self._catalogue.find(self._identity, [record.name for record, _ in batch])
        return {name: row for name, row in rows.items() if self._has_file(row)}

    def _has_file(self, row: Row) -> bool:
        try:
            return self._files.size(record_path(self._root, self._identity, row.name)) == row.file_bytes
        except OSError:
            return False  # it is written again, which either mends or reports what is wrong

    def _part(self, record: Record, payload: memoryview) -> Part:
        assert len(payload) == record.n_bytes, "the payload must be the record's own bytes"
        header = encode_header(record, self._layout)
        final = record_path(self._root, self._identity, record.name)
        temp = final.with_name(f"{record.name}.{secrets.token_hex(4)}{TEMP_SUFFIX}")
        return Part(row_of(record, len(header), time.time()), header, payload, temp, final)

    def _undo(self, parts: Sequence[Part]) -> None:
        """Remove what has no row. What cannot be removed now is left to the sweep."""
        self._known.clear()
        kept: set[str] = set()
        with contextlib.suppress(StoreError):  # without an answer no file has a row that this group gave it
            kept = set(self._catalogue.find(self._identity, [part.row.name for part in parts]))
        unlink_all(self._files, self._events, [part.temp for part in parts])
        unlink_all(self._files, self._events, [part.final for part in parts if part.row.name not in kept])

    def _failure(self, parts: Sequence[Part], error: OSError) -> StoreError:
        what = f"{len(parts)} records in {self._root}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return NoSpace(what, sum(part.row.file_bytes for part in parts), free_bytes(self._files, self._root))
        return StoreError(f"saving {what} failed: {error.strerror or error}; they stay in memory and will be tried again")


def free_bytes(files: Files, directory: Path) -> int:
    """Space left on the disk of `directory`, which may have been deleted; 0 if it cannot be told."""
    for place in (directory, *directory.parents):
        try:
            return files.free_bytes(place)
        except FileNotFoundError:
            continue
        except OSError:
            return 0
    return 0


def unlink_all(files: Files, events: EventLog, paths: Sequence[Path]) -> None:
    """Remove files that no row names. A failure is logged and left to the sweep: the rows are right already."""
    for path in paths:
        try:
            files.remove(path)
        except OSError as error:
            events.emit("store.unlink_failed", path=str(path), error=error.strerror)


def _unique(batch: Sequence[tuple[Record, memoryview]]) -> list[tuple[Record, memoryview]]:
    return list({record.name: (record, payload) for record, payload in batch}.values())
