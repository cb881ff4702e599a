"""The engine as the screen sees it: started behind the first frame, loading a model, ready, leaving.

No widgets. Everything that may block runs on a Feed's thread; `drain` folds what came, on the UI's thread.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from localkv.config import ModelSection
from localkv.errors import LocalKVError
from localkv.service.protocol import Failed, Flushed, Look, Prepare, Progress, Ready
from localkv.tui.clean import one_line
from localkv.tui.feed import Feed
from localkv.tui.phase import IDLE, Phase
from localkv.tui.ports import Client
from localkv.tui.runs import Run

LEAVE_SECONDS = 30.0
"""How long leaving may take: what is not on SSD by then is computed again next time."""

STOP_SECONDS = 5.0
"""How long answers that are stopped because the person leaves may take to be stored."""

State = Literal["starting", "loading", "ready", "off", "leaving"]


class Engine:
    """Starts the engine, loads models, takes leave."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._feed: Feed | None = None
        self._prepared: ModelSection | None = None
        self._wish: ModelSection | None = None
        """The model to load after the one that is being loaded."""
        self._leaving: Feed | None = None
        self.state: State = "starting"
        self.ready: Ready | None = None
        self.phase = Phase("loading", detail="starting the engine")
        self._notices: list[tuple[str, bool]] = []
        self.left = False
        self.farewell = ""
        """What the person should know after the screen is gone."""

    @property
    def moving(self) -> bool:
        """Whether something is on its way."""
        return self._feed is not None or self._leaving is not None

    def take_notices(self) -> list[tuple[str, bool]]:
        """Sentences to show, and whether each is a problem; each is given once."""
        notices, self._notices = self._notices, []
        return notices

    def prepare(self, model: ModelSection) -> None:
        """Start the engine if need be and load `model`, after the one that is being loaded; returns at once."""
        if self.state == "leaving":
            return
        if self._feed is not None:
            self._wish = model if model != self._prepared else None
            return
        self._prepared = model
        self._show("starting", Phase("loading", detail="starting the engine"))
        self._feed = Feed("engine start", lambda: self._prepare(model))
        self._feed.begin()

    def works(self) -> None:
        """An answer came: whatever was wrong before, there is an engine now."""
        if self.state == "off":
            self.state = "ready"
            self.phase = IDLE

    def leave(self, runs: Sequence[Run], key: str = "", sleep: Callable[[float], None] = time.sleep) -> None:
        """Stop `runs`, let the engine save and end; returns at once. `key` leaves at once, and is named."""
        self.state = "leaving"
        self.phase = Phase("saving", detail=f"and leaving; {key} again leaves at once" if key else "and leaving")
        for run in runs:
            run.stop()
        self._leaving = Feed("engine leave", lambda: self._leave(runs, sleep))
        self._leaving.begin()

    def drain(self) -> bool:
        """Fold in what happened; whether anything did."""
        changed = False
        if self._feed is not None:
            events, over = self._feed.drain()
            for event in events:
                self._fold(event)
            changed = bool(events) or over
            if over:
                self._end_of_preparing(self._feed.problem)
                self._feed = None
                self._go_on()
        return self._drain_leaving() or changed

    def _go_on(self) -> None:
        """Load what was wished for meanwhile."""
        wish, self._wish = self._wish, None
        if wish is not None:
            self.prepare(wish)

    def _drain_leaving(self) -> bool:
        if self._leaving is None:
            return False
        events, over = self._leaving.drain()
        for event in events:
            if isinstance(event, Flushed) and event.problem:
                self.farewell = f"not everything could be saved: {one_line(event.problem)}; it is computed again next time"
        if over:
            self._leaving = None
            self.left = True
        return over

    def _prepare(self, model: ModelSection) -> Iterator[object]:
        self._client.connect()
        request = self._client.next_request()
        self._client.send(Prepare(request=request, model=model))
        yield from self._client.replies(request)
        look = self._client.next_request()
        self._client.send(Look(request=look))
        yield from self._client.replies(look)

    def _leave(self, runs: Sequence[Run], sleep: Callable[[float], None]) -> Iterator[object]:
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and any(run.on_its_way for run in runs):
            sleep(0.02)
        yield self._client.leave(LEAVE_SECONDS)

    def _show(self, state: State, phase: Phase) -> None:
        """Stand as told, but once it is leaving: that is the last state."""
        if self.state != "leaving":
            self.state, self.phase = state, phase

    def _fold(self, event: object) -> None:
        match event:
            case Progress():
                detail = one_line(event.detail)
                self._show("loading", Phase("loading", event.done, event.total, event.per_second, detail))
            case Ready():
                self.ready = event
                self._show("ready", IDLE)
                self._notices += [(one_line(note), False) for note in event.notes]
            case Failed():
                self._show("off", Phase("off", detail=f"no model is loaded: {one_line(event.message)}"))
                self._notices.append((one_line(event.message), True))
            case _:
                pass

    def _end_of_preparing(self, problem: Exception | None) -> None:
        if problem is not None:
            text = str(problem) if isinstance(problem, LocalKVError) else repr(problem)
            self._notices.append((one_line(text), True))
            self._show("off", Phase("off", detail=f"the engine is off: {one_line(text)}"))
        elif self.phase.doing != "off":
            self._show(self.state, IDLE)
