"""The whole store at once, all identities, without any model: forgetting, clearing up, mending.

Knows no layout and reads a record only to mend its row. Thread: one, that of the caller. Owner: whoever holds the lock of the store;
in an engine that is the writing thread, without an engine the command that took the lock.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from localkv.errors import StoreError
from localkv.events import EventLog, Reason
from localkv.files import TEMP_SUFFIX, Files
from localkv.kv.record import ID_BYTES
from localkv.messages import Forget, TokenLog
from localkv.paths import PRIVATE_DIR, PRIVATE_FILE
from localkv.tiers.audit import Finding, head_of
from localkv.tiers.catalogue import CATALOGUE, Catalogue, Row
from localkv.tiers.lineage import Lineage, needed, no_longer_needed
from localkv.tiers.moves import FORGOTTEN, Move
from localkv.tiers.publish import FILE_SUFFIX, record_path, unlink_all
from localkv.tiers.sweep import QUARANTINE, Quarantine, record_directories

Pair = tuple[str, str]
"""(identity, name)."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What went."""

    records: int = 0
    n_bytes: int = 0

    def __add__(self, other: "Freed") -> "Freed":
        return Freed(self.records + other.records, self.n_bytes + other.n_bytes)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that no row names."""

    path: Path
    n_bytes: int


class Upkeep:
    """The catalogue and the files below one root."""

    def __init__(self, root: Path, catalogue: Catalogue, files: Files, events: EventLog) -> None:
        self.root = root
        self._catalogue = catalogue
        self._files = files
        self._events = events
        self._quarantine = Quarantine(root, files, events)

    @classmethod
    def open(cls, root: Path, events: EventLog, files: Files | None = None) -> Self:
        """The store below `root`, which exists. Raises StoreError."""
        return cls(root, Catalogue.open(root / CATALOGUE, events), files or Files(), events)

    def close(self) -> None:
        """Release the catalogue."""
        self._catalogue.close()

    def rows(self) -> list[tuple[str, Row]]:
        """(identity, row) of every record."""
        return [(identity, row) for identity in self._catalogue.identities() for row in self._catalogue.rows(identity)]

    def forget(self, logs: Sequence[TokenLog], names: Iterable[Pair] = ()) -> Freed:
        """Remove the records of `logs` beyond what they share with others, and those named; what builds on them goes along.

        Files that no row names hold tokens, too: bad ones that were put aside, and what a killed engine left.
        """
        wanted = set(names)
        freed = Freed()
        for identity in self._catalogue.identities():
            lineage = Lineage.of(identity, self._catalogue.rows(identity))
            gone = {name for each, name in wanted if each == identity and name in lineage.rows}
            for log in logs:
                gone |= no_longer_needed(lineage, log.ids, log.shared)
            freed += self.remove([(identity, lineage.rows[name]) for name in gone if name in lineage.rows], FORGOTTEN)
        if logs:
            self.clear([each for each in self.leftovers() if self._tells_of(each.path, logs)])
        return freed

    def _tells_of(self, path: Path, logs: Sequence[TokenLog]) -> bool:
        """Whether a file without a row holds what is to be forgotten; one that cannot be read might."""
        if not path.name.endswith((FILE_SUFFIX, TEMP_SUFFIX)):
            return False
        record = head_of(path, self._files)
        if record is None:
            return True
        end = record.position * ID_BYTES
        begin = end - len(record.ids)
        return any(record.position > log.shared and log.ids[begin:end] == record.ids for log in logs)

    def remove(self, rows: Sequence[tuple[str, Row]], why: str) -> Freed:
        """Remove these records: rows first, in one commit, then files. `why` goes into the log; the tombstones say "evicted"."""
        if not rows:
            return Freed()
        pairs = [(identity, row.name) for identity, row in rows]
        self._catalogue.change("", remove=pairs, reason=Reason.EVICTED)
        unlink_all(self._files, self._events, [record_path(self.root, *pair) for pair in pairs])
        for _, row in rows:
            Move(row.name, "ssd", "", row.n_bytes, 0.0, why).log(self._events)
        return Freed(len(rows), sum(row.file_bytes for _, row in rows))

    def not_needed(self, logs: Iterable[bytes]) -> list[tuple[str, Row]]:
        """The records that none of `logs` can be restored from: no conversation has these tokens."""
        known = list(logs)
        found = []
        for identity in self._catalogue.identities():
            lineage = Lineage.of(identity, self._catalogue.rows(identity))
            kept = needed(lineage, known)
            found += [(identity, row) for name, row in lineage.rows.items() if name not in kept]
        return found

    def leftovers(self) -> list[Leftover]:
        """Files that no row names: temporary ones, records without a row, catalogues set aside, the quarantine."""
        paths = [self.root / name for name in self._names(self.root) if name.endswith((".old", ".old-wal", ".old-shm"))]
        paths += [self.root / QUARANTINE / name for name in self._names(self.root / QUARANTINE)]
        for directory in record_directories(self.root, self._files):
            named = {f"{name}{FILE_SUFFIX}" for name in self._catalogue.names(directory.parent.name, directory.name)}
            paths += [
                directory / name
                for name in self._names(directory)
                if name.endswith((FILE_SUFFIX, TEMP_SUFFIX)) and name not in named
            ]
        return [Leftover(path, self._size(path)) for path in paths]

    def clear(self, leftovers: Sequence[Leftover]) -> Freed:
        """Delete these files."""
        unlink_all(self._files, self._events, [each.path for each in leftovers])
        return Freed(0, sum(each.n_bytes for each in leftovers))

    def mend(self, findings: Sequence[Finding]) -> None:
        """Make the store sound again: good files get their rows, bad ones lose them and go to the quarantine. Raises StoreError."""
        for finding in findings:
            try:
                self._mend(finding)
            except OSError as error:
                raise StoreError(f"{finding.what}, and that cannot be mended: {error.strerror}") from error

    def _mend(self, finding: Finding) -> None:
        pair = (finding.identity, finding.name)
        match finding.kind:
            case "catalogue":
                self.rows()  # a damaged one is set aside as soon as it is read, and an empty one begins
            case "no_row" if finding.path is not None and finding.name in self._catalogue.tombstones(finding.identity):
                self._files.remove(finding.path)  # given up on purpose, maybe for a conversation that was deleted
            case "no_row" | "row_differs" if finding.row is not None and finding.path is not None:
                self._files.sync(finding.path)  # a row never names a file that a power cut could take back
                self._files.sync_dir(finding.path.parent)
                self._catalogue.change(finding.identity, add=[finding.row])
            case "temp_file" if finding.path is not None:
                self._files.remove(finding.path)
            case "permissions" if finding.path is not None:
                finding.path.chmod(PRIVATE_DIR if finding.path.is_dir() else PRIVATE_FILE)
            case "over_budget":
                self._shrink(finding.excess)
            case _:
                if finding.name:
                    self._catalogue.change("", remove=[pair], reason=finding.kind)
                if finding.path is not None:
                    self._quarantine.take(finding.path, finding.kind)

    def _shrink(self, excess: int) -> None:
        """Remove what was not wanted for longest, children before parents, until `excess` bytes are free."""
        while excess > 0 and (oldest := self._catalogue.least_used(64, "")):
            rows = {(identity, row.name): row for identity, row in self.rows()}
            found = [(identity, rows[identity, name]) for identity, name, _ in oldest if (identity, name) in rows]
            freed = self.remove(found, "over_budget")
            excess -= freed.n_bytes

    def _names(self, directory: Path) -> list[str]:
        try:
            return self._files.list_dir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"{directory} cannot be listed: {error.strerror}; check its permissions") from error

    def _size(self, path: Path) -> int:
        with contextlib.suppress(OSError):
            return self._files.size(path)
        return 0


def forget_on_disk(root: Path, events: EventLog, request: Forget) -> Freed:
    """Do `request` where no model is open. Raises StoreError."""
    if not (root / CATALOGUE).exists():
        return Freed()
    with contextlib.closing(Upkeep.open(root, events)) as upkeep:
        return upkeep.forget(request.logs, request.names)
