"""The slow beat of the face: once a second, and only while something is seen that shows the passing of time.

One timer, however many want it. Knows nobody: who is seen says so, and says when it is not any more. Invariant: while nobody
watches, the timer rests, so that a face on which nothing moves wakes for nothing. Thread: the UI's.
"""

from collections.abc import Callable
from typing import Protocol

from textual.events import Hide, Show

from localkv.tui.rowsview import RowsView

SECONDS = 1.0


class Beating(Protocol):
    """A timer that can rest."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Heart:
    """Calls those who watch. `every` makes the timer, when it is first wanted."""

    def __init__(self, every: Callable[[float, Callable[[], None]], Beating]) -> None:
        self._every = every
        self._timer: Beating | None = None
        self._watchers: dict[str, Callable[[], None]] = {}

    def watch(self, name: str, show: Callable[[], None]) -> None:
        """Call `show` with each beat from now on; whoever watched under this name does so no more."""
        self._watchers[name] = show
        if self._timer is None:
            self._timer = self._every(SECONDS, self._beat)
        elif len(self._watchers) == 1:
            self._timer.resume()

    def leave(self, name: str) -> None:
        """Call it no more: it is not seen now."""
        self._watchers.pop(name, None)
        if not self._watchers and self._timer is not None:
            self._timer.pause()

    def _beat(self) -> None:
        for show in list(self._watchers.values()):
            show()


class LiveRows(RowsView):
    """Rows that have `show` called once a second while they are seen."""

    def __init__(self, heart: Heart, show: Callable[[], None], *, id: str) -> None:  # noqa: A002  textual's name
        super().__init__(id=id, can_focus=True)
        self._heart = heart
        self._show = show

    def on_show(self, event: Show) -> None:
        """They came into view."""
        del event
        self._heart.watch(f"rows {self.id}", self._show)

    def on_hide(self, event: Hide) -> None:
        """They are not seen any more."""
        del event
        self._heart.leave(f"rows {self.id}")
