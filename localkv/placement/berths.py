"""Berths: places on the device for records whose conversation leaves the slot, so that coming back needs no bus.

Torch-free. Decisions are policy's; this gives and takes places. Thread: the control thread, except `park`, which is the engine's.

A record has a berth only beside its bytes in RAM or on SSD: they were written there when it was made. So leaving the device is
always free and at once, nothing is ever lost by it, and the pool needs no trimming ahead: room is made when it is needed. What goes
from the other two tiers goes from here, too.

When the device's memory runs out in the middle of a turn the whole pool is given up: it is one piece of memory.

Berths are filled when a conversation leaves the slot, from the slot itself: one copy within the device. As long as it is in the
slot it needs none. Whoever must go for it is less dear than it: a record whose RAM copy has gone is dearer here than one that RAM
has as well, by what SSD and bus differ.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from localkv.events import EventLog
from localkv.flows import Traffic
from localkv.kv.record import RecordKind
from localkv.placement.index import Entry, Index
from localkv.placement.judge import Judge
from localkv.placement.policy import Resident, victims, whole_arena
from localkv.tiers.device import DevicePool, Place
from localkv.tiers.moves import Move, Where

T = TypeVar("T")


class Box(Protocol):
    """The control thread, as the engine reaches it."""

    def ask(self, work: Callable[[], T]) -> T:
        """The result of `work`, run there."""
        ...

    def tell(self, work: Callable[[], object]) -> None:
        """Have `work` run there."""
        ...


@dataclass(frozen=True, slots=True)
class Berth:
    """A place on the device that waits for the bytes of one record."""

    name: str
    memory: range
    place: Place
    entry: Entry


class Berths:
    """The pool on the device and who lies there."""

    def __init__(self, pool: DevicePool, index: Index, judge: Judge, events: EventLog, box: Box, traffic: Traffic) -> None:
        self.pool = pool
        self._index = index
        self._judge = judge
        self._events = events
        self._box = box
        self._came, self._left = traffic.vram_in, traffic.vram_out

    # ---- the engine's side ----

    @contextmanager
    def park(self, names: Sequence[str]) -> Iterator[list[Berth]]:
        """Berths for those of the records `names` that are worth one; to be filled, in compute order, before this closes.

        What the coming turn needs is held already, and stays.
        """
        if not self.pool.limit_bytes or not names:
            yield []
            return
        began, filled = time.perf_counter(), False
        berths = self._box.ask(lambda: self._find(names))
        try:
            yield berths
            filled = True
        finally:
            seconds = (time.perf_counter() - began) / max(1, len(berths))
            self._box.tell((lambda: self._moor(berths, seconds)) if filled else (lambda: self._give_back(berths)))

    def give_up(self) -> None:
        """The device's memory is needed for something else: nothing lies here from now on, in this engine's life."""
        if self.pool.limit_bytes:
            self._box.ask(self._close)

    # ---- the control thread's side ----

    def check(self) -> None:
        """Assert that the pool's book and the index agree, when nothing is being parked."""
        self.sweep()
        self.pool.check()
        assert self.pool.used_bytes == sum(len(entry.berth.memory) for entry in self._index.in_vram.values() if entry.berth)

    def sweep(self) -> None:
        """Places of records that have gone from the other tiers are free again."""
        while self._index.stranded:
            entry, place = self._index.stranded.pop()
            self.pool.release(place)
            self._note(entry, "", "gone")

    @property
    def n_held(self) -> int:
        """Records here that a turn needs."""
        return sum(1 for entry in self._index.in_vram.values() if entry.holds)

    def _find(self, names: Sequence[str]) -> list[Berth]:
        """In the order of `names`, so that what does not fit is the end of a chain."""
        self.sweep()
        known = [entry for name in names if (entry := self._index.entries.get(name)) is not None]
        new = [entry for entry in known if entry.berth is None and entry.row.n_bytes]
        if not new:
            return []
        lesser = self._lesser(new)
        berths: list[Berth] = []
        for entry in new:
            place = self._place(entry, lesser)
            if place is not None:
                berths.append(Berth(entry.row.name, place.view(entry.row.n_bytes), place, entry))
        return berths

    def _lesser(self, new: Sequence[Entry]) -> list[Resident]:
        """All who are less dear than each of `new`, the least dear first."""
        judge, now = self._judge, time.time()
        coming = [judge.in_vram(entry, self.pool.place_bytes[entry.row.kind], now) for entry in new]
        least = min((int(resident.rank), resident.score(judge.half_life)) for resident in coming)
        here = [judge.in_vram(entry, len(entry.berth.memory), now) for entry in self._index.in_vram.values() if entry.berth]
        return victims(here, self.pool.limit_bytes, judge.half_life, least)

    def _place(self, entry: Entry, lesser: list[Resident]) -> Place | None:
        kind, n_bytes = entry.row.kind, entry.row.n_bytes
        while (place := self.pool.reserve(kind, n_bytes)) is None:
            goes = next(([one] for one in lesser if self._serves(self._entry(one), kind)), None)
            goes = goes or whole_arena(lesser, self._arena_of, self.pool.n_used)
            if not goes:
                return None
            for one in goes:
                lesser.remove(one)
                self._leave(self._entry(one))
        return place

    def _serves(self, entry: Entry, kind: RecordKind) -> bool:
        """Whether its place can be given to a record of `kind`."""
        return entry.berth is not None and (entry.berth.kind == kind or self.pool.may_borrow(kind))

    def _entry(self, resident: Resident) -> Entry:
        return self._index.in_vram[resident.key[1]]

    def _arena_of(self, resident: Resident) -> int:
        berth = self._entry(resident).berth
        assert berth is not None
        return berth.arena

    def _leave(self, entry: Entry, reason: str = "room") -> None:
        self.pool.release(self._index.unmoor(entry))
        self._note(entry, entry.tier, reason)

    def _close(self) -> None:
        self.sweep()
        n_bytes = self.pool.committed_bytes
        for entry in list(self._index.in_vram.values()):
            self._leave(entry, "memory")
        self.pool.close()
        self._events.emit("vram.given_up", bytes=n_bytes, reason="the device's memory ran out")

    def _note(self, entry: Entry, target: Where, reason: str) -> None:
        self._left.add(entry.row.n_bytes, 0.0)
        Move(entry.row.name, "vram", target, entry.row.n_bytes, 0.0, reason).log(self._events)

    def _moor(self, berths: Sequence[Berth], seconds: float) -> None:
        for berth in berths:
            entry = berth.entry
            if not self._index.is_known(entry) or entry.berth is not None:
                self.pool.release(berth.place)
                continue
            self._index.moor(entry, berth.place)
            self._came.add(entry.row.n_bytes, seconds)
            Move(entry.row.name, "slot", "vram", entry.row.n_bytes, seconds, "park").log(self._events)

    def _give_back(self, berths: Sequence[Berth]) -> None:
        for berth in berths:
            self.pool.release(berth.place)
