"""Preloading: records come into RAM because somebody may want them soon. One conversation at a time, in the order of its chain.

Torch-free. Thread: the control thread; the transfers' readers read and verify, in the lane below everything urgent.

Nobody waits for a preload, so it takes no more than it is worth: places that are free below the high mark, and places of records
on SSD that are less dear than what comes. What the person points at is weighed as if it were used now; what is only likely, as it
is. Whoever leaves was less dear, so two conversations cannot push each other out in turns, and where no place is left the preload
ends. `stop` takes back what has not begun; what is being read at that moment still arrives, and then nothing more.

A record that came so is a hit when a turn uses it, and wasted when it leaves RAM before: `figures` counts both.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from localkv.events import EventLog
from localkv.figures import Preloads
from localkv.flows import Traffic
from localkv.placement.fetch import Fetch
from localkv.placement.index import Entry, Index
from localkv.placement.judge import Judge
from localkv.placement.plan import Piece
from localkv.placement.policy import Resident
from localkv.placement.room import Room
from localkv.tiers.host import Place
from localkv.tiers.transfer import Ticket

IN_FLIGHT = 4
"""Records asked for at once: as many as there are readers, so that a stop has little to take back."""

Ended = Callable[[], None]


@dataclass(slots=True)
class _Chase:
    """One conversation on its way."""

    waiting: deque[Piece]
    leaving: list[Resident]
    """Who may go for it, the least dear first."""
    held: list[Entry]
    ended: Ended
    flying: dict[str, Ticket | None]
    """On their way into RAM. None: somebody else's reading."""
    no_room: bool = False
    over: bool = False


class Preload:
    """What is brought before it is asked for, and what came of it."""

    def __init__(self, index: Index, room: Room, fetch: Fetch, judge: Judge, events: EventLog, traffic: Traffic) -> None:
        self._index = index
        self._room = room
        self._fetch = fetch
        self._judge = judge
        self._events = events
        self._chase: _Chase | None = None
        self._early: dict[str, Entry] = {}
        """Records that came and were not used yet, as far as is known."""
        self._traffic = traffic

    # ---- bringing ----

    def begin(self, pieces: Sequence[Piece], ended: Ended, *, pointed_at: bool) -> None:
        """Bring what of `pieces` is on SSD alone; `ended` is called once, when all is there, there is no room, or it was stopped."""
        self.stop()
        entries = self._index.entries
        known = [(piece, entries[piece.name]) for piece in pieces if piece.name in entries]
        missing = [(piece, entry) for piece, entry in known if piece.tier == "ssd" and entry.place is None]
        held = [entry for _, entry in known]
        for entry in held:  # one record of a conversation must not make room for another
            entry.holds += 1
        leaving = self._room.lesser([entry for _, entry in missing], pointed_at=pointed_at)
        self._chase = chase = _Chase(deque(piece for piece, _ in missing), leaving, held, ended, {})
        self._advance(chase)

    def stop(self) -> None:
        """Something more urgent came."""
        chase = self._chase
        if chase is None:
            return
        chase.waiting.clear()
        for ticket in list(chase.flying.values()):
            if ticket is not None and ticket.cancel():
                self._count(cancelled=self._traffic.preloads.cancelled + 1)
        self._end(chase)

    def _advance(self, chase: _Chase) -> None:
        while chase.waiting and len(chase.flying) < IN_FLIGHT and not chase.over:
            piece = chase.waiting[0]
            entry = self._index.entries.get(piece.name)
            if entry is None or entry.place is not None or self._joins(chase, piece):
                chase.waiting.popleft()
                continue
            place = self._room.spare_place(piece.kind, piece.n_bytes, chase.leaving)
            if place is None:
                self._events.emit("preload.no_room", records=len(chase.waiting), bytes=sum(p.n_bytes for p in chase.waiting))
                chase.waiting.clear()
                break
            chase.waiting.popleft()
            self._send_for(chase, piece, entry, place)
        if not chase.waiting and not chase.flying:
            self._end(chase)

    def _joins(self, chase: _Chase, piece: Piece) -> bool:
        """Whether it is on its way already; if nothing comes of that, because an earlier preload was stopped, it is sent for."""

        def landed(_: bool) -> None:
            chase.flying.pop(piece.name, None)
            if not chase.over:
                chase.waiting.appendleft(piece)
                self._advance(chase)

        joins = self._fetch.join(piece.name, landed)
        if joins:
            chase.flying[piece.name] = None
        return joins

    def _send_for(self, chase: _Chase, piece: Piece, entry: Entry, place: Place) -> None:
        self._settle()

        def landed(is_used: bool) -> None:
            chase.flying.pop(piece.name, None)
            if entry.place is place:
                self._early[piece.name], entry.is_early = entry, True
                figures = self._traffic.preloads
                self._count(loaded=figures.loaded + 1, loaded_bytes=figures.loaded_bytes + entry.row.n_bytes)
                if is_used:  # a turn waited for it
                    self.used([piece.name])
            if not chase.over:
                self._advance(chase)

        chase.flying[piece.name] = self._fetch.read_early(entry, piece, place, landed)

    def _end(self, chase: _Chase) -> None:
        if chase.over:
            return
        chase.over = True
        if self._chase is chase:
            self._chase = None
        for entry in chase.held:
            entry.holds -= 1
        chase.ended()

    # ---- what came of it ----

    def used(self, names: Sequence[str]) -> None:
        """A turn uses these records."""
        self._settle()
        figures = self._traffic.preloads
        for name in names:
            if (early := self._early.pop(name, None)) is not None:
                early.is_early, n_bytes = False, early.row.n_bytes
                figures = msgspec.structs.replace(figures, hits=figures.hits + 1, hit_bytes=figures.hit_bytes + n_bytes)
        self._traffic.preloads = figures

    @property
    def figures(self) -> Preloads:
        """Hits, waste and what still waits, as of now."""
        self._settle()
        return self._traffic.preloads

    def close(self) -> None:
        """All leave RAM now, used or not."""
        for entry in self._early.values():
            entry.is_early = False
        self._settle()

    def _settle(self) -> None:
        """What left RAM without having been used was brought for nothing."""
        for name in [name for name, entry in self._early.items() if not entry.is_early]:
            figures, n_bytes = self._traffic.preloads, self._early.pop(name).row.n_bytes
            self._count(wasted=figures.wasted + 1, wasted_bytes=figures.wasted_bytes + n_bytes)

    def _count(self, **changes: int) -> None:
        self._traffic.preloads = msgspec.structs.replace(self._traffic.preloads, **changes)
