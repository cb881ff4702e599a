"""A terminal for tests: a program in a pseudo-terminal, and the screen as a person would read it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import pyte

PATIENCE_SECONDS = 240.0
"""The machine may be busy; a test waits for what it expects and no longer."""

_UNKNOWN = re.compile(
    rb"\x1b\[[<>=?][0-9;:]*[a-zA-Z]|\x1b\[[0-9;]*\$p|\x1b\[[0-9;]*\x20q|\x1bP.*?\x1b\\|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)",
    re.DOTALL,
)
"""Sequences that pyte would print instead of ignoring them: modes, queries, titles."""


class Terminal:
    """`command` in a terminal of `columns` x `rows`. Nothing but the terminal tells its size, unless `more` does."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        columns: int = 120,
        rows: int = 36,
        more: dict[str, str] | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.marks_pastes = False
        """Whether the program has asked for pastes with marks around them: the first thing that the chat writes."""
        self._pending = b""
        self.sent_back = b""
        """All that the program wrote."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment | {"TERM": "xterm-256color"} | (more or {}),
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """The screen, line by line."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def send(self, keys: str) -> None:
        """Type `keys`."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """The person drags the window's corner."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, what: str | Callable[[str], bool], seconds: float = PATIENCE_SECONDS) -> str:
        """Read until the screen shows `what`; returns the screen then."""
        shows = what if callable(what) else lambda text: what in text
        deadline = time.monotonic() + seconds
        while not shows(self.text):
            left = deadline - time.monotonic()
            assert left > 0, f"never shown: {what}\n{self.text}"
            self._read(min(left, 0.2))
        return self.text

    def wait_for_end(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Read until the program has ended; returns its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running\n{self.text}"
            self._read(0.2)
        return self.process.returncode

    def pump(self, seconds: float) -> None:
        """Show what the program writes, for about so long at most."""
        self._read(seconds)

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return
        try:
            fresh = os.read(self._master, 1 << 16)
            self.sent_back += fresh
            data = self._pending + fresh
        except OSError:
            return  # the program has closed its end
        self.marks_pastes |= b"\x1b[?2004h" in data
        # A sequence may be cut by the read: keep what looks unfinished for the next one.
        cut = data.rfind(b"\x1b", max(0, len(data) - 64))
        whole, self._pending = (data, b"") if cut < 0 or _ends(data[cut:]) else (data[:cut], data[cut:])
        self._stream.feed(_UNKNOWN.sub(b"", whole))


def _ends(tail: bytes) -> bool:
    """Whether the last escape sequence of a chunk is complete."""
    return bool(re.match(rb"\x1b(\[[0-?]*[ -/]*[@-~]|[PX^_\]].*?(\x07|\x1b\\)|[^\[PX^_\]])", tail, re.DOTALL))
