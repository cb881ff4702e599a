"""`localkv keys` in a terminal: what is sent is shown by its bytes, its name and its meaning, and the terminal is given back."""

import os
import sys
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.keymap import DEFAULT_KEYMAP
from localkv.tui.keyecho import describe
from tests.terminal import Terminal


@pytest.mark.parametrize(
    ("sent", "name", "words"),
    [
        ("\x12", "ctrl+r", ["^R", "retry"]),
        ("\r", "enter", ["^M", "send", "open"]),
        ("\n", "ctrl+j", ["^J", "newline"]),
        ("\x1b[13;2u", "shift+enter", ["ESC [13;2u", "newline"]),
        ("\x1b\r", "alt+enter", ["ESC ^M", "newline"]),
        ("\x1b[13;3u", "alt+enter", ["ESC [13;3u", "newline"]),
        ("\x1b[5;5~", "ctrl+pageup", ["session.previous"]),
        ("\x1bOP", "f1", ["ESC OP", "help"]),
        ("\x1b", "escape", ["ESC", "cancel"]),
        ("\x08", "backspace", ["^H", "nothing"]),
        ("é", "é", ["é", "nothing"]),
    ],
)
def test_what_terminals_send(sent, name, words):
    """The sequences of usual terminals carry the names that the table of actions uses."""
    names, lines = describe(sent, DEFAULT_KEYMAP)
    assert names == [name]
    assert all(word in lines[0] for word in words)


def test_pastes_and_reports_are_no_keys():
    """A paste is counted and not obeyed; what a terminal reports by itself is named."""
    assert describe("\x1b[200~a\x03\x03b\x1b[201~", DEFAULT_KEYMAP)[1] == ["a paste of 4 characters"]
    assert "no key" in describe("\x1b[I", DEFAULT_KEYMAP)[1][0]


@given(st.text(min_size=1, max_size=12))
def test_anything_is_described(sent):
    """Whatever comes: no traceback, and nothing of it reaches the terminal as a control character."""
    for line in describe(sent, DEFAULT_KEYMAP)[1]:
        assert not any(character < " " or character == "\x7f" for character in line)


def test_echo_in_a_terminal(home):
    """Bytes, name, meaning; ctrl+c once is a key like others, twice leaves; the terminal is as it was."""
    with Terminal([sys.executable, "-m", "localkv", "keys"], dict(os.environ)) as terminal:
        before = termios.tcgetattr(terminal._master)
        terminal.wait_for("Press a key")
        terminal.send("\x12")
        terminal.wait_for("ctrl+r (^r)")
        assert "retry, anywhere" in terminal.text
        terminal.send("\x03")
        terminal.wait_for("ctrl+c (^c)")
        terminal.send("\x03")
        assert terminal.wait_for_end() == 0
        assert termios.tcgetattr(terminal._master) == before
