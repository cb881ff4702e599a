"""`localkv keys` on a terminal: shows what it sends for each key, what that key is called here, and what it does.

The terminal is put into the state that the chat puts it into, so that keys arrive as they arrive there, and is given back as
it was. Thread: main; blocks until ctrl+c was pressed twice or the terminal is gone.
"""

import contextlib
import os
import select
import sys
from collections.abc import Iterator

from textual.events import Key, MouseEvent, Paste

from localkv.commands.keymap import Keymap, key_label
from localkv.commands.keys import meaning
from localkv.commands.output import print_lines
from localkv.tui.listening import Listener

BEGIN, END = "\x1b[?2004h\x1b[>25u", "\x1b[<u\x1b[?2004l"
"""Pastes in brackets and keys told apart, as the chat asks for."""

_REST_SECONDS = 0.05
"""A key of several bytes may come in pieces over a network."""

LEAVE = "ctrl+c"


def run(keymap: Keymap) -> None:
    """Echo keys until ctrl+c was pressed twice."""
    terminal = sys.stdin.fileno()
    before = ""
    with _listening(terminal):
        print_lines(["Press a key: what the terminal sends, its name, what it does. ctrl+c twice leaves.", *keymap.notes])
        while data := _read(terminal):
            names, lines = describe(data.decode("utf-8", "replace"), keymap)
            print_lines(lines)
            if LEAVE in names and (before == LEAVE or names.count(LEAVE) > 1):
                return
            before = names[-1] if names else ""


def describe(sent: str, keymap: Keymap) -> tuple[list[str], list[str]]:
    """The names of the keys in `sent`, and lines that tell of them."""
    listener = Listener()
    events = [*listener.feed(sent), *listener.end()]
    names, lines = [], []
    shown = escaped(sent)
    for event in events:
        if isinstance(event, Key):
            names.append(event.key)
            label = key_label(event.key)
            called = event.key if label == event.key else f"{event.key} ({label})"
            lines.append(f"{shown:<16} {called:<24} {meaning(event.key, keymap)}")
        elif isinstance(event, Paste):
            lines.append(f"a paste of {len(event.text):,} characters")
        elif not isinstance(event, MouseEvent):
            lines.append(f"{shown:<16} {type(event).__name__}: no key")
    return names, lines or [f"{shown:<16} no key that is known here"]


def escaped(sent: str) -> str:
    """Bytes from a terminal as people write them: ESC for the escape character, ^A for control characters."""
    return "".join(_escaped(character) for character in sent[:64])


def _escaped(character: str) -> str:
    if character == "\x1b":
        return "ESC "
    if character < " ":
        return f"^{chr(ord(character) + 64)}"
    return {"\x7f": "^?", " ": "SPACE"}.get(character, character)


def _read(terminal: int) -> bytes:
    """What one key sends; empty once the terminal is gone."""
    data = b""
    try:
        while not data or select.select([terminal], [], [], _REST_SECONDS)[0]:
            more = os.read(terminal, 4096)
            if not more:
                break
            data += more
    except OSError:
        return b""
    return data


@contextlib.contextmanager
def _listening(terminal: int) -> Iterator[None]:
    """Every key arrives at once and unchanged, ctrl+c too."""
    import termios

    before = termios.tcgetattr(terminal)
    raw = termios.tcgetattr(terminal)
    raw[0] &= ~(termios.IXON | termios.ICRNL | termios.INLCR | termios.IGNCR)
    raw[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
    termios.tcsetattr(terminal, termios.TCSADRAIN, raw)
    sys.stdout.write(BEGIN)
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write(END)
        sys.stdout.flush()
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
