"""The keeper: the one writer of what lies where. Plans, holds, brings records to the engine and takes new ones in.

Torch-free; payloads are memoryviews. Public methods are called by the engine thread; every change is made on the control
thread, to which reader and writer threads report. So nothing here needs a lock, and nothing but the engine's own wait waits
for a chunk of prefill.

Bytes move in two phases: a place is reserved, filled, and then committed to the index or given back. A record that turns out
bad while it is brought is struck out (row, file, index) before the error reaches the engine, which plans again without it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

from localkv.errors import BadRecord, LocalKVError, StoreError
from localkv.events import EventLog, Reason
from localkv.flows import Traffic
from localkv.kv.record import Head, Record, RecordKind, root_name
from localkv.messages import TokenLog
from localkv.placement.berths import Berths
from localkv.placement.counts import Counts, Parts
from localkv.placement.fetch import Errand, Fetch, Payload
from localkv.placement.index import Entry, Saving, open_index
from localkv.placement.intake import Intake
from localkv.placement.jobs import SsdLimits
from localkv.placement.judge import Judge
from localkv.placement.mailbox import Mailbox
from localkv.placement.plan import Ground, Piece, Plan, Question, SlotView, make_plan
from localkv.placement.policy import Policy
from localkv.placement.preload import Preload
from localkv.placement.rates import Forecast, Rates, predict, predict_resume
from localkv.placement.room import Reservation, Room
from localkv.placement.saver import Saver
from localkv.tiers.device import DevicePool
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool, Place
from localkv.tiers.lineage import Lineage, no_longer_needed
from localkv.tiers.moves import FORGOTTEN, Move, Where
from localkv.tiers.transfer import Lane, Outcome, Transfers
from localkv.tiers.upkeep import Freed

CLEAR_UP_SECONDS = 5.0
"""So long after the start, or at a flush, what an earlier engine left half written is deleted."""


class Keeper:
    """Placement of the records of one identity."""

    def __init__(
        self, ground: Ground, pool: HostPool, store: Store | None, transfers: Transfers, limits: SsdLimits, events: EventLog,
        policy: Policy | None = None, vram: DevicePool | None = None, traffic: Traffic | None = None,
    ) -> None:  # fmt: skip
        """`traffic` goes on counting what earlier keepers of this engine counted."""
        self.ground = ground
        self._pool = pool
        self._store = store
        self._transfers = transfers
        self._limits = limits
        self._events = events
        self._traffic = traffic = traffic or Traffic()
        self._index = open_index(root_name(ground.identity), store)
        self._box = box = Mailbox("control", self._report)
        self._judge = judge = Judge(ground.layout, ground.identity, policy or Policy())
        self._quiet = False
        self._private = False
        """The turn under way is a private conversation's. Engine thread."""
        self.saver = Saver(
            store, self._index, judge, transfers, limits, events, box.tell, box.tell_later, self._after_save, traffic
        )
        self.room = Room(
            pool, self._index, judge, events, self._save_now, lambda: self.saver.refusal, lambda: self._fetch.is_reading,
            traffic.ram_out,
        )  # fmt: skip
        self.berths = Berths(vram or DevicePool(0, 0, 0), self._index, judge, events, box, traffic)
        self._fetch = Fetch(self._index, self.room, store, transfers, events, box.tell, self.saver.strike, traffic.ram_in)
        self._preload = Preload(self._index, self.room, self._fetch, judge, events, traffic)
        self._intake = Intake(self._index, judge, self.room, self.saver, events)
        box.tell_later(CLEAR_UP_SECONDS, self.saver.clear_up)  # not while a person waits for the first answer

    @property
    def transfers(self) -> Transfers:
        """The threads that move its records, for measurements."""
        return self._transfers

    # ---- the engine's side ----

    def plan(self, question: Question, slot: SlotView) -> Plan:
        """What `question` needs, as things are now."""
        private = self._private
        return self._box.ask(lambda: self._plan(question, slot, private=private))

    def look(self, question: Question, slot: SlotView) -> Plan:
        """The same plan, of which nothing follows: nobody has asked `question` yet."""
        return self._box.ask(lambda: make_plan(question, slot, self._index, self.ground))

    def preload(self, question: Question, ended: Callable[[], None], *, pointed_at: bool) -> None:
        """Bring what `question` would need from SSD into RAM, as far as it is worth the room.

        `ended` is called once, on the control thread. `pointed_at`: the person is about to ask, for all one can see.
        """

        def begin() -> None:
            plan = make_plan(question, SlotView(), self._index, self.ground)
            self._preload.begin(plan.pieces, ended, pointed_at=pointed_at)

        self._box.tell(begin)

    def stop_preload(self) -> None:
        """Something more urgent begins: nothing is read ahead from now on."""
        self._box.tell(self._preload.stop)

    def opened(self, plan: Plan) -> None:
        """The records of `plan` are those of the conversation in the slot now, though it was not asked."""
        names = {*plan.names, *(piece.name for piece in plan.pieces)}
        self._box.tell(lambda: self._judge.show(names))

    @contextmanager
    def hold(self, plan: Plan, *, asked: bool = True) -> Iterator[None]:
        """While this is open, nothing in `plan` leaves a tier that it could not come back from.

        `asked`: a turn uses the records. Raises BadRecord if something of it has left since it was planned.
        """
        held = self._box.ask(lambda: self._hold(plan, asked))
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
        self._box.tell(lambda: self._set_quiet(True))
        try:
            yield
        finally:
            self._private = False
            self._box.tell(lambda: self._set_quiet(False))

    def bring(self, plan: Plan, ahead: int = 0, reason: str = "restore") -> Iterator[tuple[Piece, Payload]]:
        """Every piece to bring with its verified payload, in order. When the next one is asked for, it is in the slot.

        Host memory is valid until `ahead` pieces more and then the next are asked for, and no longer than until the last has been
        used: when there is nothing more to ask for, all of it is given back. Bytes on the device are valid while the plan is held.
        Raises BadRecord for a piece that can't be used; it is struck out by then.
        """
        errand, lent = self._box.ask(lambda: self._fetch.begin(plan.to_bring)), deque[str]()
        try:
            for piece, arrival in errand.arrivals:
                payload, began = arrival.result(), time.perf_counter()
                yield piece, payload
                source: Where = "vram" if isinstance(payload, range) else "ram"
                move = Move(piece.name, source, "slot", piece.n_bytes, time.perf_counter() - began, reason)
                self._box.tell(partial(move.log, self._events))  # the engine's thread waits for no log
                lent.append(piece.name)
                if errand.reads and len(lent) > ahead:
                    self._box.tell(partial(self._fetch.unpin, errand, lent.popleft()))
        finally:
            self._box.tell(lambda: self._finish(errand))

    @contextmanager
    def reserve(self, kind: RecordKind, n_bytes: int) -> Iterator[Reservation]:
        """A place in RAM for a new record; waits for one if it must."""
        awaited: Future[Place | None] = Future()
        self._box.ask(lambda: self.room.want(kind, n_bytes, awaited.set_result))
        place, began = awaited.result(), time.perf_counter()
        if place is None:
            self._events.emit("no_room", kind=kind, bytes=n_bytes, reason=Reason.NO_ROOM)
            yield Reservation(None, lambda _record, _replaces, _spare: None)
            return
        committed: list[bool] = []

        def commit(record: Record, replaces: str, spare: bool) -> None:
            committed.append(True)
            saving = Saving.PRIVATE if self._private else Saving.SPARE if spare else Saving.UNSAVED
            seconds = time.perf_counter() - began
            self._box.tell(lambda: self._intake.enter(record, place, replaces, saving, seconds))

        try:
            yield Reservation(place.view(n_bytes), commit)
        finally:
            if not committed:
                self._box.tell(lambda: self.room.give_back(place))

    def keep(self, names: Sequence[str], *, resident: bool = True) -> None:
        """The person wants the chains that end in `names` resident, or no longer: they go after all others."""
        self._box.tell(lambda: self._keep(names, resident))

    def learn(self, change: Callable[[Rates], Rates]) -> None:
        """Take a measurement of this machine into the moving averages."""
        self._box.tell(lambda: self._learn(change(self._judge.rates)))

    def forecast(self, plan: Plan) -> Forecast:
        """How long `plan` and the rest of its prompt will take, by the averages so far."""
        return predict(plan, self._box.ask(lambda: self._judge.rates))

    def resumes(self, heads: Sequence[Head]) -> dict[str, Forecast]:
        """By name of head: what coming back to its conversation will take. Some 30 µs per 32k tokens of each."""
        index, ground, judge = self._index, self.ground, self._judge
        return self._box.ask(lambda: {head.name: predict_resume(head, index, ground, judge.rates) for head in heads})

    def shed(self) -> int:
        """Let every record that is on SSD and not in use leave RAM; returns how many went."""
        return self._box.ask(self.room.shed)

    def relieve(self) -> int:
        """The same, and the memory goes back to the system: it has none. Returns the bytes that went back."""
        self._box.ask(self.room.shed)
        n_bytes = self._pool.give_back()
        self._events.emit("memory.relief", bytes=n_bytes)
        return n_bytes

    def forget(self, logs: Sequence[TokenLog], names: Sequence[tuple[str, str]], deadline_seconds: float) -> Freed:
        """Let the records of `logs` and those named leave RAM and SSD, other identities' too. Raises StoreError. Not during a turn."""
        until = time.monotonic() + deadline_seconds
        while pinned := self._box.ask(lambda: self._forget(logs, names)):
            if not self._transfers.drain(deadline_seconds) or time.monotonic() > until:
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
        self._box.ask(self.saver.clear_up)
        while time.monotonic() < until:
            self._box.ask(self.saver.start)
            self._transfers.drain(max(0.0, until - time.monotonic()))
            if self._box.ask(lambda: self.saver.idle):
                break
        return self._box.ask(lambda: not self.saver.waiting())

    def close(self) -> None:
        """End the control thread. Unsaved records are lost: `flush` first."""
        self._box.tell(self._preload.close)
        self._box.close()
        self._transfers.close()
        self.saver.count_written()
        if self._store is not None:
            self._store.close()

    def counts(self) -> Counts:
        """Numbers for the panel, as of now."""
        parts = Parts(
            self._index, self._pool, self.berths, self._judge, self.saver, self._preload, self._limits, self._traffic
        )
        return self._box.ask(parts.count)

    def check(self) -> None:
        """Assert the invariants of index and pool."""
        self._box.ask(self._index.check)
        self._pool.check()
        self._box.ask(self.berths.check)

    # ---- the control thread's side ----

    def _plan(self, question: Question, slot: SlotView, *, private: bool) -> Plan:
        plan = make_plan(question, slot, self._index, self.ground)
        if not private:  # the same tokens in a conversation that is not private: nothing is given away by saving them
            self._index.publish([*plan.names, *(piece.name for piece in plan.pieces)])
        now = time.time()
        before = None if question.head is None else self._index.warmth_of(question.head.name, now)
        self._judge.open(before, (*plan.names, *(piece.name for piece in plan.pieces)), now)
        if plan.live:  # nothing will be held or brought, but its records are used all the same
            self._use(plan.names, now)
            self._preload.used([question.head.name] if question.head else [])
        return plan

    def _use(self, names: Sequence[str], now: float) -> list[Entry]:
        self._preload.used(names)
        entries = [entry for name in names if (entry := self._index.entries.get(name)) is not None]
        self._judge.use(entries, now)
        self.saver.touch(entries, now)
        return entries

    def _hold(self, plan: Plan, asked: bool) -> list[Entry]:
        for piece in plan.to_bring:
            if piece.name not in self._index.entries:
                raise BadRecord(piece.name, self._index.why_gone(piece.name) or Reason.EVICTED, "it left since it was planned")
        names = [piece.name for piece in plan.pieces]
        known = [entry for name in names if (entry := self._index.entries.get(name)) is not None]
        held = self._use(names, time.time()) if asked else known
        for entry in held:
            entry.holds += 1
        return held

    def _let_go(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.holds -= 1
        self.room.settle()

    def _keep(self, names: Sequence[str], resident: bool) -> None:
        chain = {name for last in names for name in self._index.chain(last)}
        self._judge.kept_names = self._judge.kept_names | chain if resident else self._judge.kept_names - chain

    def _finish(self, errand: Errand) -> None:
        self._fetch.end(errand)
        if errand.read_bytes:
            self._learn(self._judge.rates.with_read(errand.read_bytes, errand.read_until - errand.began))

    def _learn(self, rates: Rates) -> None:
        self._judge.rates = rates

    def _forget(self, logs: Sequence[TokenLog], names: Sequence[tuple[str, str]]) -> int:
        """Drop what is to be forgotten from the index and from RAM; how many are in use and have to be asked for again."""
        lineage = Lineage.of(self.ground.identity, [entry.row for entry in self._index.entries.values()])
        gone = {name for identity, name in names if identity == self.ground.identity and name in lineage.rows}
        for log in logs:
            gone |= no_longer_needed(lineage, log.ids, log.shared)
        entries = [self._index.entries[name] for name in gone]
        if pinned := sum(1 for entry in entries if entry.pins):
            for entry in entries:  # nothing of it that is not being written already is written any more
                if entry.saving is Saving.UNSAVED and not entry.pins:
                    self._index.mark(entry, Saving.SPARE)
            return pinned
        for entry in entries:
            if entry.place is not None:
                self._pool.release(self._index.unsettle(entry))
                Move(entry.row.name, "ram", "", entry.row.n_bytes, 0.0, FORGOTTEN).log(self._events)
            self._index.remove(entry.row.name, Reason.EVICTED)
        self.room.settle()
        return 0

    def _set_quiet(self, quiet: bool) -> None:
        self._quiet = quiet
        if quiet:
            self._transfers.pause_saves()
        else:
            self._transfers.resume_saves()
            self.room.trim()

    def _save_now(self) -> bool:
        """Somebody waits for the room that saving makes, so it must not wait for the end of the turn."""
        under_way = self.saver.start()
        if under_way:
            self._transfers.resume_saves()
        return under_way

    def _after_save(self) -> None:
        self.room.settle()
        if self._quiet and not self.room.has_wishes:
            self._transfers.pause_saves()
        if not self._quiet:
            self.room.trim()
        self.saver.start()

    def _report(self, error: BaseException) -> None:
        kind = "control.failed" if isinstance(error, LocalKVError) else "control.bug"
        self._events.emit(kind, error=type(error).__name__, message=str(error))
