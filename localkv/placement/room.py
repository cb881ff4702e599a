"""Room in the RAM pool: places for records that come in, made by letting others go.

Torch-free. Decisions are policy's; this gives and takes places. Thread: the control thread.

A record that is on SSD, or is not worth keeping, may leave RAM at once: saving has been done before, so leaving is only a free.
Above the high mark the pool is trimmed to the low one. If only unsaved ones are left, saving is asked for and the wish waits;
where saving is impossible the least valuable is given up, with a tombstone and an event.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localkv.events import EventLog, Reason
from localkv.flows import Flow
from localkv.kv.record import Record, RecordKind
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.judge import Judge
from localkv.placement.policy import Resident, eviction_order, victims, whole_arena, with_all_that_need_it
from localkv.tiers.host import HostPool, Place
from localkv.tiers.moves import Move

Give = Callable[[Place | None], None]


@dataclass(slots=True, eq=False)
class Wish:
    """Somebody waits for a place."""

    kind: RecordKind
    n_bytes: int
    give: Give
    dropped: bool = False


@dataclass(slots=True)
class Reservation:
    """A place to fill. Without `commit` it is given back."""

    view: memoryview | None
    """None: the pool has no room; the record is not kept."""
    _commit: Callable[[Record, str, bool], None]

    def commit(self, record: Record, replaces: str = "", *, spare: bool = False) -> None:
        """The view now holds `record`'s payload.

        `replaces` names the checkpoint that it makes superfluous on SSD; a `spare` record is not worth a write itself.
        """
        self._commit(record, replaces, spare)


class Room:
    """The RAM pool's gatekeeper. `save_now` hurries saving and says whether any is under way; `left` counts what makes room.

    `reads_under_way`: places are being filled that will be free again once they are used.
    """

    def __init__(
        self, pool: HostPool, index: Index, judge: Judge, events: EventLog, save_now: Callable[[], bool],
        why_unsaved: Callable[[], Reason], reads_under_way: Callable[[], bool], left: Flow,
    ) -> None:  # fmt: skip
        self._pool = pool
        self._index = index
        self._judge = judge
        self._events = events
        self._save_now = save_now
        self._why_unsaved = why_unsaved
        self._reads_under_way = reads_under_way
        self._wishes: deque[Wish] = deque()
        self._settling = False
        self._left = left

    def want(self, kind: RecordKind, n_bytes: int, give: Give) -> Wish:
        """Have `give` called with a place as soon as there is one; with None if there can't be one."""
        wish = Wish(kind, n_bytes, give)
        self.ask(wish)
        return wish

    def ask(self, wish: Wish) -> None:
        """The same for a wish that was made before."""
        self._wishes.append(wish)
        heard = False
        try:
            self.settle()
            heard = True
        finally:
            wish.dropped = wish.dropped or not heard  # whoever made it hears of the error, and will not wait

    def give_back(self, place: Place) -> None:
        """A place is free again."""
        self._pool.release(place)
        self.settle()

    @property
    def has_wishes(self) -> bool:
        return any(not wish.dropped for wish in self._wishes)

    def settle(self) -> None:
        """Fulfil wishes in order, as far as places go."""
        if self._settling:
            return  # what is given may wish for more: the loop below sees to it
        self._settling = True
        try:
            while self._wishes and self._fulfil(self._wishes[0]):
                pass
        finally:
            self._settling = False

    def _fulfil(self, wish: Wish) -> bool:
        """Answer the first wish; False if it must wait."""
        place: Place | None = None
        while not wish.dropped:
            place = self._pool.reserve(wish.kind, wish.n_bytes)
            if place is not None:
                break
            if self._make_room(wish.kind):
                continue
            if self._will_come():
                return False
            if not self._give_up():
                break
        self._wishes.popleft()
        if not wish.dropped:
            wish.give(place)
        return True

    def trim(self) -> int:
        """Above the high mark, let the least valuable go down to the low one; returns how many went."""
        excess = self._judge.policy.excess(self._pool.used_bytes, self._pool.limit_bytes)
        if not excess:
            return 0
        chosen = victims(self._residents(), excess, self._judge.half_life)
        return self._let_go(chosen, "trim")

    def shed(self) -> int:
        """Let go of all that is on SSD and not in use; returns how many did."""
        saved = [
            resident
            for resident in eviction_order(self._residents(), self._judge.half_life)
            if self._may_leave(entry := self._entry(resident)) and entry.saving is Saving.SAVED
        ]
        return self._let_go(saved, "shed")

    # ---- for what nobody waits for ----

    def lesser(self, newcomers: Sequence[Entry], *, pointed_at: bool) -> list[Resident]:
        """Who may go so that `newcomers` have places below the high mark, the least dear first: on SSD, and less dear than all of them."""
        sizes = self._pool.place_bytes
        excess = self._excess(sum(sizes[entry.row.kind] for entry in newcomers))
        if excess <= 0 or not newcomers:
            return []
        now = time.time()
        least = min(self._judge.newcomer(entry, now, pointed_at=pointed_at) for entry in newcomers)
        return victims(self._residents(), excess, self._judge.half_life, least)

    def spare_place(self, kind: RecordKind, n_bytes: int, leaving: list[Resident]) -> Place | None:
        """A place below the high mark that nobody waits for, if need be after some of `leaving` have gone; else None.

        Nobody goes whom it does not help: where they cannot make a place of `kind`, all stay.
        """
        while not self.has_wishes:
            excess = self._excess(self._pool.place_bytes[kind])
            place = self._pool.reserve(kind, n_bytes) if excess <= 0 else None
            if place is not None:
                return place
            leaving[:] = [resident for resident in leaving if self._is_lesser(resident)]
            if sum(resident.n_bytes for resident in leaving) < excess:
                break
            goes = leaving[:1] if self._pool.n_free(kind) else self._makes_way(kind, leaving)
            if not goes:
                break
            for resident in goes:
                leaving.remove(resident)
                self._leave(self._entry(resident), "preload")
        return None

    def _excess(self, n_bytes: int) -> int:
        """By how much `n_bytes` more would be above the high mark."""
        return math.ceil(self._pool.used_bytes + n_bytes - self._judge.policy.high * self._pool.limit_bytes)

    def _makes_way(self, kind: RecordKind, leaving: list[Resident]) -> list[Resident]:
        """Who of `leaving` must go for one place of `kind`, the last ones of chains first; nobody if all of them would not do."""
        kinds = (kind, "block" if kind == "checkpoint" else "checkpoint") if self._pool.may_borrow(kind) else (kind,)
        one = with_all_that_need_it(leaving, lambda resident: self._entry(resident).row.kind in kinds)
        return one or self._arena_for(kind, leaving)

    def _is_lesser(self, resident: Resident) -> bool:
        """Whether one who was chosen to go may still go: chosen was by value, but meanwhile a turn may have come by."""
        entry = self._index.in_ram.get(resident.key[1])
        return entry is not None and entry.saving is Saving.SAVED and not entry.holds and self._may_leave(entry)

    # ---- who goes ----

    def _residents(self) -> list[Resident]:
        now = time.time()
        return [self._judge.in_ram(entry, now) for entry in self._index.in_ram.values()]

    def _entry(self, resident: Resident) -> Entry:
        return self._index.in_ram[resident.key[1]]

    def _may_leave(self, entry: Entry) -> bool:
        """On SSD: at any time that nobody uses its bytes. Not on SSD: only if it isn't worth keeping and no turn needs it."""
        if entry.pins or entry.place is None:
            return False
        return entry.saving is Saving.SAVED or (entry.saving is not Saving.UNSAVED and not entry.holds)

    def _make_room(self, kind: RecordKind) -> bool:
        """Let records go so that a place for `kind` may be free; False if none can."""
        order = eviction_order(self._residents(), self._judge.half_life)
        chosen = with_all_that_need_it(
            order, lambda resident: self._entry(resident).row.kind == kind and self._may_leave(self._entry(resident))
        )
        return self._let_go(chosen or self._arena_for(kind, order), "room") > 0

    def _arena_for(self, kind: RecordKind, order: list[Resident]) -> list[Resident]:
        """The residents of the arena that can be emptied at the least loss: it then serves `kind`."""
        leaving = [resident for resident in order if self._may_leave(self._entry(resident))]

        def arena_of(resident: Resident) -> int:
            place = self._entry(resident).place
            serves = place is not None and place.arena >= 0 and self._pool.could_hold(place.arena, kind)
            return place.arena if place is not None and serves else -1

        return whole_arena(leaving, arena_of, self._pool.n_used)

    def _let_go(self, residents: list[Resident], reason: str) -> int:
        gone = [entry for resident in residents if self._may_leave(entry := self._entry(resident))]
        for entry in gone:
            self._leave(entry, reason)
        return len(gone)

    def _leave(self, entry: Entry, reason: str) -> None:
        self._free(entry)
        on_ssd = entry.saving is Saving.SAVED
        Move(entry.row.name, "ram", "ssd" if on_ssd else "", entry.row.n_bytes, 0.0, reason).log(self._events)
        if not on_ssd:
            self._index.remove(entry.row.name, Reason.EVICTED if entry.saving is Saving.PRIVATE else entry.why_spare)

    def _free(self, entry: Entry) -> None:
        began = time.perf_counter()
        self._pool.release(self._index.unsettle(entry))
        self._left.add(entry.row.n_bytes, time.perf_counter() - began)

    # ---- when nobody can go ----

    def _will_come(self) -> bool:
        """True if a place will come by itself: something is being saved, or in use for a moment."""
        saving = bool(self._index.unsaved) and self._save_now()
        return saving or self._reads_under_way() or any(entry.pins for entry in self._index.in_ram.values())

    def _give_up(self) -> bool:
        """Where saving is impossible: lose the least valuable record that no turn needs; False if there is none."""
        for resident in eviction_order(self._residents(), self._judge.half_life):
            entry = self._entry(resident)
            if entry.saving is Saving.UNSAVED and not entry.holds and not entry.pins:
                reason = self._why_unsaved()
                self._free(entry)
                self._index.remove(entry.row.name, reason)
                Move(entry.row.name, "ram", "", entry.row.n_bytes, 0.0, reason).log(self._events)
                self._events.emit("give_up", record=entry.row.name[:12], bytes=entry.row.n_bytes, reason=reason)
                return True
        return False
