"""Fetching: the records of a plan, in its order, from SSD into RAM where they are not there already.

Torch-free. Thread: the control thread; the transfers' readers read and verify. A record is read once, however many wait for it.

Pieces are admitted in order: one gets a place, or is pinned in the place it has, only after all before it did. So whoever waits
for a place waits for nothing that comes later, and a pool far smaller than the plan still lets it through, piece by piece.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from localkv.errors import BadRecord, Cancelled, LocalKVError
from localkv.events import EventLog, Reason
from localkv.flows import Flow
from localkv.placement.index import Entry, Index
from localkv.placement.mailbox import Work
from localkv.placement.plan import Piece
from localkv.placement.room import Room, Wish
from localkv.tiers.disk import Store
from localkv.tiers.host import Place
from localkv.tiers.moves import Move
from localkv.tiers.transfer import Lane, Outcome, Ticket, Transfers

Payload = memoryview | range
"""Where the bytes of a record are: in host memory, or which bytes of the pool on the device."""

Arrival = tuple[Piece, "Future[Payload]"]

Landed = Callable[[bool], None]
"""Told when a reading is over, however it ended, and whether a turn waited for it."""


@dataclass(slots=True, eq=False)
class Errand:
    """One bringing of a plan: what is awaited, and what is pinned for it."""

    arrivals: Sequence[Arrival]
    admitted: int = 0
    """How many of them have a place, or failed."""
    wish: Wish | None = None
    pinned: dict[str, Entry] = field(default_factory=dict)
    is_advancing: bool = False
    reads: bool = False
    """Something of it must be read: places are wanted back as soon as they are used."""
    over: bool = False
    began: float = field(default_factory=time.monotonic)
    read_bytes: int = 0
    read_until: float = 0.0


@dataclass(slots=True, eq=False)
class _Reading:
    """A file on its way into a place."""

    entry: Entry
    place: Place
    waiters: list[tuple[Errand, Piece, "Future[Payload]"]]
    early: bool = False
    """It was begun before anybody asked for it."""
    landed: list[Landed] = field(default_factory=list)


class Fetch:
    """All errands and reads under way. `strike` is told of records that turned out bad; `arrived` counts the good ones."""

    def __init__(
        self, index: Index, room: Room, store: Store | None, transfers: Transfers, events: EventLog,
        tell: Callable[[Work], None], strike: Callable[[BadRecord], None],
        arrived: Flow,
    ) -> None:  # fmt: skip
        self._index = index
        self._room = room
        self._store = store
        self._transfers = transfers
        self._events = events
        self._tell = tell
        self._strike = strike
        self._readings: dict[str, _Reading] = {}
        self._passed = arrived

    @property
    def is_reading(self) -> bool:
        return bool(self._readings)

    def begin(self, pieces: Sequence[Piece]) -> Errand:
        """Set out for `pieces`."""
        errand, whole = Errand([(piece, Future()) for piece in pieces]), False
        try:
            self._advance(errand)
            whole = True
        finally:
            if not whole:  # nobody has it, so nobody will end it
                self.end(errand)
        return errand

    def unpin(self, errand: Errand, name: str) -> None:
        """The errand's owner has used this piece."""
        entry = errand.pinned.pop(name, None)
        if entry is not None:
            entry.pins -= 1
            self._room.settle()

    def end(self, errand: Errand) -> None:
        """The owner wants nothing more. What is being read still comes into RAM."""
        errand.over = True
        if errand.wish is not None:
            errand.wish.dropped = True
        for name in list(errand.pinned):
            self.unpin(errand, name)
        self._room.settle()

    # ---- in order ----

    def _advance(self, errand: Errand) -> None:
        if errand.is_advancing:
            return  # the loop below is at work already
        errand.is_advancing = True
        try:
            while not errand.over and errand.wish is None and errand.admitted < len(errand.arrivals):
                self._admit(errand, *errand.arrivals[errand.admitted])
        finally:
            errand.is_advancing = False

    def _admit(self, errand: Errand, piece: Piece, arrival: "Future[Payload]") -> None:
        entry = self._index.entries.get(piece.name)
        if entry is None:
            self._fail(errand, arrival, BadRecord(piece.name, Reason.EVICTED, "it left while it was waited for"))
        elif piece.tier == "vram" and entry.berth is not None:
            errand.admitted += 1
            arrival.set_result(entry.berth.view(piece.n_bytes))  # it is held, so it stays
        elif entry.place is not None:
            errand.admitted += 1
            self._hand_over(errand, entry, piece, arrival)
        elif piece.name in self._readings:
            errand.admitted, errand.reads = errand.admitted + 1, True
            self._readings[piece.name].waiters.append((errand, piece, arrival))
        else:
            self._ask_for_place(errand, piece, arrival)

    def _fail(self, errand: Errand, arrival: "Future[Payload]", error: BadRecord) -> None:
        """Nothing after a piece that can't come is of use."""
        errand.admitted = len(errand.arrivals)
        arrival.set_exception(error)

    def _hand_over(self, errand: Errand, entry: Entry, piece: Piece, arrival: "Future[Payload]") -> None:
        assert entry.place is not None
        if not errand.over and piece.name not in errand.pinned:
            entry.pins += 1
            errand.pinned[piece.name] = entry
        arrival.set_result(entry.place.view(piece.n_bytes))

    def _ask_for_place(self, errand: Errand, piece: Piece, arrival: "Future[Payload]") -> None:
        errand.reads = True

        def give(place: Place | None) -> None:
            errand.wish = None
            if place is None:
                self._fail(errand, arrival, BadRecord(piece.name, Reason.NO_ROOM, "the RAM pool has no place for it"))
            else:
                self._take_place(errand, piece, place)
            self._advance(errand)

        errand.wish = wish = Wish(piece.kind, piece.n_bytes, give)
        self._room.ask(wish)

    def _take_place(self, errand: Errand, piece: Piece, place: Place) -> None:
        """A place came for `piece`; meanwhile its record may have come or gone, and then the place is not needed."""
        entry = self._index.entries.get(piece.name)
        if entry is None or entry.place is not None or piece.name in self._readings:
            self._room.give_back(place)
            return  # advancing looks at it again
        errand.admitted += 1
        arrival = errand.arrivals[errand.admitted - 1][1]
        self._readings[piece.name] = _Reading(entry, place, [(errand, piece, arrival)])
        self._read(entry, piece, place)

    # ---- reading ----

    def join(self, name: str, landed: Landed) -> bool:
        """Have `landed` called when the reading of that name is over; False if none is under way."""
        reading = self._readings.get(name)
        if reading is not None:
            reading.landed.append(landed)
        return reading is not None

    def read_early(self, entry: Entry, piece: Piece, place: Place, landed: Landed) -> Ticket:
        """Read a record that nobody waits for yet, when nothing urgent is read. Whoever comes to need it waits for this reading."""
        assert entry.place is None, "a record has one place"
        assert piece.name not in self._readings, "a record is read once"
        self._readings[piece.name] = _Reading(entry, place, [], True, [landed])
        return self._read(entry, piece, place, Lane.PRELOAD)

    def _read(self, entry: Entry, piece: Piece, place: Place, lane: Lane = Lane.URGENT) -> Ticket:
        store, row, view = self._store, entry.row, place.view(piece.n_bytes)
        assert store is not None, "a record on SSD needs a store"
        entry.is_read = True

        def done(outcome: Outcome[None]) -> None:
            self._tell(lambda: self._arrived(piece, outcome))

        return self._transfers.submit(lane, piece.n_bytes, lambda: store.read(row, piece.ids, view), done)

    def _arrived(self, piece: Piece, outcome: Outcome[None]) -> None:
        reading = self._readings.pop(piece.name)
        entry, error = reading.entry, outcome.error
        entry.is_read = False
        known = self._index.is_known(entry)
        if known and entry.place is not None:
            self._find_made(reading, error)
        elif known and isinstance(error, Cancelled) and reading.waiters:
            # It was taken back as a preload, and meanwhile somebody needs it.
            self._readings[piece.name] = reading
            self._read(entry, piece, reading.place)
            return
        elif known and error is None:
            self._deliver(reading, piece, outcome)
        else:
            self._refuse(reading, error or BadRecord(piece.name, Reason.EVICTED, "it left while it was read"))
        for landed in reading.landed:
            landed(bool(reading.waiters))

    def _find_made(self, reading: _Reading, error: LocalKVError | None) -> None:
        """A turn that did not wait made the same record meanwhile: RAM has its bytes, whatever became of the file."""
        for errand, wanted, arrival in reading.waiters:
            self._hand_over(errand, reading.entry, wanted, arrival)
        if error is not None and not isinstance(error, Cancelled):
            self._strike(_bad(reading.entry, error))
        self._room.give_back(reading.place)

    def _deliver(self, reading: _Reading, piece: Piece, outcome: Outcome[None]) -> None:
        entry = reading.entry
        self._index.settle(entry, reading.place, piece.ids)
        self._passed.add(piece.n_bytes, outcome.seconds)
        reason = "preload" if reading.early else "restore"
        Move(piece.name, "ssd", "ram", piece.n_bytes, outcome.seconds, reason).log(self._events)
        for errand, wanted, arrival in reading.waiters:
            errand.read_bytes += piece.n_bytes
            errand.read_until = time.monotonic()
            self._hand_over(errand, entry, wanted, arrival)
        self._room.settle()

    def _refuse(self, reading: _Reading, error: LocalKVError) -> None:
        """Whatever went wrong, it is this record that can't be used; the turn goes on without it."""
        self._room.give_back(reading.place)
        bad = _bad(reading.entry, error)
        if self._index.is_known(reading.entry) and not isinstance(error, Cancelled):
            self._strike(bad)
        for _, _, arrival in reading.waiters:
            arrival.set_exception(bad)


def _bad(entry: Entry, error: LocalKVError) -> BadRecord:
    return error if isinstance(error, BadRecord) else BadRecord(entry.row.name, Reason.READ_ERROR, str(error))
