"""A thread that runs what it is handed, one after the other: the control thread of placement.

Knows nothing of what it runs. `ask` waits for the result, `tell` does not. The thread ends with `close`; what was told before is run.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Mailbox:
    """One thread, first come first served."""

    def __init__(self, name: str, report: Callable[[BaseException], None]) -> None:
        self._report = report
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def tell(self, work: Callable[[], None]) -> None:
        """Have `work` run on the thread; an error goes to `report`."""
        self._queue.put(work)

    def ask(self, work: Callable[[], T]) -> T:
        """The result of `work`, run on the thread. Its error is raised here. Not to be called on the thread itself."""
        assert threading.current_thread() is not self._thread, "a thread that waits for itself waits for ever"
        answer: Future[T] = Future()
        self._queue.put(lambda: _fulfil(answer, work))
        return answer.result()

    def close(self, timeout: float = 5.0) -> bool:
        """Run what was told so far, then end; False if the thread was still at work after `timeout` seconds."""
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - thread root: one failed message must not end the control thread
                self._report(error)


def _fulfil(answer: "Future[Any]", work: Callable[[], Any]) -> None:
    try:
        answer.set_result(work())
    except Exception as error:  # noqa: BLE001 - thread root of the asker: the error is raised where the answer is awaited
        answer.set_exception(error)
