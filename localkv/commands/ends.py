"""How a face is ended from outside: SIGTERM, and SIGHUP when its window is closed.

Without a screen the signal raises SystemExit on the main thread: every `finally` between there and the top keeps what has arrived, lets the
engine save for a bounded time, and closes. A second signal does not interrupt that. Thread: main; elsewhere nothing is done.
"""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk says that takes no more."""


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


def leave_dead_terminal() -> None:
    """Write into the void from now on if the terminal is gone: a failing write would end the thread that makes them."""
    for fd in (1, 2):
        if not os.isatty(fd):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def exit_within(seconds: float, exit_code: int) -> None:
    """End the process after `seconds`, whatever still waits for a terminal then. Everything must be durable by now."""
    timer = threading.Timer(seconds, os._exit, (exit_code,))
    timer.daemon = True
    timer.start()


def open_streams() -> None:
    """Standard streams that are there and take any text.

    A program may be started without them (`>&-`, a service): what is missing reads nothing and writes into the void. Bytes that are no
    text are read as such; characters that the locale does not have, or that no file has, are written with a backslash.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  as long as the process
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != errors:
            stream.reconfigure(errors=errors)


def settle_stdout() -> OSError | None:
    """Flush, and throw away what cannot be written, so that Python does not complain while ending.

    That the reader of our pipe or the terminal has gone is no failure; that the disk is full is one.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error if error.errno in FULL else None
    return None
