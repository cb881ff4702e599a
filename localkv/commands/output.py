"""How plain commands print: one JSON document, aligned tables, and text of strangers made harmless for a terminal.

Knows no command. Everything goes to the stream it is given. Streams that are no terminal get text unchanged: a file or
a pipe must hold exactly what the model said.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from localkv.chat.migrations import Progress
from localkv.chat.visible import visible
from localkv.units import format_count


def for_stream(text: str, stream: TextIO) -> str:
    """`text` as it may be written to `stream`: nothing in it steers a terminal, if that is one."""
    return visible(text) if stream.isatty() else text


def say_to(stream: TextIO, text: str) -> None:
    """One line, or a few, at once. Remarks that nobody can read any more are no reason to stop."""
    with contextlib.suppress(OSError):
        print(for_stream(text, stream), file=stream, flush=True)


@dataclass(slots=True)
class ProgressLine:
    """How far something is: one line rewritten in place on a terminal, else a line every five seconds, if it takes so long."""

    stream: TextIO
    clock: Callable[[], float] = time.monotonic
    last: float = field(init=False)
    width: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.last = self.clock()

    @property
    def rewrites(self) -> bool:
        return self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def say(self, text: str) -> None:
        """Show `text`, unless the line was shown just now."""
        now = self.clock()
        if now - self.last < (0.2 if self.rewrites else 5.0):
            return
        self.last = now
        text = for_stream(text, self.stream)
        if self.rewrites:
            text = text[: shutil.get_terminal_size().columns - 1]
            self.stream.write("\r" + text.ljust(self.width))
            self.width = len(text)
            self.stream.flush()
        else:
            print(text, file=self.stream, flush=True)

    def end(self) -> None:
        """Leave the line free for what comes next."""
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0


def shown_on(bar: ProgressLine) -> Progress:
    """Long changes of the schema as sentences on `bar`."""

    def show(title: str, done: int, total: int) -> None:
        bar.say(f"bringing the conversations up to date ({title}): {format_count(done)} of {format_count(total)} messages")

    return show


def print_json(document: Any, stream: TextIO | None = None) -> None:
    """One JSON document and a newline, in pure ASCII: that loses nothing, and no terminal obeys it."""
    print(json.dumps(document, indent=2), file=stream or sys.stdout)


def print_table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None, stream: TextIO | None = None) -> None:
    """`rows` with columns as wide as their widest cell; the last column is not padded."""
    lines = [list(header), *rows] if header else list(rows)
    stream = stream or sys.stdout
    if not lines:
        return
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line[:-1], widths, strict=False)]
        print(for_stream("  ".join([*padded, line[-1]]).rstrip(), stream), file=stream)


def print_sections(sections: Mapping[str, Mapping[str, Any]], stream: TextIO | None = None) -> None:
    """Named sections of name and value, aligned over all of them."""
    stream = stream or sys.stdout
    width = max((len(name) for body in sections.values() for name in body), default=0)
    for title, body in sections.items():
        print(f"{title}", file=stream)
        for name, value in body.items():
            print(for_stream(f"  {name.ljust(width)}  {_text(value)}".rstrip(), stream), file=stream)


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """One line after the other."""
    stream = stream or sys.stdout
    for line in lines:
        print(for_stream(line, stream), file=stream)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
