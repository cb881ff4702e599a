"""A blocking source of events on a thread of its own, read by the screen when it has time.

The thread only appends to a deque: the engine never waits for a repaint. It is a daemon, because what it waits for may
outlive the screen. `drain` is called on the UI's thread.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator


class Feed:
    """Everything that `source` yields, and the exception that ended it."""

    def __init__(self, name: str, source: Callable[[], Iterator[object]]) -> None:
        self._name = name
        self._source = source
        self._events: deque[object] = deque()
        self._over = threading.Event()
        self.problem: Exception | None = None
        """Why it ended early; to be read after `drain` said that it is over."""

    @property
    def working(self) -> bool:
        """Whether more may come; any thread may ask."""
        return not self._over.is_set()

    def begin(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def drain(self) -> tuple[list[object], bool]:
        """What came since the last call, and whether nothing more will come."""
        over = self._over.is_set()
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events, over

    def _work(self) -> None:
        try:
            for event in self._source():
                self._events.append(event)
        except Exception as error:  # noqa: BLE001  thread root: what is not handed on is seen by nobody
            self.problem = error
        finally:
            self._over.set()
