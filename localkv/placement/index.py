"""Where every record is: the keeper's own book, and the view of it that plans are made from.

Torch-free. Knows names, places and rows; moves nothing. Thread: the control thread alone writes; plans read it there too.
Places and how an entry stands to the SSD change through the Index alone, so that what is in RAM, what is unsaved, and how much is
on SSD is known without looking at all entries: 100,000 of them are ordinary.

Invariants (`check`): an entry is in RAM or on SSD or both, and only then it may have a berth on the device, too; a pinned entry
has a place; every lookup finds its entries.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from localkv.errors import StoreError
from localkv.kv.record import RecordKind
from localkv.placement.warmth import Warmth, stored
from localkv.tiers import device
from localkv.tiers.catalogue import MAX_TOMBSTONES, Row
from localkv.tiers.disk import Store
from localkv.tiers.host import Place
from localkv.tiers.publish import SUPERSEDED

HomeTier = Literal["vram", "ram", "ssd"]


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


@dataclass(slots=True, eq=False)
class Entry:
    """One record and where its bytes are."""

    row: Row
    ids: bytes | None
    """Token ids, known for records of this process; rows from SSD do not carry them."""
    saving: Saving
    place: Place | None = None
    berth: device.Place | None = None
    """Its place on the device, beside RAM or SSD."""
    pins: int = 0
    """Users of its place right now: it is copied from, or saved."""
    holds: int = 0
    """Turns that need the record: it leaves no tier it cannot come back from."""
    is_early: bool = False
    """It came into RAM before anybody asked for it, and has been there since without having been used."""
    is_read: bool = False
    """Its file is being read."""
    known_warmth: Warmth | None = None
    """None: not used in this engine's life; what the row says counts."""
    why_spare: str = SUPERSEDED
    """The tombstone of a spare record that leaves RAM."""
    replaces: str = ""
    """The checkpoint that goes from SSD when this one is saved."""
    entered: float = 0.0
    """When this engine made it, wall clock; 0 if an earlier one did."""

    @property
    def tier(self) -> HomeTier:
        """The nearest tier that has its bytes."""
        return "vram" if self.berth is not None else "ram" if self.place is not None else "ssd"

    @property
    def used(self) -> float:
        """When it was last wanted, as well as that is known."""
        return self.row.used if self.known_warmth is None else self.known_warmth.used

    def warmth(self, now: float) -> Warmth:
        """How likely it is to be wanted again."""
        return self.known_warmth or stored(self.row.used, now)

    def candidate(self) -> Candidate:
        """The record as plans see it."""
        row = self.row
        return Candidate(
            row.name, row.kind, row.parent, row.lookup, row.position, row.n_bytes, row.fingerprint, self.tier, self.used
        )


