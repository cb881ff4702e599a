"""Keys that are typed before the chat listens: none is lost, none is echoed, and they arrive in the order of typing.

A person who starts the chat begins to write at once. Three things took their keys: the terminal's line editing, which makes
Enter a new line and keeps ^q and ^s for itself; Textual, which gives a key to whatever has the focus, and before the composer
has it that is nobody, or the list; and a flush, of which there is none here. So the terminal stops editing lines as soon as
the program runs; what it had edited until then is read, with Enter made a key again; and the app (see `LocalKVApp.on_event`)
holds all input until the composer has the focus. Ctrl+C alone acts at once: it ends a start that was not meant.

Knows no widgets and imports nothing of them. Thread: main.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

PASTES_MARKED, PASTES_PLAIN = "\x1b[?2004h", "\x1b[?2004l"
"""A paste into a terminal that does not mark it is typed: each of its lines would be sent."""

_LINE_EDITED = str.maketrans({"\n": "\r", "\0": "\x04"})
"""What line editing made of Enter and ctrl+d. ctrl+j is a new line to it, too: it becomes Enter, which is typed more often."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A terminal as it was found."""

    keys: str = ""
    """What was typed before the program ran, as the terminal sends it without line editing."""
    settings: list[Any] | None = None
    """The terminal's settings; None where it has none."""


@contextlib.contextmanager
def kept_keys(stream: TextIO | None = None, screen: TextIO | None = None) -> Iterator[Typed]:
    """While the block runs, the terminal behind `stream` keeps what is typed for whoever reads it; later it is as before.

    By default the terminal of standard input and output.
    """
    stream, screen = stream or sys.stdin, screen or sys.stdout
    if os.name == "nt" or not stream.isatty():
        yield Typed()
        return
    import termios

    terminal = stream.fileno()
    before = termios.tcgetattr(terminal)
    termios.tcsetattr(terminal, termios.TCSANOW, _unedited(before))
    typed = _waiting(terminal)
    if before[0] & termios.ICRNL and before[3] & termios.ICANON:
        typed = typed.translate(_LINE_EDITED)
    screen.write(PASTES_MARKED)
    screen.flush()
    try:
        yield Typed(typed, before)
    finally:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
            screen.write(PASTES_PLAIN)
            screen.flush()


def _unedited(settings: list[Any]) -> list[Any]:
    """`settings` without line editing, echo, flow control and keys that stop the program, except Ctrl+C."""
    import termios

    changed = [*settings[:6], list(settings[6])]
    changed[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    changed[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    changed[3] |= termios.NOFLSH
    changed[6][termios.VMIN] = 1
    changed[6][termios.VTIME] = 0
    off = os.fpathconf(0, "PC_VDISABLE")
    for key in (termios.VSUSP, termios.VQUIT):
        changed[6][key] = bytes([off])
    return changed


def _waiting(terminal: int) -> str:
    """What can be read without waiting."""
    import fcntl
    import struct
    import termios

    found = b""
    while (count := struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, b"\0" * 4))[0]) > 0:
        chunk = os.read(terminal, count)
        if not chunk:
            break
        found += chunk
    return found.decode("utf-8", "replace")
