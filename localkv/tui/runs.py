"""Answers that are being written, folded into what the screen shows: one Run for each conversation that waits or streams.

No widgets. Events come through a Feed; folding happens on the UI's thread. An answer that the database could not take
stays here, so that it stays on screen, until it is saved.
"""

from collections.abc import Callable, Iterable, Sequence

from localkv.chat.thoughts import ThoughtMeter
from localkv.kv.record import ID_BYTES
from localkv.service.protocol import Delta, Numbers, Progress, Started
from localkv.service.turn_events import Asked, EngineRestarted, Finished, Saved, Unsaved
from localkv.tui.clean import one_line
from localkv.tui.entries import MARKS, clock_time
from localkv.tui.feed import Feed
from localkv.tui.pages import Entry
from localkv.tui.panel import footnote
from localkv.tui.phase import IDLE, Phase, foretold
from localkv.tui.ports import Turn
from localkv.tui.thinking import measure


class Run:
    """One turn in flight. `question` is None for a retry and for an answer that goes on (`text` is what it has so far).

    `asked_at` is wall time; `clock` measures rates.
    """

    def __init__(
        self,
        conversation: str,
        turn: Turn,
        *,
        asked_at: float,
        clock: Callable[[], float],
        question: str | None = None,
        text: str = "",
        answer_id: str = "",
    ) -> None:
        self.conversation = conversation
        self.question = question
        self.text = text
        self.phase = Phase("queued")
        self.finished: Finished | None = None
        self.unsaved = ""
        self._notices: list[str] = []
        self._turn = turn
        self._clock = clock
        self._feed = Feed(f"turn {conversation[:8]}", turn.run)
        self._asked_at = asked_at
        self._question_id = f"question {id(self)}"
        self._answer_id = answer_id or f"answer {id(self)}"
        self._asked = False
        self._durable = False
        self._tokens = 0
        self._first_at = 0.0
        self._thinking = ThoughtMeter()
        self.earlier: Run | None = None
        """A turn of the same conversation that the database does not have yet; it is shown before this one."""
        self.over = False

    @property
    def answer_id(self) -> str:
        """The id of the answer's entry."""
        return self._answer_id

    @property
    def numbers(self) -> Numbers | None:
        """What the turn counted, once it is finished."""
        return self.finished.numbers if self.finished is not None else None

    def take_notices(self) -> list[str]:
        """Sentences to show; each is given once."""
        notices, self._notices = self._notices, []
        return notices

    def take_asked(self) -> bool:
        """Whether the question was stored since the last call."""
        asked, self._asked = self._asked, False
        return asked

    @property
    def on_its_way(self) -> bool:
        """Whether its thread still works; any thread may ask."""
        return self._feed.working

    def begin(self) -> None:
        """Let it run."""
        self._feed.begin()

    def stop(self) -> None:
        """Stop soon; what has arrived stays."""
        if not self.over:
            self.phase = Phase("stopping")
            self._turn.cancel()

    def drain(self) -> bool:
        """Fold in what happened; whether anything did."""
        events, over = self._feed.drain()
        for event in events:
            self._fold(event)
        changed = bool(events) or over != self.over
        if over and not self.over:
            self.over = True
            self.phase = IDLE
            if self._feed.problem is not None:
                self._notices.append(one_line(str(self._feed.problem) or repr(self._feed.problem)))
        return changed

    def entries(self, now: float) -> list[Entry]:
        """The question and its answer as they stand."""
        time = clock_time(self._asked_at, now)
        entries = self.earlier.entries(now) if self.earlier is not None else []
        if self.question is not None:
            entries.append(Entry(self._question_id, "user", self.question, time=time))
        marks = []
        if self.finished is not None and self.finished.state != "complete":
            marks.append(MARKS.get(self.finished.state, ""))
        if self.unsaved:
            marks.append("UNSAVED")
        notes = (footnote(self.numbers),) if self.numbers is not None and self.numbers.generated_tokens else ()
        answer = Entry(
            self._answer_id, "assistant", self.text, time, notes, "  ".join(marks),
            growing=not self.over, thought=measure(*self._thinking.so_far(self.text), exact=True),
        )  # fmt: skip
        return [*entries, answer]

    def _fold(self, event: object) -> None:
        match event:
            case Asked():
                self._note_stored(event)
                self._question_id = event.question_id or self._question_id
                self._answer_id = event.answer_id or self._answer_id
            case Progress():
                if self.phase.doing != "stopping":
                    self.phase = self._going_on(event)
            case Started():
                self._tokens = 0
                if self.phase.doing != "stopping" and event.restore_seconds + event.prefill_seconds > 0:
                    self.phase = foretold(event)
            case Delta():
                self._grow(event)
            case Unsaved():
                self.unsaved = event.problem
            case Saved():
                self.unsaved = ""
                self._note_stored(None)
            case EngineRestarted():
                self._notices.append(
                    "the engine ended and was started again" + ("; the question is asked again" if event.repeated else "")
                )
            case Finished():
                self._finish(event)
            case _:
                pass

    def _note_stored(self, event: Asked | Finished | None) -> None:
        """The question is stored once it or its answer has an id; None: all is saved."""
        stored = event is None or event.question_id is not None or event.answer_id is not None
        if stored and not self._durable:
            self._durable = self._asked = True

    def _going_on(self, progress: Progress) -> Phase:
        """How far it is; while it restores what was foretold, the forecast stays beside it."""
        detail = one_line(progress.detail)
        if progress.phase == self.phase.doing == "restoring":
            detail = detail or self.phase.detail
        return Phase(progress.phase, progress.done, progress.total, progress.per_second, detail)

    def _grow(self, delta: Delta) -> None:
        now = self._clock()
        if not self._tokens:
            self._first_at = now
        self._tokens += len(delta.ids) // ID_BYTES
        self.text += delta.text
        self._thinking.take(self.text, len(delta.text), len(delta.ids) // ID_BYTES, now)
        seconds = now - self._first_at
        rate = (self._tokens - 1) / seconds if seconds > 0 else 0.0
        if self.phase.doing != "stopping":
            self.phase = Phase("generating", self._tokens, 0, rate)

    def _finish(self, event: Finished) -> None:
        self.finished = event
        self._note_stored(event)
        self.text = event.text
        self.unsaved = event.unsaved
        self._question_id = event.question_id or self._question_id
        self._answer_id = event.answer_id or self._answer_id
        if event.message:
            self._notices.append(one_line(event.message))


class Runs:
    """All turns in flight, by conversation."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def add(self, run: Run) -> None:
        """Start `run`; the conversation has none that is not over."""
        run.earlier = self._runs.get(run.conversation)
        self._runs[run.conversation] = run
        run.begin()

    def of(self, conversation: str) -> Run | None:
        """The turn of this conversation, over and unsaved ones included."""
        return self._runs.get(conversation)

    def busy(self, conversation: str) -> bool:
        """Whether a turn of this conversation is on its way."""
        run = self._runs.get(conversation)
        return run is not None and not run.over

    @property
    def moving(self) -> list[Run]:
        """Turns that are not over."""
        return [run for run in self._runs.values() if not run.over]

    def drain(self) -> tuple[list[Run], list[Run]]:
        """Fold in what happened: the turns that changed, and those of them that are over now."""
        changed = [run for run in self.moving if run.drain()]
        return changed, [run for run in changed if run.over]

    def forget(self, run: Run) -> None:
        """The database has all of it."""
        if self._runs.get(run.conversation) is run:
            del self._runs[run.conversation]

    def drop(self, conversation: str) -> None:
        """Listen no more to the turn of this conversation: it is gone for good."""
        self._runs.pop(conversation, None)

    def forget_saved(self, unsaved: Iterable[str]) -> list[Run]:
        """Forget turns that are over and saved by now; returns them."""
        open_ones = set(unsaved)
        saved = [run for run in self._runs.values() if run.over and run.conversation not in open_ones]
        for run in saved:
            self.forget(run)
        return saved


def merge(entries: Sequence[Entry], newer: Sequence[Entry]) -> list[Entry]:
    """`entries` with those of `newer` in the place of the same ids, the others at the end."""
    by_id = {entry.id: entry for entry in newer}
    merged = [by_id.pop(entry.id, entry) for entry in entries]
    return [*merged, *by_id.values()]
