"""Snapshots for the panels of all faces, about twice a second while something moves.

Torch-free. One thread of its own; the work thread says when a request begins and ends. After that the pulse goes on by itself
until the snapshots stop changing, because records are saved after an answer. Invariants: a snapshot that equals the last one
is not sent; nothing wakes while nothing moves.
"""

import threading
from collections.abc import Callable

from localkv.service.faces import Faces
from localkv.service.protocol import Snapshot

INTERVAL_SECONDS = 0.4
_QUIET_BEATS = 4
"""So many equal snapshots in a row, and nothing moves any more."""


class Pulse:
    """Looks at the engine and shows it to the faces."""

    def __init__(self, faces: Faces, look: Callable[[], Snapshot | None], interval: float = INTERVAL_SECONDS) -> None:
        self._faces = faces
        self._look = look
        self._interval = interval
        self._lock = threading.Lock()
        self._last: Snapshot | None = None
        self._busy = False
        self._moving = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        """Something moves from now on."""
        with self._lock:
            self._busy = True
            self._moving.set()

    def stop(self) -> None:
        """What moves now moves by itself, and may stop."""
        self._busy = False

    def end(self) -> None:
        """Let the thread in `run` return."""
        self._ended.set()
        self._moving.set()

    def beat(self) -> bool:
        """Send one snapshot to all faces if it differs from the last; whether it did."""
        if not self._faces.count:
            return False
        with self._lock:
            snapshot = self._look()
            if snapshot is None or snapshot == self._last:
                return False
            self._last = snapshot
            self._faces.send_all(snapshot)
            return True

    def run(self) -> None:
        """The thread: beat while something moves, until `end`."""
        quiet = 0
        while self._moving.wait() and not self._ended.wait(self._interval):
            changed = self.beat()
            quiet = 0 if changed or self._busy else quiet + 1
            if quiet >= _QUIET_BEATS:
                self._rest()

    def _rest(self) -> None:
        with self._lock:
            if not self._busy:
                self._moving.clear()
