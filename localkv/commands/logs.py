"""`localkv logs`: the newest events, or the engine's own output. Neither holds message text."""

import time
from pathlib import Path

import msgspec

from localkv.commands.output import print_json, print_lines
from localkv.commands.setup import Setup
from localkv.errors import PathError
from localkv.events import Event, read_events

_TAIL_BYTES = 1 << 20


def run(setup: Setup, *, last: int, engine: bool, as_json: bool) -> None:
    """Print the newest `last` events (or lines of the engine's output), oldest first. Raises PathError."""
    try:
        if engine:
            lines = tail(setup.home.engine_log, last)
            print_json(lines) if as_json else print_lines(lines)
            return
        events = read_events(setup.home.event_log, last)
    except OSError as error:
        raise PathError(f"the log cannot be read: {error}") from error
    if as_json:
        print_json(msgspec.to_builtins(events))
    else:
        print_lines(describe(event) for event in events)


def describe(event: Event) -> str:
    """An event as one line: local time, kind, fields."""
    try:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    except (ValueError, OverflowError, OSError):  # a line that no clock has written
        when = f"{event.time:.0f}".ljust(19)[:19]
    fields = "  ".join(f"{name}={value}" for name, value in event.fields.items())
    return f"{when}  {event.kind:<20} {fields}".rstrip()


def tail(file: Path, last: int) -> list[str]:
    """The last `last` lines of `file`; none if there is no such file."""
    if not file.exists():
        return []
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TAIL_BYTES))
        return stream.read().decode("utf-8", errors="replace").splitlines()[-last:] if last else []
