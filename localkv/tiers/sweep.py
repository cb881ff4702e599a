"""Clearing up below the store's root: files that no row names, temporary files, bad files, and a check of all rows.

Lists directories and asks for sizes and times; never opens a record. Off the start-up path. Thread: the writing one, so
that no file is between its rename and its row while this looks.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localkv.errors import StoreError
from localkv.events import EventLog
from localkv.files import TEMP_SUFFIX, Files
from localkv.tiers.catalogue import Catalogue
from localkv.tiers.publish import FILE_SUFFIX, record_path, unlink_all

ORPHAN_SECONDS = 3600.0
"""Files without a row are left alone for so long."""

QUARANTINE = "quarantine"
MAX_QUARANTINED = 20
MAX_QUARANTINED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about a record that is not as the catalogue says."""

    kind: str
    """missing_file or wrong_size."""
    identity: str
    name: str
    what: str


class Sweep:
    """One pass after the other over all record directories, a bounded number of them at a time."""

    def __init__(self, root: Path, catalogue: Catalogue, files: Files, events: EventLog) -> None:
        self._root = root
        self._catalogue = catalogue
        self._files = files
        self._events = events
        self._waiting: list[Path] = []

    def step(self, age_seconds: float, max_directories: int, now: float) -> bool:
        """Clear up in the next directories; True if this pass has more of them."""
        try:
            if not self._waiting:
                self._waiting = record_directories(self._root, self._files)
            for _ in range(min(max_directories, len(self._waiting))):
                self._clear(self._waiting.pop(), age_seconds, now)
        except OSError as error:
            raise StoreError(f"clearing up in {self._root} failed: {error.strerror}; it will be tried again") from error
        return bool(self._waiting)

    def _clear(self, directory: Path, age_seconds: float, now: float) -> None:
        named = {f"{name}{FILE_SUFFIX}" for name in self._catalogue.names(directory.parent.name, directory.name)}
        orphans = [
            directory / name
            for name in _names(self._files, directory)
            if name.endswith((FILE_SUFFIX, TEMP_SUFFIX)) and name not in named
        ]
        old = [path for path in orphans if self._is_old(path, age_seconds, now)]
        unlink_all(self._files, self._events, old)
        if old:
            self._events.emit("store.sweep", directory=str(directory), files=len(old))

    def _is_old(self, path: Path, age_seconds: float, now: float) -> bool:
        """A time in the future counts by its distance too: the clock may have been set back."""
        try:
            return abs(now - self._files.modified(path)) >= age_seconds
        except FileNotFoundError:
            return False


class Quarantine:
    """A directory of bad files, the newest 20 and at most 256 MiB of them."""

    def __init__(self, root: Path, files: Files, events: EventLog) -> None:
        self._directory = root / QUARANTINE
        self._files = files
        self._events = events

    def take(self, path: Path, reason: str) -> None:
        """Move the file at `path` here; if that fails it is removed: no row names it any more."""
        target = self._directory / f"{time.time_ns():020d}-{path.name}"
        try:
            self._files.make_dir(self._directory)
            self._files.rename(path, target)
        except FileNotFoundError:
            pass  # a record may be bad because its file is gone
        except OSError as error:
            self._events.emit("store.quarantine_failed", name=path.stem, error=error.strerror)
            unlink_all(self._files, self._events, [path])
        self._events.emit("store.quarantine", name=path.stem, reason=reason)
        self._bound()

    def used_bytes(self) -> int:
        return sum(size for _, size in self._sizes())

    def _bound(self) -> None:
        total = 0
        for rank, (path, size) in enumerate(reversed(self._sizes())):
            total += size
            if rank >= MAX_QUARANTINED or total > MAX_QUARANTINED_BYTES:
                unlink_all(self._files, self._events, [path])

    def _sizes(self) -> list[tuple[Path, int]]:
        """(path, bytes), oldest first: names begin with the time. Empty if it can't be listed now: it is bounded next time."""
        found = []
        try:
            names = sorted(_names(self._files, self._directory))
        except OSError:
            return []
        for name in names:
            size = _size(self._files, self._directory / name)
            if size is not None:
                found.append((self._directory / name, size))
        return found


def find_problems(root: Path, catalogue: Catalogue, files: Files) -> list[Problem]:
    """Rows whose file is missing or has another length."""
    problems = []
    for identity in catalogue.identities():
        for row in catalogue.rows(identity):
            size = _size(files, record_path(root, identity, row.name))
            if size is None:
                problems.append(Problem("missing_file", identity, row.name, "its file is gone"))
            elif size != row.file_bytes:
                what = f"its file has {size:,} bytes and should have {row.file_bytes:,}"
                problems.append(Problem("wrong_size", identity, row.name, what))
    return problems


def record_directories(root: Path, files: Files) -> list[Path]:
    """The directories that hold records, of all identities."""
    found: list[Path] = []
    for identity in _names(files, root):
        if identity != QUARANTINE and (root / identity).is_dir():
            found += [root / identity / name for name in _names(files, root / identity)]
    return sorted(found, reverse=True)


def _names(files: Files, directory: Path) -> Sequence[str]:
    try:
        return files.list_dir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _size(files: Files, path: Path) -> int | None:
    try:
        return files.size(path)
    except OSError:
        return None
