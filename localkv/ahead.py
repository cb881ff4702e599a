"""What is done before it is asked for: the conversation that is opened comes into the slot, and what is typed is read.

    rest    the cursor rests on a conversation      its records come into RAM
    open    a conversation is opened                the same, then into the slot
    typing  a message is being written              the same, then whole chunks of it are computed
    likely  nobody does anything                    the records of likely conversations come into RAM

All of it is work for idle time, in steps of one record or one chunk: between two steps the engine looks for something more urgent,
and a turn, or a newer hint that is no less urgent, ends the work where it stands.

What is typed is rendered without its last word, twice with different ends; the ids that both have in common stay, whatever is
written next. Only chunks that end at absolute block edges are computed, so the turn that follows computes the very chunks that it
would have computed anyway, from there on: its answer is the same, bit for bit. An edit takes the slot back: to the last common edge
where full attention is all there is, else to the conversation's own records; where those are not there, nothing is read ahead.

Knows the opened model and no faces. Thread: the engine's, except `hint`. Imports no torch until there is a model.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from localkv.errors import LocalKVError
from localkv.events import EventLog
from localkv.kv.record import unpack_ids
from localkv.messages import Line, Typing, Warm
from localkv.placement.plan import Plan, Question, SlotView, common_prefix
from localkv.power import on_battery
from localkv.tally import Tally
from localkv.tenant import Tenant

if TYPE_CHECKING:
    from localkv.chat.tokens import Rendered, Tokens
    from localkv.engine.live import Live
    from localkv.kv.layout import Layout
    from localkv.opened import Opened
    from localkv.placement.keeper import Keeper

Hint = Warm | Typing
Steps = Generator[bool, None, None]
"""After each step: whether there is more to do now, or something is awaited."""

URGENCY = ("typing", "open", "rest", "likely")

ENDS = ("a", "\n0")
"""What might be typed behind the last whole word: two beginnings that no tokenizer takes for the same."""

LONGEST_TOKEN = 16
"""In characters, on the average of a text: of one that is longer than that many for each token of the context nothing is read."""


class Ahead:
    """Work ahead of the turns of the model that is open. `may` says whether any is wanted now."""

    def __init__(self, tenant: Tenant, tally: Tally, events: EventLog, may: Callable[[], bool]) -> None:
        self._tenant = tenant
        self._tally = tally
        self._events = events
        self._may = may
        self._wake: Callable[[], None] = lambda: None
        self._heard: deque[Hint] = deque()
        """Hints that nobody has looked at yet."""
        self._waiting: dict[str, Hint] = {}
        self._work: Steps | None = None
        self._kind = ""
        self._off = False
        self._opened: Opened | None = None

    def serve(self, opened: "Opened | None") -> None:
        """Work for this model from now on; None: the one that was open is about to be closed."""
        self.stop()
        self._opened = opened
        self._tenant.move_out()

    def clear(self) -> None:
        """Have nobody's state in the slot, and nothing that is on its way into it."""
        self._live.reset()
        self._tenant.move_out()

    # ---- hints ----

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on any thread, when `step` has something to do again."""
        self._wake = wake

    def hint(self, hint: Hint) -> None:
        """What may be wanted soon. Any thread."""
        self._heard.append(hint)
        self._wake()

    @property
    def is_busy(self) -> bool:
        """Whether something is under way or waits for its time; `step` may still have nothing to do just now."""
        return bool(self._work or self._heard or self._waiting)

    def step(self) -> bool:
        """Do one step of what is most urgent; whether there is more to do now."""
        if not self._is_wanted():
            self.stop()
        while self._heard:
            self._take(self._heard.popleft())
        if self._work is None and not self._begin():
            return False
        assert self._work is not None
        try:
            return next(self._work)
        except StopIteration:
            self._work = None
        except LocalKVError as error:
            self._work = None
            self._events.emit("ahead.failed", what=self._kind, error=type(error).__name__, message=str(error))
        return bool(self._waiting)

    def _is_wanted(self) -> bool:
        """Asked before each step: a machine may be unplugged in the middle of something long."""
        if self.is_busy and self._off is self._may():
            self._off = not self._off
            self._events.emit("ahead.off" if self._off else "ahead.on")
        return not (self.is_busy and self._off)

    def _take(self, hint: Hint) -> None:
        """Do what `hint` says when there is time; it replaces what is no more urgent and under way."""
        if self._opened is None or self._opened.keeper is None or self._opened.loaded.section != hint.model:
            return
        kind = "typing" if isinstance(hint, Typing) else hint.why
        if kind == "open":
            self._waiting.pop("typing", None)
        self._waiting[kind] = hint
        if self._work is not None and URGENCY.index(kind) <= URGENCY.index(self._kind):
            self._drop_work()

    def stop(self) -> None:
        """Something more urgent begins, and nothing that was hinted at before it counts any more."""
        self._heard.clear()
        self._waiting.clear()
        self._drop_work()

    def _begin(self) -> bool:
        kind = next((kind for kind in URGENCY if kind in self._waiting), "")
        if not kind:
            return False
        hint = self._waiting.pop(kind)
        self._kind = kind
        self._work = self._typing(hint) if isinstance(hint, Typing) else self._warm(hint)
        return True

    def _drop_work(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None

    @property
    def _live(self) -> "Live":
        assert self._opened is not None, "work ahead is for a model that is open"
        return self._opened.live

    @property
    def _keeper(self) -> "Keeper":
        assert self._opened is not None
        assert self._opened.keeper is not None, "work ahead is for a model that is cached"
        return self._opened.keeper

    @property
    def _layout(self) -> "Layout":
        return self._keeper.ground.layout

    # ---- a turn comes ----

    def make_way(self, conversation: str, prompt: Sequence[int], *, is_new: bool) -> None:
        """A turn with `prompt` begins: what was typed and is not in it leaves the slot before anything of it gets a name.

        `is_new`: the conversation has no history, so what was typed in one that had no id yet may be its own.
        """
        self.stop()
        if not self._tenant.is_typing:
            return
        if not self._tenant.conversation and is_new:
            self._tenant.conversation = conversation
        self._take_back(conversation, prompt)

    def came_late(self, conversation: str) -> None:
        """A turn of this conversation is over: what was said of it meanwhile was typed before that turn, and is not awaited any more."""
        for _ in range(len(self._heard)):
            hint = self._heard.popleft()
            if not (isinstance(hint, Typing) and hint.conversation in {"", conversation}):
                self._heard.append(hint)

    def _take_back(self, conversation: str, prompt: Sequence[int]) -> None:
        """Keep of what was typed only whole chunks that `prompt` has as well. Plans are made after that: it changes the slot."""
        tenant, live = self._tenant, self._live
        if tenant.typed_from > live.position:
            self.clear()  # the slot has been emptied since, to grow
        if not tenant.is_typing:
            return
        same = common_prefix(live.ids, prompt) if tenant.conversation == conversation else 0
        if same == live.position < len(prompt):
            return
        if not self._layout.only_full:
            self.clear()
            return
        size = self._layout.block_tokens
        edge = max(tenant.typed_from, min(same, len(prompt) - 1) // size * size)
        if edge == tenant.typed_from and tenant.origin is not None and not tenant.origin.exact:
            self.clear()  # the turn brings it again, and says of itself why it is not exact
            return
        live.rewind(edge)
        if edge == tenant.typed_from:
            tenant.end_typing()

    # ---- records ----

    def _warm(self, hint: Warm) -> Steps:
        for want in hint.wants:
            question = Question(want.conversation, unpack_ids(want.ids), want.head)
            if hint.why == "open":
                yield from self._open(question)
            else:
                yield from self._into_ram(question, pointed_at=hint.why == "rest")

    def _open(self, question: Question) -> Steps:
        """Bring a conversation into the slot, if all of it can be brought."""
        tenant = self._tenant
        if tenant.is_typing and tenant.conversation == question.conversation:
            return  # it is in the slot, and more
        self._take_back(question.conversation, question.ids)
        if self._look(question).exact:
            yield from self._into_slot(question)

    def _into_ram(self, question: Question, *, pointed_at: bool) -> Steps:
        ended = threading.Event()

        def end() -> None:
            ended.set()
            self._wake()

        self._keeper.preload(question, end, pointed_at=pointed_at)
        try:
            while not ended.is_set():
                yield False
        finally:
            if not ended.is_set():
                self._keeper.stop_preload()

    def _into_slot(self, question: Question) -> Generator[bool, None, Plan | None]:
        """Bring what there is for `question` into the slot; the plan that was carried out, None if RAM or slot has no room for it.

        A slot grows for turns alone: to grow it must be emptied.
        """
        assert self._opened is not None
        plan = self._look(question)
        if plan.resume_at > self._opened.room_tokens:
            return None
        if _needs_reading(plan):
            yield from self._into_ram(question, pointed_at=True)
            plan = self._look(question)
            if _needs_reading(plan):
                return None
        if not plan.live and plan.resume_at:
            yield from self._copy(plan, question)
        return plan

    def _look(self, question: Question) -> Plan:
        live, tenant = self._live, self._tenant
        return self._keeper.look(question, SlotView(live.ids, live.names, tenant.conversation, tenant.mixed))

    def _copy(self, plan: Plan, question: Question) -> Steps:
        """Records from RAM into the slot, one for each step."""
        live, tenant, began = self._live, self._tenant, time.monotonic()
        with self._keeper.hold(plan, asked=False), self._whole_or_nothing():
            self._leave_slot()
            live.leave(plan.slot_tokens)
            for piece, payload in self._keeper.bring(plan, reason="preload"):
                live.load(piece.kind, piece.start, piece.end, payload).wait()
                yield True
            live.adopt(question.ids[: plan.resume_at], plan.names)
        tenant.move_in(question.conversation, plan, self._keeper.ground)
        self._keeper.opened(plan)
        if question.head is not None and plan.resume_at == question.head.tokens:
            tenant.head = question.head.name
        self._events.emit(
            "preload",
            conversation=question.conversation[:12],
            to="slot",
            tokens=plan.resume_at,
            bytes=sum(piece.n_bytes for piece in plan.to_bring),
            ms=round(1000 * (time.monotonic() - began), 1),
            reason="preload",
        )

    def _leave_slot(self) -> None:
        """Another state is about to come into the slot. What is typed and not sent goes before anything gets a name and a record."""
        assert self._opened is not None
        assert self._opened.admission is not None, "work ahead is for a model that is cached"
        if self._tenant.is_typing:
            self._live.leave(self._tenant.typed_from)
            self._tenant.end_typing()
        self._opened.admission.park()
        self._tenant.head = ""

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Whatever breaks off inside leaves an empty slot: a part of a state is no state."""
        whole = False
        try:
            yield
            whole = True
        finally:
            if not whole:
                self.clear()

    # ---- what is typed ----

    def _typing(self, hint: Typing) -> Steps:
        assert self._opened is not None
        rendered, n = settled(self._opened.tokens, hint.lines, hint.text, self._opened.context_tokens)
        if rendered is None:
            return
        n = min(n, self._opened.room_tokens)
        prompt = rendered.prompt[:n]
        question = Question(hint.conversation, prompt, hint.head, 0 <= rendered.diverged_at < len(hint.lines))
        self._take_back(hint.conversation, prompt)
        if not self._chunks(self._look(question).resume_at, n):
            return
        plan = yield from self._into_slot(question)
        if plan is None or not self._can_go_back(question, plan):
            if plan is not None and not plan.exact:
                self.clear()  # in the slot it would be taken for what the conversation itself had built
            return
        if not plan.resume_at:
            self._leave_slot()
            self._live.reset()
        if not self._tenant.is_typing:
            self._tenant.move_in(hint.conversation, plan, self._keeper.ground)
        self._tenant.begin_typing(plan)
        for first, last in self._chunks(plan.resume_at, n):
            with self._whole_or_nothing():
                self._live.feed(prompt[first:last])
            self._tally.typed_tokens += last - first
            yield True

    def _chunks(self, start: int, end: int) -> list[tuple[int, int]]:
        from localkv.engine.prefill import early_chunks

        assert self._opened is not None
        return early_chunks(start, end, self._opened.block_tokens, self._opened.verdict.reading)

    def _can_go_back(self, question: Question, plan: Plan) -> bool:
        """Whether what is typed can leave the slot again and take nothing with it."""
        if self._layout.only_full or not plan.resume_at or self._tenant.is_typing:
            return True
        return self._keeper.look(question, SlotView()).resume_at == plan.resume_at


def settled(tokens: "Tokens", lines: Sequence[Line], text: str, context_tokens: int) -> "tuple[Rendered | None, int]":
    """A prompt that asks `text`, and how many ids at its beginning stay, whatever is typed behind the last whole word.

    None if there is no whole word yet, or if the prompt will not fit. Raises TemplateError.
    """
    words = text.rstrip() if text[-1:].isspace() else text[: _start_of_last_word(text)].rstrip()
    if not words or len(text) > LONGEST_TOKEN * context_tokens:
        return None, 0
    behind = text[len(words)]
    one, other = (tokens.render([*lines, Line(role="user", text=f"{words}{behind}{end}")]) for end in ENDS)
    n = common_prefix(one.prompt, other.prompt)
    return (one, n) if n < context_tokens else (None, 0)


def _start_of_last_word(text: str) -> int:
    return next((i for i in range(len(text), 0, -1) if text[i - 1].isspace()), 0)


def _needs_reading(plan: Plan) -> bool:
    return not plan.live and any(piece.tier == "ssd" for piece in plan.pieces)


def wanted_now(setting: Literal["always", "plugged", "never"]) -> bool:
    """Whether the person wants work ahead, as the machine is powered now."""
    return setting == "always" or (setting == "plugged" and not on_battery())
