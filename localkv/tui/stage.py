"""What is on screen and what moves there: the open conversation, answers in flight, the engine's state.

Between the Desk, Runs and Engine, which know no widgets, and the widgets, which know no store. Thread: the UI's. `tick` is
called by the screen's one timer while something moves; when it returns False nothing does, and the timer rests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from textual.timer import Timer

from localkv.errors import LocalKVError
from localkv.service.client import Resume
from localkv.service.hints import Hints
from localkv.tui.clean import one_line
from localkv.tui.composer import Composer
from localkv.tui.desk import Desk
from localkv.tui.engine import Engine
from localkv.tui.entries import newest_numbers, to_entries, with_named_keys
from localkv.tui.foresight import Foresight
from localkv.tui.instruments import Facts, Instruments
from localkv.tui.keys import with_keys
from localkv.tui.listing import UNTITLED, to_item
from localkv.tui.listline import GENERATING, UNREAD
from localkv.tui.pages import Entry
from localkv.tui.phase import IDLE, Phase
from localkv.tui.ports import Chat, Client, Turn
from localkv.tui.queue import Queue
from localkv.tui.refused import Refused
from localkv.tui.runs import Run, Runs, merge
from localkv.tui.sessions import Sessions
from localkv.tui.theme import Palette
from localkv.tui.transcript import Transcript
from localkv.tui.waiting import Waiting
from localkv.tui.welcome import Welcome

SETTLE_TICKS = 10
"""Ticks after the last change: saving goes on for a moment after an answer, and the panel shows it."""

Severity = Literal["information", "warning", "error"]
Say = Callable[[str, Severity], None]


@dataclass(frozen=True, slots=True)
class Widgets:
    """The widgets that the stage writes to."""

    transcript: Transcript
    sessions: Sessions
    composer: Composer
    queue: Queue
    instruments: Instruments


@dataclass(frozen=True, slots=True)
class Signals:
    """How the stage reaches the screen: a notice, ticks from now on, one call after some seconds, or after the next frame."""

    say: Say
    wake: Callable[[], None]
    later: Callable[[float, Callable[[], None]], Timer]
    soon: Callable[[Callable[[], None]], bool]
    answered: Callable[[str], None]
    """An answer in this conversation is over."""
    stops: Callable[[], bool]
    """Whether the key that stops answers does so now."""


class Stage:
    """The chat as it stands, and how it changes."""

    def __init__(
        self,
        desk: Desk,
        chat: Chat,
        client: Client,
        widgets: Widgets,
        signals: Signals,
        palette: Palette,
        clock: Callable[[], float],
        welcome: Welcome,
    ) -> None:
        """`clock` measures rates."""
        self._welcome = welcome
        self.desk = desk
        self.runs = Runs()
        self.engine = Engine(client)
        self.hints = Hints(desk.store, client)
        self.foresight = Foresight(self.hints, desk, self.runs, chat, lambda: widgets.composer.message, widgets.sessions.near)
        self.waiting = Waiting(desk)
        self._chat = chat
        self._client = client
        self._widgets = widgets
        self._signals = signals
        self._palette = palette
        self._clock = clock
        self._quiet = 0
        self._unread: set[str] = set()
        self._resumes: Mapping[str, Resume] = {}
        self.hint = ""
        """What keys do just now, where nothing else is to be said."""
        self._refused = Refused(chat, signals.later, self.wake)

    @property
    def client(self) -> Client:
        """The way to the engine."""
        return self._client

    @property
    def unsaved(self) -> int:
        """How many conversations would lose text if the program ended now."""
        return len(self._chat.unsaved)

    # Showing

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self._widgets.transcript.restyle(palette)
        self._widgets.sessions.restyle(palette)
        self.show_welcome()
        self.show_facts()

    def show_list(self) -> None:
        """Read the list of conversations again."""
        sessions = self._widgets.sessions
        sessions.show(self.desk.items(sizes=sessions.order == "size"))
        self.show_facts()

    def show_open(self) -> None:
        """Show the open conversation from its end."""
        self._unread.discard(self.desk.key)
        self.show_welcome()
        self._widgets.transcript.show(self.entries())
        self._widgets.composer.begin(self.desk.draft, self.waiting.past)
        self._widgets.sessions.open_row(self.desk.key)
        self._show_badges()
        self.show_facts()
        self.foresight.opened()
        if not self.desk.whole:
            self._signals.soon(self._show_whole)

    def _show_whole(self, *, again: bool = False) -> None:
        """All messages: those before the first picture's, and `again` those that are there."""
        try:
            if again or not self.desk.whole:
                self.desk.read_whole()
        except LocalKVError as error:
            self._signals.say(str(error), "error")
            return
        self._widgets.composer.past = self.waiting.past
        self._widgets.transcript.sync(self.entries())

    def show_facts(self) -> None:
        """Bring header, phase line, messages that wait and cache panel up to date."""
        waits = self.waiting.shown
        self._widgets.composer.waits = bool(waits)
        self._widgets.queue.show(waits, moving=self.runs.busy(self.desk.key))
        self._widgets.instruments.show(self._facts(), self._palette)

    def show_again(self) -> None:
        """Show the open conversation where it is looked at: it has another system prompt, or keys are others."""
        self.show_welcome()
        self._widgets.transcript.sync(self.entries())
        self.show_facts()

    def show_welcome(self) -> None:
        """Show what stands in an empty conversation."""
        self._widgets.transcript.set_welcome(self._welcome.maker(self._palette, self.desk.system))

    def _show_badges(self) -> None:
        badges = dict.fromkeys(self._unread, UNREAD)
        badges.update({run.conversation: GENERATING for run in self.runs.moving})
        self._resumes = self._client.resumes
        self._widgets.sessions.mark(badges, self.hints.resumes)

    def entries(self) -> list[Entry]:
        """The open conversation as the transcript shows it, with what is not stored yet."""
        now = self.desk.clock()
        stored = to_entries(self.desk.messages, now, self.desk.places)
        run = self.runs.of(self.desk.key)
        return with_named_keys(merge(stored, run.entries(now)) if run is not None else stored, self._welcome.keymap)

    def _facts(self) -> Facts:
        run = self.runs.of(self.desk.key)
        ready = self.engine.ready
        sessions = self._widgets.sessions
        return Facts(
            title=one_line(self.desk.title) or UNTITLED,
            model=self.desk.model.name,
            ready=ready if ready is not None and ready.model == self.desk.model else None,
            state="off" if self.engine.state == "ready" and not self._client.alive else self.engine.state,
            snapshot=self._client.latest_snapshot,
            numbers=(run.numbers if run is not None else None) or newest_numbers(self.desk.messages),
            resume=self.hints.resumes.get(self.desk.key),
            phase=self._phase(run),
            unsaved=self.unsaved,
            below=not self._widgets.transcript.following,
            stops=self._signals.stops(),
            listed=len(sessions.shown),
            conversations=sessions.count,
            marked=len(sessions.marked),
            place=sessions.place,
        )

    def _phase(self, run: Run | None) -> Phase:
        if run is None or run.over or self.engine.state == "leaving":
            return Phase(detail=self.hint) if self.hint and self.engine.phase == IDLE else self.engine.phase
        if run.phase.doing != "queued":
            return run.phase
        if self.engine.phase != IDLE:
            return self.engine.phase
        others = [other for other in self.runs.moving if other is not run]
        return Phase("queued", detail="behind another conversation" if others else "")

    # What people do

    def prepare(self) -> None:
        """Start the engine and load the model of the open conversation."""
        self.engine.prepare(self.desk.model)
        self.wake()

    def ask(self, text: str) -> None:
        """Ask in the open conversation. Raises LocalKVError."""
        conversation = self.ensure()
        self._begin(conversation, self._chat.ask(conversation, text), question=text)

    def ensure(self) -> str:
        """The id of the open conversation: stored now if it was not, and marked in the list. Raises LocalKVError."""
        conversation = self.desk.ensure()
        sessions = self._widgets.sessions
        if sessions.opened != conversation.id:
            sessions.change(to_item(conversation))
            sessions.open_row(conversation.id)
        return conversation.id

    def ask_next(self, conversation: str) -> None:
        """Ask the message of this conversation that waits first, if one waits. Raises LocalKVError."""
        text = self.waiting.give(conversation)
        if text is not None:
            self._begin(conversation, self._chat.ask(conversation, text), question=text)

    def edit(self, question: str, text: str) -> None:
        """Ask `text` beside the question with this id; what followed that one stays. Raises LocalKVError."""
        turn = self._chat.edit(self.desk.key, question, text)
        above = self.desk.store.message(question).parent
        ids = [message.id for message in self.desk.messages]
        self.desk.messages = self.desk.messages[: ids.index(above) + 1] if above in ids else []
        self._begin(self.desk.key, turn, question=text)

    def retry(self) -> None:
        """Answer the last question of the open conversation again. Raises LocalKVError."""
        turn = self._chat.regenerate(self.desk.key)
        last = self.desk.last
        if last is not None and last.role == "assistant":
            self.desk.messages.pop()
            self._widgets.transcript.sync(self.entries())
        self._begin(self.desk.key, turn)

    def resume(self) -> None:
        """Go on with the last answer of the open conversation. Raises LocalKVError."""
        turn = self._chat.continue_answer(self.desk.key)
        last = self.desk.last
        if last is not None:
            self._begin(self.desk.key, turn, text=last.text, answer_id=last.id)

    def stop(self) -> bool:
        """Stop the answer of the open conversation; whether there was one."""
        run = self.runs.of(self.desk.key)
        if run is None or run.over:
            return False
        run.stop()
        self.show_facts()
        return True

    def leave(self) -> None:
        """Stop everything, let the engine save; the last tick says that it is done."""
        self.engine.leave(self.runs.moving, with_keys("[quit]", self._welcome.keymap))
        self.wake()

    def _begin(
        self, conversation: str, turn: Turn, *, question: str | None = None, text: str = "", answer_id: str = ""
    ) -> None:
        now = self.desk.clock()
        run = Run(conversation, turn, asked_at=now, clock=self._clock, question=question, text=text, answer_id=answer_id)
        self.foresight.sent()
        self.runs.add(run)
        if conversation == self.desk.key:
            self._widgets.transcript.following = True
            self._widgets.transcript.sync(self.entries())
        self._show_badges()
        self.wake()

    # What moves

    def wake(self) -> None:
        """Something may move from now on."""
        self._quiet = 0
        self._signals.wake()
        self.show_facts()

    def tick(self) -> bool:
        """Show what turns and engine said; whether more is to be expected."""
        was_ready = self.engine.ready
        moved = self.engine.drain()
        if self.engine.ready is not was_ready:
            self.foresight.opened()
        changed, over = self.runs.drain()
        for run in changed:
            self._show_run(run)
        for run in over:
            self._end_run(run)
        if self._client.resumes is not self._resumes:
            self._show_badges()
        for text, is_problem in self.engine.take_notices():
            self._signals.say(text, "error" if is_problem else "information")
        self._finish_saving()
        busy = self.engine.moving or bool(self.runs.moving) or self._refused.moving
        self._quiet = 0 if busy or moved or changed else self._quiet + 1
        self.show_facts()
        if self._quiet >= SETTLE_TICKS and self.foresight.rest():
            self._quiet = 0  # the answer is shown when it comes
        return self._quiet < SETTLE_TICKS

    def _show_run(self, run: Run) -> None:
        for notice in run.take_notices():
            self._signals.say(notice, "warning")
        if run.take_asked():
            self._asked(run.conversation)
        if run.conversation != self.desk.key:
            return
        transcript = self._widgets.transcript
        entries = with_named_keys(run.entries(self.desk.clock()), self._welcome.keymap)
        if transcript.has(entries):
            transcript.put(*entries)
        else:
            transcript.sync(self.entries())

    def _asked(self, conversation: str) -> None:
        """A question is durable."""
        try:
            self.waiting.asked(conversation)
        except LocalKVError as error:
            self._signals.say(str(error), "error")
        self._read_row(conversation)

    def _end_run(self, run: Run) -> None:
        """An answer is over: the stored one takes its place, unless it could not be stored."""
        if run.conversation in self._chat.unsaved:
            self._refused.offer_soon()
        else:
            self.runs.forget(run)
            self.waiting.ended(run.conversation)
        if run.finished is not None and run.finished.state == "complete":
            self.engine.works()
        if run.conversation != self.desk.key:
            self._unread.add(run.conversation)
        self._read_again(run.conversation)
        self._signals.answered(run.conversation)
        self._show_badges()
        self.foresight.news()
        if run.conversation == self.desk.key:
            self.foresight.typed()
        if run.finished is not None and run.finished.state == "complete" and self.engine.state != "leaving":
            self._go_on(run.conversation)

    def _go_on(self, conversation: str) -> None:
        """The model is free: ask what waits, unless an answer before it is not saved. After a stop or failure a person decides."""
        if conversation not in self._chat.unsaved:
            try:
                self.ask_next(conversation)
            except LocalKVError as error:
                self._signals.say(str(error), "error")

    def _read_again(self, conversation: str) -> None:
        """The store has something new of this conversation."""
        self._read_row(conversation)
        if conversation == self.desk.key:
            self._show_whole(again=True)

    def _read_row(self, conversation: str) -> None:
        """Its line in the list, and its title."""
        try:
            stored = self.desk.reread(conversation)
        except LocalKVError as error:
            self._signals.say(str(error), "error")
            return
        self._widgets.sessions.change(to_item(stored))

    def _finish_saving(self) -> None:
        if self._refused.drain():
            for run in self.runs.forget_saved(self._chat.unsaved):
                self._asked(run.conversation)
                self._read_again(run.conversation)
