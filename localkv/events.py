"""What happened, for the log, the panel and `localkv logs`: frozen events, one JSON line each.

Never holds message text or token ids: a log is what people paste into bug reports. Thread: any; `EventLog.emit` takes a
lock for the length of one write. A log that cannot be written must not stop a chat: the failure is kept and shown once.
"""

import enum
import os
import threading
import time
from collections import deque
from pathlib import Path

import msgspec

Value = str | int | float | bool | None


class Reason(enum.StrEnum):
    """Why tokens that a cache should have covered were computed again: the closed list."""

    NEVER_CACHED = "never_cached"
    EVICTED = "evicted"
    BUDGET = "budget"
    MISSING_FILE = "missing_file"
    CHECKSUM = "checksum"
    SHORT_READ = "short_read"
    READ_ERROR = "read_error"
    IDENTITY_CHANGED = "identity_changed"
    FINGERPRINT_CHANGED = "fingerprint_changed"
    TEMPLATE_DIVERGED = "template_diverged"
    EDITED = "edited"
    NO_ROOM = "no_room"
    KIND_BOUNDARY = "kind_boundary"
    UNCACHED_KIND = "uncached_kind"
    CANCELLED = "cancelled"
    ENGINE_RESTARTED = "engine_restarted"
    CHOSEN_RECOMPUTE = "chosen_recompute"


class Event(msgspec.Struct, frozen=True):
    """One thing that happened. `kind` is a noun or noun.verb, such as "engine.start", "move", "fallback"."""

    time: float
    """Seconds since the epoch, wall clock."""
    kind: str
    fields: dict[str, Value] = {}


class EventLog:
    """A JSON-lines file of bounded size, and the newest events in memory."""

    def __init__(self, file: Path | None, max_bytes: int = 4 << 20, keep: int = 200) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self.recent: deque[Event] = deque(maxlen=keep)
        self.write_error: str = ""
        """Why the last event did not reach the file; empty when it did."""

    def emit(self, kind: str, /, **fields: Value) -> Event:
        """Record that `kind` happened, now."""
        event = Event(time.time(), kind, fields)
        with self._lock:
            self.recent.append(event)
            if self._file is not None:
                self._append(self._file, msgspec.json.encode(event) + b"\n")
        return event

    def _append(self, file: Path, line: bytes) -> None:
        try:
            if file.exists() and file.stat().st_size + len(line) > self._max_bytes:
                file.replace(file.with_suffix(".1.jsonl"))
            with open(file, "ab", opener=_private) as stream:
                stream.write(line)
            self.write_error = ""
        except OSError as error:
            self.write_error = f"{file}: {error.strerror}"


def read_events(file: Path, last: int) -> list[Event]:
    """The newest `last` events of a log, oldest first; lines that are not events are skipped and counted as one event."""
    events: list[Event] = []
    broken = 0
    for part in (file.with_suffix(".1.jsonl"), file):
        if not part.exists():
            continue
        for line in part.read_bytes().splitlines():
            try:
                events.append(msgspec.json.decode(line, type=Event))
            except msgspec.DecodeError:
                broken += 1
    if broken:
        events.append(Event(time.time(), "log.unreadable_lines", {"count": broken}))
    return events[-last:] if last > 0 else []


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
