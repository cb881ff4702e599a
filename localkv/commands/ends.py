"""How a face without a screen is ended from outside: SIGTERM, and SIGHUP when its window is closed.

The signal raises SystemExit on the main thread: every `finally` between there and the top keeps what has arrived, lets the engine save for
a bounded time, and closes. A second signal does not interrupt that. Thread: main; elsewhere nothing is done.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """While the block runs, SIGTERM and SIGHUP unwind it; the exit code is 128 and the signal's number."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDINGS}
    heard = [number for number, former in before.items() if former not in (signal.SIG_IGN, None)]  # nohup stays deaf

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
