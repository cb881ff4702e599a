"""The keeper: the one writer of what lies where. Plans, holds, brings records to the engine and takes new ones in.

Torch-free; payloads are memoryviews. Public methods are called by the engine thread; every change is made on the control
thread, to which reader and writer threads report. So nothing here needs a lock, and nothing but the engine's own wait waits
for a chunk of prefill.

Bytes move in two phases: a place is reserved, filled, and then committed to the index or given back. A record that turns out
bad while it is brought is struck out (row, file, index) before the error reaches the engine, which plans again without it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from localkv.errors import BadRecord, LocalKVError, StoreError
from localkv.events import EventLog, Reason
from localkv.kv.record import Record, RecordKind, root_name
from localkv.messages import TierUse, TokenLog
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.mailbox import Mailbox
from localkv.placement.plan import Ground, Piece, Plan, Question, SlotView, make_plan
from localkv.placement.room import Room, Wish
from localkv.placement.saver import Saver, SsdLimits
from localkv.tiers.catalogue import row_of
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool, Place
from localkv.tiers.lineage import Lineage, no_longer_needed
from localkv.tiers.transfer import Lane, Outcome, Transfers
from localkv.tiers.upkeep import Freed


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


@dataclass(slots=True)
class _Errand:
    """One `bring`: what is awaited and what is pinned for it. Control thread."""

    arrivals: list[tuple[Piece, "Future[memoryview]"]] = field(default_factory=list)
    pinned: set[str] = field(default_factory=set)
    wishes: list[Wish] = field(default_factory=list)
    over: bool = False


class Keeper:
    """Placement of the records of one identity."""

    def __init__(
        self, ground: Ground, pool: HostPool, store: Store | None, transfers: Transfers, limits: SsdLimits, events: EventLog
    ) -> None:
        self.ground = ground
        self._pool = pool
        self._store = store
        self._transfers = transfers
        self._limits = limits
        self._events = events
        self._index = Index(root_name(ground.identity))
        if store is not None:
            self._index.load(store.rows())
            self._index.tombstones.update(store.tombstones())
        self._box = Mailbox("control", self._report)
        self.saver = Saver(store, self._index, transfers, limits, events, self._box.tell)
        self.room = Room(pool, self._index, events, self._save_now)
        self.saver.settled = self._after_save
        self.saver.clear_up()
        self._private = False
        """The turn under way is a private conversation's. Engine thread."""
        self.read_records = 0
        self.read_bytes = 0

    # ---- the engine's side ----

    def plan(self, question: Question, slot: SlotView) -> Plan:
        """What `question` needs, as things are now."""
        private = self._private
        return self._box.ask(lambda: self._plan(question, slot, private=private))

    @contextmanager
    def hold(self, plan: Plan) -> Iterator[None]:
        """While this is open, nothing in `plan` leaves a tier that it could not come back from."""
        names = [piece.name for piece in plan.pieces]
        held = self._box.ask(lambda: self._hold(names))
        try:
            yield
        finally:
            self._box.tell(lambda: self._let_go(held))

    @contextmanager
    def quiet(self, *, private: bool = False) -> Iterator[None]:
        """While this is open no save is begun, unless one has waited too long: saving takes 30 % of decoding's speed.

        `private`: what is committed meanwhile is never written.
        """
        self._private = private
        self._transfers.pause_saves()
        try:
            yield
        finally:
            self._private = False
            self._transfers.resume_saves()

    def bring(self, plan: Plan) -> Iterator[tuple[Piece, memoryview]]:
        """Every piece to bring with its verified payload, in order. The view is valid until the next is asked for.

        Raises BadRecord for a piece that can't be used; it is struck out by then.
        """
        errand = self._box.ask(lambda: self._begin(plan))
        try:
            for piece, arrival in errand.arrivals:
                yield piece, arrival.result()
                if errand.wishes:
                    self._box.tell(partial(self._unpin, errand, piece.name))
        finally:
            self._box.tell(lambda: self._finish(errand))

    @contextmanager
    def reserve(self, kind: RecordKind, n_bytes: int) -> Iterator[Reservation]:
        """A place in RAM for a new record; waits for one if it must."""
        awaited: Future[Place | None] = Future()
        self._box.tell(lambda: _ignore(self.room.want(kind, n_bytes, awaited.set_result)))
        place = awaited.result()
        if place is None:
            self._events.emit("no_room", kind=kind, bytes=n_bytes, reason=Reason.NO_ROOM)
            yield Reservation(None, lambda _record, _replaces, _spare: None)
            return
        committed: list[bool] = []

        def commit(record: Record, replaces: str, spare: bool) -> None:
            committed.append(True)
            saving = Saving.PRIVATE if self._private else Saving.SPARE if spare else Saving.UNSAVED
            self._box.tell(lambda: self._enter(record, place, replaces, saving))

        try:
            yield Reservation(place.view(n_bytes), commit)
        finally:
            if not committed:
                self._box.tell(lambda: self.room.give_back(place))

    def shed(self) -> int:
        """Let every record that is on SSD and not in use leave RAM; returns how many went."""
        return self._box.ask(self.room.shed)

    def forget(self, logs: Sequence[TokenLog], names: Sequence[tuple[str, str]], deadline_seconds: float) -> Freed:
        """Let the records of `logs` and those named leave RAM and SSD, other identities' too. Raises StoreError. Not during a turn."""
        while pinned := self._box.ask(lambda: self._forget(logs, names)):
            if not self._transfers.drain(deadline_seconds):
                raise StoreError(f"{pinned} records are still being saved after {deadline_seconds:.0f} s; try again")
        store = self._store
        if store is None:
            return Freed()
        ended: Future[Outcome[Freed]] = Future()
        self._transfers.submit(Lane.DELETE, 0, lambda: store.forget(logs, names), ended.set_result)
        outcome = ended.result()
        if outcome.value is None:
            raise outcome.error or StoreError("nothing was removed")
        return outcome.value

    def flush(self, deadline_seconds: float) -> bool:
        """Save everything now; True if nothing is left unsaved when this returns."""
        until = time.monotonic() + deadline_seconds
        self._box.ask(self.saver.retry)
        while time.monotonic() < until:
            self._box.ask(self.saver.start)
            self._transfers.drain(max(0.0, until - time.monotonic()))
            if self._box.ask(lambda: self.saver.idle):
                break
        return self._box.ask(lambda: not self.saver.waiting())

    def close(self) -> None:
        """End the control thread. Unsaved records are lost: `flush` first."""
        self._box.close()
        self._transfers.close()
        if self._store is not None:
            self._store.close()

    def counts(self) -> "Counts":
        """Numbers for the panel, as of now."""
        return self._box.ask(self._count)

    def check(self) -> None:
        """Assert the invariants of index and pool."""
        self._box.ask(self._index.check)
        self._pool.check()

    # ---- the control thread's side ----

    def _plan(self, question: Question, slot: SlotView, *, private: bool) -> Plan:
        plan = make_plan(question, slot, self._index, self.ground)
        if not private:  # the same tokens in a conversation that is not private: nothing is given away by saving them
            self._index.publish([*plan.names, *(piece.name for piece in plan.pieces)])
        return plan

    def _hold(self, names: list[str]) -> list[str]:
        now, held = time.time(), []
        for name in names:
            entry = self._index.entries.get(name)
            if entry is not None:
                entry.holds += 1
                entry.used = now
                held.append(name)
        self.saver.touch([name for name in held if self._index.entries[name].saving is Saving.SAVED], now)
        return held

    def _let_go(self, names: list[str]) -> None:
        for name in names:
            entry = self._index.entries.get(name)
            if entry is not None and entry.holds:
                entry.holds -= 1
        self.room.settle()

    def _begin(self, plan: Plan) -> _Errand:
        errand = _Errand()
        for piece in plan.to_bring:
            arrival: Future[memoryview] = Future()
            errand.arrivals.append((piece, arrival))
            entry = self._index.entries.get(piece.name)
            if entry is None:
                arrival.set_exception(BadRecord(piece.name, Reason.EVICTED, "it left while it was waited for"))
            elif entry.place is not None:
                entry.pins += 1
                errand.pinned.add(piece.name)
                arrival.set_result(entry.place.view(piece.n_bytes))
            else:
                self._ask_for(errand, piece, entry, arrival)
        return errand

    def _ask_for(self, errand: _Errand, piece: Piece, entry: Entry, arrival: "Future[memoryview]") -> None:
        def give(place: Place | None) -> None:
            if place is None:
                arrival.set_exception(BadRecord(piece.name, Reason.NO_ROOM, "the RAM pool has no place for it"))
            else:
                self._read(errand, piece, entry, place, arrival)

        errand.wishes.append(self.room.want(piece.kind, piece.n_bytes, give))

    def _read(self, errand: _Errand, piece: Piece, entry: Entry, place: Place, arrival: "Future[memoryview]") -> None:
        store, row, view = self._store, entry.row, place.view(piece.n_bytes)
        assert store is not None, "a record on SSD needs a store"

        def done(outcome: Outcome[None]) -> None:
            self._box.tell(lambda: self._arrived(errand, piece, place, outcome, arrival))

        self._transfers.submit(Lane.URGENT, piece.n_bytes, lambda: store.read(row, piece.ids, view), done)

    def _arrived(
        self, errand: _Errand, piece: Piece, place: Place, outcome: Outcome[None], arrival: "Future[memoryview]"
    ) -> None:
        entry = self._index.entries.get(piece.name)
        if outcome.error is not None or entry is None or entry.place is not None:
            self.room.give_back(place)
            error = outcome.error or BadRecord(piece.name, Reason.EVICTED, "it left while it was read")
            if isinstance(error, BadRecord) and entry is not None:
                self._strike(error)
            arrival.set_exception(error)
            return
        entry.place, entry.ids, entry.came_from = place, piece.ids, "ssd"
        self.read_records += 1
        self.read_bytes += piece.n_bytes
        self._events.emit(
            "move", record=piece.name[:12], source="ssd", target="ram", bytes=piece.n_bytes,
            ms=round(outcome.seconds * 1000, 1), reason="restore",
        )  # fmt: skip
        if not errand.over:
            entry.pins += 1
            errand.pinned.add(piece.name)
        arrival.set_result(place.view(piece.n_bytes))

    def _forget(self, logs: Sequence[TokenLog], names: Sequence[tuple[str, str]]) -> int:
        """Drop what is to be forgotten from the index and from RAM; how many are in use and have to be asked for again."""
        lineage = Lineage.of(self.ground.identity, [entry.row for entry in self._index.entries.values()])
        gone = {name for identity, name in names if identity == self.ground.identity and name in lineage.rows}
        for log in logs:
            gone |= no_longer_needed(lineage, log.ids, log.shared)
        entries = [self._index.entries[name] for name in gone]
        if pinned := sum(1 for entry in entries if entry.pins):
            for entry in entries:  # nothing of it that is not being written already is written any more
                entry.saving = Saving.SPARE if entry.saving is Saving.UNSAVED and not entry.pins else entry.saving
            return pinned
        for entry in entries:
            self._index.remove(entry.row.name, Reason.EVICTED)
            if entry.place is not None:
                self._pool.release(entry.place)
        self.room.settle()
        return 0

    def _strike(self, error: BadRecord) -> None:
        self._index.remove(error.name, error.reason)
        self._events.emit("strike", record=error.name[:12], reason=error.reason, detail=error.detail)
        self.saver.strike(error.name, error.reason)

    def _unpin(self, errand: _Errand, name: str) -> None:
        if name in errand.pinned:
            errand.pinned.remove(name)
            self._index.entries[name].pins -= 1
            self.room.settle()

    def _finish(self, errand: _Errand) -> None:
        errand.over = True
        for wish in errand.wishes:
            wish.dropped = True
        for name in list(errand.pinned):
            self._unpin(errand, name)

    def _enter(self, record: Record, place: Place, replaces: str, saving: Saving) -> None:
        known = self._index.entries.get(record.name)
        if known is not None:
            known.used = time.time()
            if known.place is not None:
                self.room.give_back(place)
            else:
                known.place, known.ids = place, record.ids
            if saving is Saving.UNSAVED and known.saving is not Saving.SAVED:
                known.saving = saving  # it was spare or private, and is wanted now
                self.saver.start()
            return
        replaces = self._supersede(replaces)
        entry = Entry(row_of(record, 0, time.time()), record.ids, saving, place, used=time.time(), replaces=replaces)
        self._index.add(entry)
        self.saver.start()

    def _supersede(self, name: str) -> str:
        """The record that goes from SSD when the successor of `name` is saved.

        A predecessor that was never saved need not be any more; what it would have replaced is replaced instead.
        """
        entry = self._index.entries.get(name)
        if entry is None or entry.saving is not Saving.UNSAVED or entry.pins:
            return name
        entry.saving = Saving.SPARE
        return entry.replaces

    def _save_now(self) -> bool:
        """Somebody waits for the room that saving makes, so it must not wait for the end of the turn."""
        self._transfers.resume_saves()
        return self.saver.start()

    def _after_save(self) -> None:
        self.room.settle()
        self.saver.start()

    def _count(self) -> "Counts":
        in_ram = [entry for entry in self._index.entries.values() if entry.place is not None]
        saved = [entry for entry in self._index.entries.values() if entry.saving is Saving.SAVED]
        ram = TierUse(
            used_bytes=self._pool.used_bytes, limit_bytes=self._pool.limit_bytes, records=len(in_ram),
            held=sum(1 for entry in in_ram if entry.holds or entry.pins),
            swaps_in=self.read_records, bytes_in=self.read_bytes,
            swaps_out=self.room.evicted, bytes_out=self.room.evicted_bytes,
        )  # fmt: skip
        ssd = TierUse(
            used_bytes=sum(entry.row.file_bytes for entry in saved), limit_bytes=self._limits.budget_bytes, records=len(saved),
            held=sum(1 for entry in saved if entry.holds),
            swaps_in=self.saver.saved_records, bytes_in=self.saver.saved_bytes,
            swaps_out=self.saver.evicted_records, bytes_out=self.saver.evicted_bytes,
        )  # fmt: skip
        return Counts(ram, ssd, len(self.saver.waiting()), self.saver.trouble)

    def _report(self, error: BaseException) -> None:
        kind = "control.failed" if isinstance(error, LocalKVError) else "control.bug"
        self._events.emit(kind, error=type(error).__name__, message=str(error))


@dataclass(frozen=True, slots=True)
class Counts:
    """What is where, in numbers."""

    ram: TierUse
    ssd: TierUse
    unsaved: int
    trouble: str


def _ignore(_: object) -> None:
    """A mailbox message returns nothing."""
