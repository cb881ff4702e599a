"""Whether an engine that owes an answer is still alive: silence is counted, asked into, and ended.

Torch-free; knows no sockets. Time is counted in waits that this process really made: a face that was stopped itself (Ctrl+Z, sleep) must
not take that for the engine's silence, and CLOCK_MONOTONIC stands still while the machine sleeps. Threads: any.
"""

import contextlib
import os
import signal
import threading
import time
from enum import Enum, auto

PROBE_SECONDS = 2.0
"""After so much silence the engine is asked for a sign of life, which it gives beside its work."""

SILENCE_SECONDS = 60.0
"""An engine that has answered nothing for so long hangs: its device, its disk, or somebody stopped it."""

LOADING_FACTOR = 5.0
"""Before its first answer an engine loads libraries and weights, which a slow disk can hold up for minutes."""


class Sign(Enum):
    """What to do after a wait in vain."""

    WAIT = auto()
    PROBE = auto()
    HUNG = auto()


class Watch:
    """The silence of one engine."""

    def __init__(self, silence_seconds: float = SILENCE_SECONDS, probe_seconds: float = PROBE_SECONDS) -> None:
        self.probe_seconds = probe_seconds
        self._bound = silence_seconds
        self._lock = threading.Lock()
        self._silent = 0.0
        self._probed_at = 0.0
        """The silence at which the engine was asked last."""
        self._counted_at = time.monotonic()
        self._has_worked = False

    def heard(self, *, worked: bool) -> None:
        """A frame came; `worked`: one that only an engine with a model sends."""
        with self._lock:
            self._silent = self._probed_at = 0.0
            self._counted_at = time.monotonic()
            self._has_worked = self._has_worked or worked

    def waited(self, seconds: float) -> Sign:
        """Somebody waited so long in vain. Two who wait at once are one wait."""
        now = time.monotonic()
        with self._lock:
            self._silent += min(seconds, now - self._counted_at)
            self._counted_at = now
            if self._silent >= self._bound * (1 if self._has_worked else LOADING_FACTOR):
                return Sign.HUNG
            if self._silent - self._probed_at < self.probe_seconds:
                return Sign.WAIT
            self._probed_at = self._silent
            return Sign.PROBE

    def hangs(self, waited_seconds: float) -> bool:
        """Whether an engine that has worked before gave no sign of life in all of a wait that was so long."""
        with self._lock:
            return self._has_worked and self._silent >= waited_seconds - self.probe_seconds > 0


def end_process(pid: int) -> None:
    """End a process that does not react to anything else."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))
