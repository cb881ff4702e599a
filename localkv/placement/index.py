"""Where every record is: the keeper's own book, and the view of it that plans are made from.

Torch-free. Knows names, places and rows; moves nothing. Thread: the control thread alone writes; plans read it there too.

Invariants (`check`): an entry is in RAM or on SSD or both; a pinned entry has a place; every lookup finds its entries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from localkv.kv.record import RecordKind
from localkv.tiers.catalogue import Row
from localkv.tiers.host import Place

HomeTier = Literal["ram", "ssd"]


class Saving(StrEnum):
    """How an entry stands to the SSD."""

    UNSAVED = "unsaved"
    SAVED = "saved"
    SPARE = "spare"
    """Only in RAM and not worth a write: a checkpoint that a newer one replaced. May go without being saved."""
    PRIVATE = "private"
    """Only in RAM because a private conversation made it. Never written, unless another conversation has the same tokens."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record as plans see it."""

    name: str
    kind: RecordKind
    parent: str
    lookup: str
    position: int
    n_bytes: int
    fingerprint: str
    tier: HomeTier
    used: float


@dataclass(slots=True)
class Entry:
    """One record and where its bytes are."""

    row: Row
    ids: bytes | None
    """Token ids, known for records of this process; rows from SSD do not carry them."""
    saving: Saving
    place: Place | None = None
    pins: int = 0
    """Users of its place right now: it is being read into, copied from, or saved."""
    holds: int = 0
    """Turns that need the record: it leaves no tier it cannot come back from."""
    used: float = 0.0
    """When it was last wanted, wall clock."""
    replaces: str = ""
    """The checkpoint that goes from SSD when this one is saved."""
    came_from: HomeTier = "ram"
    """Where its bytes in RAM came from: "ssd" if it was read in this engine's life."""

    @property
    def tier(self) -> HomeTier:
        return "ram" if self.place is not None else "ssd"

    def candidate(self) -> Candidate:
        row = self.row
        return Candidate(
            row.name, row.kind, row.parent, row.lookup, row.position, row.n_bytes, row.fingerprint, self.tier, self.used
        )


@dataclass(slots=True)
class Index:
    """All records of one identity, by name, by lookup and by parent."""

    root: str
    entries: dict[str, Entry] = field(default_factory=dict)
    tombstones: dict[str, str] = field(default_factory=dict)
    """Why a record that was known is gone."""
    _by_lookup: dict[str, list[str]] = field(default_factory=dict)
    _checkpoints: dict[str, list[str]] = field(default_factory=dict)

    def load(self, rows: Sequence[Row]) -> None:
        """Take over what the catalogue knows."""
        for row in rows:
            self.add(Entry(row, None, Saving.SAVED, used=row.used, came_from="ssd"))

    def add(self, entry: Entry) -> None:
        """Enter a record that is not known yet."""
        row = entry.row
        assert row.name not in self.entries, "a name is entered once"
        self.entries[row.name] = entry
        self._by_lookup.setdefault(row.lookup, []).append(row.name)
        if row.kind == "checkpoint":
            self._checkpoints.setdefault(row.parent, []).append(row.name)
        self.tombstones.pop(row.name, None)

    def remove(self, name: str, reason: str) -> Entry:
        """Strike a record out; its tombstone says why."""
        entry = self.entries.pop(name)
        _drop(self._by_lookup, entry.row.lookup, name)
        if entry.row.kind == "checkpoint":
            _drop(self._checkpoints, entry.row.parent, name)
        self.tombstones[name] = reason
        return entry

    def publish(self, names: Iterable[str]) -> None:
        """These records belong to a conversation that is not private: they may be saved."""
        for name in names:
            entry = self.entries.get(name)
            if entry is not None and entry.saving is Saving.PRIVATE:
                entry.saving = Saving.UNSAVED

    def get(self, name: str) -> Candidate | None:
        """The record of that name, if it is known."""
        entry = self.entries.get(name)
        return None if entry is None else entry.candidate()

    def find(self, lookup: str) -> list[Candidate]:
        """All records for "these tokens after that parent": they differ in bytes."""
        return [self.entries[name].candidate() for name in self._by_lookup.get(lookup, ())]

    def checkpoints_after(self, parent: str) -> list[Candidate]:
        """All checkpoints whose blocks end with `parent`."""
        return [self.entries[name].candidate() for name in self._checkpoints.get(parent, ())]

    def why_gone(self, name: str) -> str:
        """The reason on a record's tombstone; empty if there is none."""
        return self.tombstones.get(name, "")

    def check(self) -> None:
        """Assert the invariants."""
        for name, entry in self.entries.items():
            assert entry.place is not None or entry.saving is Saving.SAVED, f"{name} is nowhere"
            assert entry.pins == 0 or entry.place is not None, f"{name} is pinned without a place"
            assert min(entry.pins, entry.holds) >= 0, f"{name} was let go too often"
            assert name in self._by_lookup[entry.row.lookup], f"{name} cannot be found"
        assert sum(map(len, self._by_lookup.values())) == len(self.entries), "lookups name records that are gone"


def _drop(table: dict[str, list[str]], key: str, name: str) -> None:
    names = table[key]
    names.remove(name)
    if not names:
        del table[key]
