"""A thread that runs what it is handed, one after the other: the control thread of placement.

Knows nothing of what it runs. `ask` waits for the result, `tell` does not, `tell_later` runs it when its time has come. The thread
ends with `close`: what was told before is run, what was told for later is not.
"""

import heapq
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from localkv.errors import CacheClosed

T = TypeVar("T")

Work = Callable[[], object]
"""What it gives is for whoever asks; nobody else gets it."""


class Mailbox:
    """One thread, first come first served."""

    def __init__(self, name: str, report: Callable[[BaseException], None]) -> None:
        self._report = report
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._later: list[tuple[float, int, Work]] = []
        """A heap of (monotonic time, number, work); only the thread looks at it."""
        self._numbered = 0
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def tell(self, work: Work) -> None:
        """Have `work` run on the thread; an error goes to `report`."""
        self._queue.put(work)

    def tell_later(self, seconds: float, work: Work) -> None:
        """Have `work` run on the thread in so many seconds, or soon after."""
        due = time.monotonic() + seconds
        self._queue.put(lambda: self._schedule(due, work))

    def ask(self, work: Callable[[], T]) -> T:
        """The result of `work`, run on the thread. Its error is raised here. Not to be called on the thread itself.

        Raises CacheClosed after `close`: nobody would ever answer.
        """
        assert threading.current_thread() is not self._thread, "a thread that waits for itself waits for ever"
        answer: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise CacheClosed("this model's cache is closed; ask again when a model is loaded")
            self._queue.put(lambda: _fulfil(answer, work))
        return answer.result()

    def close(self, timeout: float = 5.0) -> bool:
        """Run what was told so far, then end; False if the thread was still at work after `timeout` seconds."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _schedule(self, due: float, work: Work) -> None:
        self._numbered += 1
        heapq.heappush(self._later, (due, self._numbered, work))

    def _run(self) -> None:
        while True:
            work = self._next()
            if work is None:
                return
            try:
                work()
            except Exception as error:  # noqa: BLE001 - thread root: one failed message must not end the control thread
                self._report(error)

    def _next(self) -> Work | None:
        """What is to be run now; None to end."""
        if not self._later:
            return self._queue.get()
        try:
            seconds = self._later[0][0] - time.monotonic()
            if seconds > 0:
                return self._queue.get(timeout=seconds)
        except queue.Empty:
            pass  # its time has come
        return heapq.heappop(self._later)[2]


def _fulfil(answer: "Future[Any]", work: Callable[[], Any]) -> None:
    try:
        answer.set_result(work())
    except Exception as error:  # noqa: BLE001 - thread root of the asker: the error is raised where the answer is awaited
        answer.set_exception(error)
