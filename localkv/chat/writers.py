"""Which process streams an answer, and whether it still lives.

Two faces may share the database. Only an answer whose writer is gone was cut by a crash; the other face's answer is left
alone. Thread: any; keeps no state.
"""

import os

import psutil

_CLOCK_SLACK_SECONDS = 5.0
"""Start times are derived from the wall clock, which may have been set since."""


def this_process() -> str:
    """Our process as `is_elsewhere` understands it: its number and its start, because numbers are used again."""
    return f"{os.getpid()}:{psutil.Process().create_time():.2f}"


def is_elsewhere(writer: str | None) -> bool:
    """Whether `writer` is a living process other than this one."""
    number, _, start = (writer or "").partition(":")
    if not number.isdecimal() or int(number) == os.getpid():
        return False
    try:
        process = psutil.Process(int(number))
        return bool(process.is_running() and abs(process.create_time() - float(start)) < _CLOCK_SLACK_SECONDS)
    except psutil.AccessDenied:
        return True
    except (psutil.Error, ValueError):
        return False
