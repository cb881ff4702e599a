"""Room in the RAM pool: places for records that come in, made by letting others go.

Torch-free. Decisions are policy's; this gives and takes places. Thread: the control thread.

A record that is on SSD, or is not worth keeping, may leave RAM at once. If only unsaved ones are left, saving is asked for and the
wish waits; where saving is impossible the least recently used one is given up, with a tombstone and an event.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from localkv.events import EventLog, Reason
from localkv.kv.record import RecordKind
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.policy import Resident, eviction_order
from localkv.tiers.host import HostPool, Place

Give = Callable[[Place | None], None]


@dataclass(slots=True, eq=False)
class Wish:
    """Somebody waits for a place."""

    kind: RecordKind
    n_bytes: int
    give: Give
    dropped: bool = False


class Room:
    """The RAM pool's gatekeeper."""

    def __init__(self, pool: HostPool, index: Index, events: EventLog, save_now: Callable[[], bool]) -> None:
        self._pool = pool
        self._index = index
        self._events = events
        self._save_now = save_now
        self._wishes: deque[Wish] = deque()
        self.evicted = 0
        self.evicted_bytes = 0

    def want(self, kind: RecordKind, n_bytes: int, give: Give) -> Wish:
        """Have `give` called with a place as soon as there is one; with None if there can't be one."""
        wish = Wish(kind, n_bytes, give)
        self._wishes.append(wish)
        self.settle()
        return wish

    def give_back(self, place: Place) -> None:
        """A place is free again."""
        self._pool.release(place)
        self.settle()

    @property
    def has_wishes(self) -> bool:
        return bool(self._wishes)

    def settle(self) -> None:
        """Fulfil wishes in order, as far as places go."""
        while self._wishes:
            wish = self._wishes[0]
            if not wish.dropped:
                place = self._find(wish)
                if place is None and self._worth_waiting():
                    return
                self._wishes.popleft()
                wish.give(place)
            else:
                self._wishes.popleft()

    def shed(self) -> int:
        """Let go of all that may leave at once; returns how many did."""
        names = [name for name in self._leavers("block") if self._index.entries[name].saving is Saving.SAVED]
        for name in names:
            self._leave(name)
        return len(names)

    def _find(self, wish: Wish) -> Place | None:
        place = self._pool.reserve(wish.kind, wish.n_bytes)
        for name in self._leavers(wish.kind) if place is None else ():
            self._leave(name)
            place = self._pool.reserve(wish.kind, wish.n_bytes)
            if place is not None:
                return place
        return place

    def _leavers(self, kind: RecordKind) -> list[str]:
        """Who may leave RAM at once, first to go first; those of the wanted size class before the others."""
        residents = [self._resident(name, entry) for name, entry in self._index.entries.items() if entry.place is not None]
        order = [resident.key[1] for resident in eviction_order(residents)]
        return sorted(order, key=lambda name: self._index.entries[name].row.kind != kind)

    def _resident(self, name: str, entry: Entry) -> Resident:
        stays = entry.pins > 0 or entry.saving is Saving.UNSAVED or (entry.holds > 0 and entry.saving is not Saving.SAVED)
        return Resident(("", name), entry.used, entry.row.position, entry.row.n_bytes, stays)

    def _leave(self, name: str) -> None:
        entry = self._index.entries[name]
        assert entry.place is not None
        self._pool.release(entry.place)
        entry.place = None
        self.evicted += 1
        self.evicted_bytes += entry.row.n_bytes
        self._events.emit("move", record=name[:12], source="ram", target="", bytes=entry.row.n_bytes, reason="room")
        if entry.saving is not Saving.SAVED:
            self._index.remove(name, Reason.EVICTED if entry.saving is Saving.PRIVATE else "superseded")

    def _worth_waiting(self) -> bool:
        """True if a place will come by itself: something is pinned or being saved. Gives one record up where saving is impossible."""
        resident = [entry for entry in self._index.entries.values() if entry.place is not None]
        if any(entry.pins for entry in resident):
            return True
        if not any(entry.saving is Saving.UNSAVED for entry in resident):
            return False
        if self._save_now():
            return True
        return self._give_up(resident)

    def _give_up(self, resident: list[Entry]) -> bool:
        unheld = [entry for entry in resident if not entry.holds and entry.saving is Saving.UNSAVED]
        if not unheld:
            return False
        entry = min(unheld, key=lambda e: (e.used, -e.row.position))
        assert entry.place is not None
        self._pool.release(entry.place)
        entry.place = None
        self._index.remove(entry.row.name, Reason.NO_ROOM)
        self._events.emit("give_up", record=entry.row.name[:12], bytes=entry.row.n_bytes, reason=Reason.NO_ROOM)
        self.settle()
        return True