@dataclass(slots=True)
class Index:
    """All records of one identity, by name, by lookup and by parent."""

    root: str
    entries: dict[str, Entry] = field(default_factory=dict)
    in_ram: dict[str, Entry] = field(default_factory=dict)
    in_vram: dict[str, Entry] = field(default_factory=dict)
    stranded: list[tuple[Entry, device.Place]] = field(default_factory=list)
    """Berths of records that are gone, to be given back."""
    unsaved: dict[str, Entry] = field(default_factory=dict)
    saved_records: int = 0
    saved_bytes: int = 0
    """Of the files of all entries that are saved."""
    tombstones: dict[str, str] = field(default_factory=dict)
    """Why a record that was known is gone."""
    is_whole: bool = True
    """False while the catalogue could not be read: what is on SSD is not known yet."""
    ghosts: dict[str, Warmth] = field(default_factory=dict)
    """How warm the records were that have gone in this engine's life: a conversation that is computed again is no new one."""
    _by_lookup: dict[str, Entry] = field(default_factory=dict)
    """The first entry under each lookup."""
    _twins: dict[str, list[Entry]] = field(default_factory=dict)
    """The others, where a lookup has several: rare, and 100,000 lists of one would take a third of the time to open."""
    _checkpoints: dict[str, list[str]] = field(default_factory=dict)

    # ---- what is known ----

    def load(self, rows: Sequence[Row]) -> None:
        """Take over what the catalogue knows."""
        for row in rows:
            self.entries[row.name] = entry = Entry(row, None, Saving.SAVED)
            self._make_findable(entry)
        self.saved_records += len(rows)
        self.saved_bytes += sum([row.file_bytes for row in rows])

    def complete(self, rows: Sequence[Row], tombstones: Mapping[str, str]) -> None:
        """Take over what could not be read at the start; what is known by now stays as it is."""
        self.load([row for row in rows if row.name not in self.entries])
        self.tombstones.update({name: why for name, why in tombstones.items() if name not in self.entries})
        self.is_whole = True

    def add(self, entry: Entry) -> None:
        """Enter a record that is not known yet."""
        row = entry.row
        assert row.name not in self.entries, "a name is entered once"
        self.entries[row.name] = entry
        self._make_findable(entry)
        if entry.place is not None:
            self.in_ram[row.name] = entry
        self._count(entry, 1)
        self.tombstones.pop(row.name, None)

    def remove(self, name: str, reason: str) -> Entry:
        """Strike a record out; its tombstone says why. Its place, if it has one, is the caller's to give back."""
        entry = self.entries.pop(name)
        entry.is_early = False
        self._make_unfindable(entry)
        self.in_ram.pop(name, None)
        if entry.berth is not None:
            self.stranded.append((entry, self.unmoor(entry)))
        self._count(entry, -1)
        self.tombstones[name] = reason
        self.ghosts[name] = entry.warmth(entry.row.used)
        if len(self.ghosts) > MAX_TOMBSTONES:
            del self.ghosts[next(iter(self.ghosts))]
        return entry

    def _make_findable(self, entry: Entry) -> None:
        row = entry.row
        if self._by_lookup.setdefault(row.lookup, entry) is not entry:
            self._twins.setdefault(row.lookup, []).append(entry)
        if row.kind == "checkpoint":
            self._checkpoints.setdefault(row.parent, []).append(row.name)

    def _make_unfindable(self, entry: Entry) -> None:
        lookup, parent = entry.row.lookup, entry.row.parent
        twins = self._twins.get(lookup, [])
        if self._by_lookup[lookup] is not entry:
            twins.remove(entry)
        elif twins:
            self._by_lookup[lookup] = twins.pop(0)
        else:
            del self._by_lookup[lookup]
        if not twins:
            self._twins.pop(lookup, None)
        if entry.row.kind == "checkpoint":
            self._checkpoints[parent].remove(entry.row.name)
            if not self._checkpoints[parent]:
                del self._checkpoints[parent]

    def is_known(self, entry: Entry) -> bool:
        """Whether this very entry is in the book: another one may have its name by now."""
        return self.entries.get(entry.row.name) is entry

    def warmth_of(self, name: str, now: float) -> Warmth | None:
        """How warm a record is, or was when it went; None if it was never seen."""
        entry = self.entries.get(name)
        return self.ghosts.get(name) if entry is None else entry.warmth(now)

    # ---- what changes ----

    def settle(self, entry: Entry, place: Place, ids: bytes) -> None:
        """Its bytes are at `place` now."""
        assert entry.place is None, "a record has one place"
        entry.place, entry.ids = place, ids
        self.in_ram[entry.row.name] = entry

    def unsettle(self, entry: Entry) -> Place:
        """Its bytes in RAM are given up; returns the place."""
        assert entry.place is not None, "only what is in RAM can leave it"
        assert not entry.pins, "nobody uses the bytes of what leaves"
        place, entry.place, entry.is_early = entry.place, None, False
        del self.in_ram[entry.row.name]
        return place

    def moor(self, entry: Entry, berth: device.Place) -> None:
        """Its bytes are on the device, too."""
        assert entry.berth is None, "a record has one berth"
        entry.berth = berth
        self.in_vram[entry.row.name] = entry

    def unmoor(self, entry: Entry) -> device.Place:
        """Its bytes on the device are given up; returns the place."""
        assert entry.berth is not None, "only what is on the device can leave it"
        berth, entry.berth = entry.berth, None
        del self.in_vram[entry.row.name]
        return berth

    def mark(self, entry: Entry, saving: Saving, row: Row | None = None) -> None:
        """How it stands to the SSD now; `row` is that of the file that was written."""
        self._count(entry, -1)
        entry.saving, entry.row = saving, row or entry.row
        self._count(entry, 1)

    def publish(self, names: Iterable[str]) -> None:
        """These records belong to a conversation that is not private: they may be saved."""
        for name in names:
            entry = self.entries.get(name)
            if entry is not None and entry.saving is Saving.PRIVATE:
                self.mark(entry, Saving.UNSAVED)

    def _count(self, entry: Entry, sign: int) -> None:
        if entry.saving is Saving.SAVED:
            self.saved_records += sign
            self.saved_bytes += sign * entry.row.file_bytes
        elif entry.saving is Saving.UNSAVED and sign > 0:
            self.unsaved[entry.row.name] = entry
        elif entry.saving is Saving.UNSAVED:
            del self.unsaved[entry.row.name]

    # ---- what plans see ----

    def get(self, name: str) -> Candidate | None:
        """The record of that name, if it is known."""
        entry = self.entries.get(name)
        return None if entry is None else entry.candidate()

    def find(self, lookup: str) -> list[Candidate]:
        """All records for "these tokens after that parent": they differ in bytes."""
        first = self._by_lookup.get(lookup)
        return [] if first is None else [entry.candidate() for entry in (first, *self._twins.get(lookup, ()))]

    def checkpoints_after(self, parent: str) -> list[Candidate]:
        """All checkpoints whose blocks end with `parent`."""
        return [self.entries[name].candidate() for name in self._checkpoints.get(parent, ())]

    def chain(self, last: str) -> Iterator[str]:
        """The record of that name and all that it builds on, last first, as far as they are known."""
        while (entry := self.entries.get(last)) is not None:
            yield last
            last = entry.row.parent

    def why_gone(self, name: str) -> str:
        """The reason on a record's tombstone; empty if there is none."""
        return self.tombstones.get(name, "")

    def check(self) -> None:
        """Assert the invariants."""
        for name, entry in self.entries.items():
            assert entry.place is not None or entry.saving is Saving.SAVED, f"{name} is nowhere"
            assert entry.pins == 0 or entry.place is not None, f"{name} is pinned without a place"
            assert min(entry.pins, entry.holds) >= 0, f"{name} was let go too often"
            assert any(found.name == name for found in self.find(entry.row.lookup)), f"{name} cannot be found"
        entries = self.entries.values()
        assert len(self._by_lookup) + sum(map(len, self._twins.values())) == len(entries), "lookups name records that are gone"
        assert list(self.in_ram.values()) == [self.entries[name] for name in self.in_ram], "RAM holds what is gone"
        assert set(self.in_ram) == {entry.row.name for entry in entries if entry.place is not None}
        assert set(self.in_vram) == {entry.row.name for entry in entries if entry.berth is not None}
        assert all(self.entries.get(name) is entry for name, entry in self.in_vram.items()), "the device holds what is gone"
        assert set(self.unsaved) == {entry.row.name for entry in entries if entry.saving is Saving.UNSAVED}
        saved = [entry.row.file_bytes for entry in entries if entry.saving is Saving.SAVED]
        assert (self.saved_records, self.saved_bytes) == (len(saved), sum(saved)), "the count of what is saved is wrong"


def open_index(root: str, store: Store | None) -> Index:
    """All that `store` has. Garbage is not collected meanwhile: of 100,000 new objects none is any, and looking takes as long again."""
    index = Index(root)
    if store is None:
        return index
    collects = gc.isenabled()
    gc.disable()
    try:
        index.load(store.rows())
        index.tombstones.update(store.tombstones())
    except StoreError:
        index.is_whole = False  # read with the first save that succeeds
    finally:
        if collects:
            gc.enable()
    return index
