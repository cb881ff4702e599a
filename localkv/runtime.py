"""The path of one turn, from ids to the last token, top to bottom.

    tokens    ids so far and the new text                          chat/tokens
    plan      own history first, else any chain for the same ids   placement/plan
    hold      nothing in the plan may leave                        placement/keeper
    bring     SSD -> RAM -> slot, verified before use              placement/keeper, engine/live
    prefill   all tokens after resume_at, new and lost alike       engine/prefill
    decode    step, sample, stream                                 engine/decode
    admit     each block that became full, the state at the end    admission

Fallback prefill is no path of its own: what could not be brought is more to prefill. Knows no conversations beyond the turn, and no
sockets. Thread: the engine's, except `snapshot` and `hint`, which any thread may call. Imports no torch until `prepare`.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from localkv.ahead import Ahead, wanted_now
from localkv.collector import nothing_collected
from localkv.config import Config, ModelSection
from localkv.errors import BadRecord, CacheClosed, Cancelled, LocalKVError
from localkv.events import EventLog, Reason
from localkv.kv.record import Head, pack_ids
from localkv.messages import (
    AnyReply,
    Delta,
    Done,
    Estimated,
    Flushed,
    Forget,
    Forgotten,
    Phase,
    Progress,
    Ready,
    Snapshot,
    Started,
    StopReason,
    Submit,
    Typing,
    Unloaded,
    Warm,
)
from localkv.paths import Home
from localkv.placement.plan import Plan, Question, SlotView, from_the_start, without_room
from localkv.placement.rates import Forecast
from localkv.status import take_snapshot
from localkv.tally import Tally, Turn, learned, log_turn, sources
from localkv.tenant import Tenant
from localkv.tiers.upkeep import forget_on_disk

if TYPE_CHECKING:
    from localkv.answer import Answer
    from localkv.chat.tokens import Rendered
    from localkv.engine.copier import Mark
    from localkv.opened import Opened

Emit = Callable[[AnyReply], None]
Report = Callable[[Phase, int, int, str, float], None]

CHECKPOINT_EVERY = 8
"""Blocks of prefill between two checkpoints of a model that can resume only at checkpoints."""

LANDING = 2
"""Records on their way into the slot while the next one is being asked for."""

FORGET_SECONDS = 30.0
"""How long forgetting waits for a save that is under way."""

UNLOAD_SECONDS = 30.0
"""How long letting a model go waits for what is unsaved."""


class Runtime:
    """One engine: at most one model is open at a time."""

    def __init__(self, home: Home, config: Config, events: EventLog, epoch: str) -> None:
        self._home = home
        self._config = config
        self._events = events
        self._epoch = epoch
        self._opened: Opened | None = None
        self.tally = Tally()
        self._tenant = Tenant()
        self.ahead = Ahead(self._tenant, self.tally, events, lambda: wanted_now(config.engine.preload))

    @property
    def opened(self) -> "Opened | None":
        """The model that is open, for measurements."""
        return self._opened

    # ---- one turn ----

    def turn(self, request: Submit, emit: Emit, cancelled: Event) -> None:
        """Answer `request`: emits Progress, Started, Delta and, last, Done. Raises LocalKVError; what was streamed stands."""
        turn = Turn()
        self.prepare(request.model, partial(self._progress, request.request, emit))
        opened = self._opened
        assert opened is not None
        from localkv.answer import Answer  # imports torch, which `prepare` tells of

        rendered = opened.tokens.render(request.lines)
        answer = Answer(opened, request, rendered.prompt, turn)
        self.ahead.make_way(request.conversation, answer.prompt, is_new=request.head is None)
        self.tally.busy_conversation = request.conversation
        ended = "in a way nobody foresaw"
        try:
            with opened.keeper.quiet(private=request.private) if opened.keeper else nullcontext():
                self._make_room(answer)
                plan = self._restore(answer, rendered, emit)
                ending = self._compute(answer, plan, emit, cancelled)
                head = self._keep_end(answer)
            ended = "well"
        except LocalKVError:
            ended = "early"
            raise
        finally:
            self.tally.busy_conversation = ""
            self.ahead.came_late(request.conversation)
            if opened.admission is not None:
                opened.admission.abandon()  # after a turn that did not fail, nothing is under way any more
            if ended == "in a way nobody foresaw" or (ended == "early" and (request.private or not turn.exact)):
                # Layers may stand at different tokens; what is private and has no name yet would get one, and a file; and nobody
                # has been told yet that what is not exact is not.
                self.ahead.clear()
        self._finish(answer, ending, head, emit)

    def _make_room(self, answer: "Answer") -> None:
        """A slot that grows makes records of what is in it, so what was typed has been sent, and privately, by now."""
        try:
            answer.make_room(self._events)
        finally:
            if not answer.opened.live.position:
                self._tenant.parked, self._tenant.head = True, ""

    def _restore(self, answer: "Answer", rendered: "Rendered", emit: Emit) -> Plan:
        """Bring into the slot what can be brought; returns the plan that was carried out."""
        request = answer.request
        answer.turn.planning()
        question = Question(request.conversation, answer.prompt, request.head, rendered.diverged_at >= 0)
        plan = self._plan(answer.opened, question)
        forecast = answer.opened.keeper.forecast(plan) if answer.opened.keeper else Forecast()
        answer.turn.forecast = forecast
        started = Started(
            request=request.request, epoch=self._epoch, line_ids=tuple(pack_ids(ids) for ids in rendered.line_ids),
            diverged_at=rendered.diverged_at, prompt_tokens=plan.prompt_tokens, planned=sources(plan), resume_at=plan.resume_at,
            restore_seconds=forecast.restore_seconds, prefill_seconds=forecast.prefill_seconds,
            from_scratch_seconds=forecast.from_scratch_seconds,
        )  # fmt: skip
        emit(started)
        answer.turn.saw(plan)
        tries = len(plan.pieces) + 1
        while bad := self._bring(answer, plan, answer.prompt, emit):
            # The bad record is struck out by now, so the next plan is another one. The bound is for faults that strike nothing out.
            tries -= 1
            if bad.reason == Reason.NO_ROOM:
                question = without_room(question, plan, bad.name)
            plan = self._plan(answer.opened, question) if tries else from_the_start(question, Reason.READ_ERROR)
            answer.turn.saw(plan)
        answer.turn.planned(plan, self._tenant.typed_tokens(plan))
        self._tenant.move_in(request.conversation, plan, answer.opened.ground)
        return plan

    def _plan(self, opened: "Opened", question: Question) -> Plan:
        if opened.keeper is None or opened.admission is None:
            return from_the_start(question, Reason.UNCACHED_KIND)
        opened.admission.settle()  # the names of what the slot holds
        live, tenant = opened.live, self._tenant
        return tenant.told(opened.keeper.plan(question, SlotView(live.ids, live.names, tenant.conversation, tenant.mixed)))

    def _bring(self, answer: "Answer", plan: Plan, ids: Sequence[int], emit: Emit) -> BadRecord | None:
        """Carry `plan`, which is for `ids`, out; the record of it that turned out bad, if one did."""
        live, keeper, admission = answer.opened.live, answer.opened.keeper, answer.opened.admission
        if plan.live:
            return None
        if keeper is None or admission is None:
            live.reset()
            return None
        if not plan.resume_at:
            admission.park()
            live.reset()
            return None
        whole, done, total, landing = False, 0, sum(piece.n_bytes for piece in plan.to_bring), deque["Mark"]()
        try:
            with keeper.hold(plan):
                admission.park()
                live.leave(plan.slot_tokens)
                for piece, payload in keeper.bring(plan, LANDING):
                    landing.append(live.load(piece.kind, piece.start, piece.end, payload))
                    done += piece.n_bytes
                    while len(landing) > (LANDING if done < total else 0):
                        landing.popleft().wait()  # only then the memory it came from may be used for something else
                    self._say(answer, "restoring", done, total, emit)
            whole = True
        except BadRecord as bad:
            self._events.emit("plan.again", record=bad.name[:12], reason=bad.reason)
            self.tally.tried(failed=True)
            return bad
        finally:
            if not whole:  # until all of it is there, lengths are those of nobody's state
                live.reset()
        self.tally.tried(failed=False)
        live.adopt(ids[: plan.resume_at], plan.names)
        return None

    def _compute(self, answer: "Answer", plan: Plan, emit: Emit, cancelled: Event) -> StopReason:
        """Prefill and decode, admitting what becomes full on the way."""
        from localkv.engine.decode import Decoding
        from localkv.engine.prefill import prefill
        from localkv.engine.sample import Sampler

        opened, turn, logits = answer.opened, answer.turn, None
        admit = opened.admission.full_blocks if opened.admission is not None else lambda _every=0: None
        live, before = opened.thrifty(partial(self._rebuild, answer)), opened.live.forwarded_tokens
        try:
            reading = opened.verdict.reading
            for after_chunk in prefill(live, answer.prompt, opened.block_tokens, cancelled, reading):
                logits = after_chunk
                turn.prefilled(opened.live.forwarded_tokens - before)
                admit(CHECKPOINT_EVERY)
                self._say(answer, "prefill", turn.prefilled_tokens, plan.prompt_tokens - plan.resume_at, emit)
            assert logits is not None, "the last token of a prompt is always prefilled"
            sampling = answer.request.sampling
            room = opened.room_tokens - len(answer.prompt)
            stop_ids, max_tokens = opened.tokens.stop_ids, sampling.max_tokens
            decoding = Decoding(live, Sampler(sampling), stop_ids=stop_ids, room=room, max_tokens=max_tokens)
            for token in decoding.run(logits, cancelled, lambda: answer.stream.stopped):
                turn.drew()
                self._stream(answer, answer.push(token), [token], emit)
                admit()
            self._stream(answer, answer.stream.finish(), [], emit)
            return decoding.ending
        except Cancelled:
            return "cancelled"
        finally:
            turn.squeezed(live.because)

    def _rebuild(self, answer: "Answer", ids: Sequence[int]) -> None:
        """After a forward that tore the state after `ids`: what records have of it is in the slot again."""
        if answer.opened.admission is not None:
            answer.opened.admission.settle()  # whole blocks are sound: the forward wrote behind them
        answer.opened.live.reset()
        if ids:
            plan = self._plan(answer.opened, Question(answer.request.conversation, ids, answer.request.head))
            self._bring(answer, plan, ids, lambda _: None)

    # ---- records ----

    def _keep_end(self, answer: "Answer") -> Head | None:
        """Keep the state at the end of the turn; returns the conversation's new head."""
        opened, request = answer.opened, answer.request
        if opened.admission is None or opened.keeper is None:
            return None
        opened.admission.settle()
        if opened.live.position > answer.end:
            # Tokens sampled past a stop string leave the log, and the slot where it can forget them.
            if not opened.keeper.ground.layout.only_full:
                return request.head
            opened.live.rewind(answer.end)
        replaces = "" if request.keep_head or request.head is None else request.head.name
        return opened.admission.keep_state(replaces) or request.head

    # ---- what is told ----

    def _stream(self, answer: "Answer", text: str, ids: list[int], emit: Emit) -> None:
        if text or ids:
            emit(Delta(request=answer.request.request, epoch=self._epoch, text=text, ids=pack_ids(ids)))

    def _say(self, answer: "Answer", phase: Phase, done: int, total: int, emit: Emit) -> None:
        rate = answer.turn.prefill_rate if phase == "prefill" else 0.0
        self._progress(answer.request.request, emit, phase, done, total, per_second=rate)

    def _progress(
        self, request: int, emit: Emit, phase: Phase, done: int, total: int, detail: str = "", per_second: float = 0.0
    ) -> None:
        emit(
            Progress(
                request=request, epoch=self._epoch, phase=phase, done=done, total=total, detail=detail, per_second=per_second
            )
        )

    def _finish(self, answer: "Answer", ending: StopReason, head: Head | None, emit: Emit) -> None:
        request, numbers = answer.request, answer.turn.numbers()
        beyond = answer.opened.live.position > answer.end  # tokens past a stop string that the slot can't forget
        self._tenant.head = head.name if head and not beyond else ""
        self.tally.add(numbers)
        if answer.opened.keeper is not None:
            answer.opened.keeper.learn(lambda rates: learned(rates, numbers))
            answer.opened.keeper.keep([head.name] if head else [], resident=request.resident)
        log_turn(self._events, request.conversation[:12], numbers, ending)
        ids, text = pack_ids(answer.ids), answer.stream.text
        emit(Done(request=request.request, epoch=self._epoch, ids=ids, text=text, reason=ending, head=head, numbers=numbers))
        self.tally.card = answer.opened.card()

    # ---- the model, and the end ----

    def prepare(self, model: ModelSection, progress: Report) -> Ready:
        """Have `model` open; another one that is open is flushed and closed first. Imports torch. Raises ModelError."""
        if self._opened is None or self._opened.loaded.section != model:
            self.flush(UNLOAD_SECONDS)
            self.close()
            progress("loading", 0, 0, "starting torch", 0.0)

            def report(what: str, done: int, total: int) -> None:
                progress("loading", done, total, what, 0.0)

            with nothing_collected():
                from localkv.opened import open_model

                self._opened = open_model(model, self._config, self._home, self._events, report, self.tally.traffic)
            self.ahead.serve(self._opened)
            self.tally.card = self._opened.card()
        return self._opened.ready(self._epoch)

    def snapshot(self, heads: Sequence[Head] = ()) -> Snapshot:
        """What the panel shows, as of now, and how long coming back to the conversations that end in `heads` takes. Any thread."""
        try:
            return take_snapshot(self._opened, self.tally, self._tenant, self._events, self._epoch, heads)
        except CacheClosed:  # the model was let go of this moment
            return take_snapshot(None, self.tally, self._tenant, self._events, self._epoch)

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on any thread, when `idle` has something to do again."""
        self.ahead.listen(wake)

    def hint(self, hint: Warm | Typing) -> None:
        """What may be wanted soon; `idle` sees to it. Any thread."""
        self.ahead.hint(hint)

    def idle(self) -> bool:
        """Do one step of work ahead: a record, a chunk or an arena; whether there is more to do now. Saving goes on by itself."""
        return self.ahead.step() or (self._opened is not None and self._opened.warm())

    def flush(self, deadline_seconds: float) -> Flushed:
        """Everything to SSD, within `deadline_seconds`."""
        began = time.monotonic()
        if self._opened is None or self._opened.keeper is None:
            return Flushed(request=0, epoch=self._epoch, records=0, n_bytes=0, seconds=0.0)
        keeper = self._opened.keeper
        before = keeper.counts().ssd
        complete = keeper.flush(deadline_seconds)
        counts = keeper.counts()
        problem = "" if complete else counts.trouble or f"{counts.unsaved} records could not be saved in time"
        records, n_bytes = counts.ssd.swaps_in - before.swaps_in, counts.ssd.bytes_in - before.bytes_in
        seconds = time.monotonic() - began
        return Flushed(request=0, epoch=self._epoch, records=records, n_bytes=n_bytes, seconds=seconds, problem=problem)

    def forget(self, request: Forget) -> Forgotten:
        """Remove records from RAM and SSD. Raises StoreError."""
        keeper = self._opened.keeper if self._opened is not None else None
        if keeper is not None and self._opened is not None:
            self.ahead.stop()
            self.ahead.clear()  # the next turn must not build on a state whose records are gone, nor save what was never sent
            freed = keeper.forget(request.logs, request.names, FORGET_SECONDS)
        else:
            freed = forget_on_disk(self._home.store, self._events, request)
        self._events.emit("forget", records=freed.records, bytes=freed.n_bytes)
        return Forgotten(request=request.request, epoch=self._epoch, records=freed.records, n_bytes=freed.n_bytes)

    def report(self) -> dict[str, dict[str, str | int | float | bool | None]]:
        """What this engine and its model are, for `doctor`."""
        assert self._opened is not None, "a model is prepared before a report is asked for"
        return self._opened.report()

    def estimate(self, report: Callable[[str], None]) -> Estimated:
        """What conversations with the open model cost here; measures for some seconds. The conversation in the slot stays."""
        from localkv.estimate import estimate

        assert self._opened is not None, "a model is prepared before an estimate is asked for"
        self.ahead.stop()
        return estimate(self._opened, self._home, report)

    def unload(self, *, idle: bool = False) -> Unloaded:
        """Save, and let go of the model and its memory; the next turn loads it and goes on as if nothing had been.

        `idle`: nobody asked for it, so what can't be saved keeps the model here.
        """
        flushed = self.flush(UNLOAD_SECONDS)
        if self._opened is None:
            return Unloaded(request=0, epoch=self._epoch)
        parting = self._opened.parting(flushed)
        if idle and parting.problem:
            self._events.emit("model.stays", model=parting.model, reason=parting.problem)
            return Unloaded(request=0, epoch=self._epoch, problem=parting.problem)
        self.close()
        return parting.over(self._events, self._epoch, "idle" if idle else "asked")

    def close(self) -> None:
        """Let go of the model. Unsaved records are lost: `flush` before."""
        if self._opened is not None:
            self.ahead.serve(None)
            opened, self._opened = self._opened, None
            opened.close()
