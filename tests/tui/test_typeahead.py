"""Keys typed before the chat listens: kept from the first moment, in order, with their meaning, and the terminal as it was."""

import os
import pty
import select
import sys
import termios
from dataclasses import dataclass

import pytest

from localkv.tui.typeahead import PASTES_MARKED, PASTES_PLAIN, Typed, kept_keys
from tests.terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

TYPIST = [sys.executable, "-m", "tests.tui.typist"]
CTRL_Q = "\x11"


@dataclass
class Line:
    """A pseudo-terminal: a person's end, and a program's."""

    person: int
    source: object
    screen: object

    def type(self, keys, *, echoed):
        """Type, and wait until the kernel has handed it over."""
        os.write(self.person, keys)
        select.select([self.person if echoed else self.source], [], [])

    def waiting(self):
        """What a program that reads now would get."""
        return self._read(self.source.fileno())

    def shown(self):
        return self._read(self.person)

    def _read(self, end):
        os.set_blocking(end, False)
        try:
            return os.read(end, 1 << 16)
        except BlockingIOError:
            return b""

    @property
    def settings(self):
        return termios.tcgetattr(self.person)


@pytest.fixture
def line():
    person, program = pty.openpty()
    with os.fdopen(program, closefd=False) as source, os.fdopen(program, "w") as screen:
        yield Line(person, source, screen)
    os.close(person)


def test_what_line_editing_holds_is_read_as_keys(line):
    """Before the program runs, the terminal makes Enter a new line and ctrl+d an end: both become keys again."""
    line.type("héllo\rmore\x04".encode(), echoed=True)
    with kept_keys(line.source, line.screen) as typed:
        assert typed.keys == "héllo\rmore\x04"


def test_a_line_that_is_edited_before_the_start_stays_edited(line):
    """Backspace and ctrl+u work at once; what they took away does not come back."""
    line.type(b"oops\x15good\x7f\x7flf", echoed=True)
    with kept_keys(line.source, line.screen) as typed:
        assert typed.keys == "golf"


def test_meanwhile_every_key_waits_unseen(line):
    """Nothing is echoed, translated, taken for flow control or for a signal; what nobody read is left for the shell."""
    keys = b"a\r\n\x11\x13\x1a\x1c\x16\x0f\x7f\x15\x04z"
    with kept_keys(line.source, line.screen):
        line.shown()
        line.type(keys, echoed=False)
        assert line.shown() == b""
        assert line.waiting() == keys
        line.type(b"for the shell", echoed=False)
    assert line.waiting() == b"for the shell"


def test_the_terminal_is_as_it_was(line):
    """Whether the chat ends well or not, the settings are the old ones; the chat knows them for what it starts meanwhile."""
    before = line.settings
    with pytest.raises(ValueError, match="no"), kept_keys(line.source, line.screen) as typed:
        assert typed.settings == before
        assert line.settings != before
        raise ValueError("no")
    assert line.settings == before


def test_pastes_are_marked_from_the_start(line):
    """Without marks each line of a paste would be sent."""
    with kept_keys(line.source, line.screen):
        assert line.shown() == PASTES_MARKED.encode()
    assert line.shown() == PASTES_PLAIN.encode()


def test_a_pipe_has_no_keys(tmp_path):
    """Where no person types, nothing is changed and nothing is written."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as source, os.fdopen(writer, "w") as screen, kept_keys(source, screen) as typed:
        assert typed == Typed()


def typed_while_starting(world, conversation, columns, start):
    """Type from before the program runs until its engine is ready, without a pause; what was typed after `start`."""
    with Terminal(TYPIST, dict(os.environ), columns=columns) as terminal:
        terminal.send(start)
        typed = ""
        number = after = 0
        while after < 20:
            assert terminal.process.poll() is None, terminal.text
            typed += f"{number},"
            terminal.send(f"{number},")
            terminal.pump(0.01)
            number += 1
            after += "ready" in terminal.text
        terminal.wait_for(lambda _: world.store.get(conversation).draft.endswith(f",{number - 1},"))
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
    return typed


@pytest.mark.slow
@pytest.mark.parametrize("columns", [130, pytest.param(90, marks=pytest.mark.slow)], ids=["with a picture", "without"])
def test_no_key_is_lost_whenever_it_is_typed(world, columns):
    """Whatever moment of the start a key falls into: it is in the composer, and in its place."""
    conversation = world.talk("first", "hello", "Hi.")
    typed = typed_while_starting(world, conversation, columns, "")
    assert world.store.get(conversation).draft == typed


@pytest.mark.slow
def test_enter_sends_whenever_it_is_typed(world):
    """A message and its Enter, typed before the program even runs, are sent; what follows is the next message's draft."""
    conversation = world.talk("first", "hello", "Hi.")
    typed = typed_while_starting(world, conversation, 130, "And now?\r")
    assert [message.text for message in world.store.path(conversation)][2:] == ["And now?", "Yes."]
    assert world.store.get(conversation).draft == typed


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", [0, 60, 120, 250, 500])
def test_leaving_is_obeyed_whenever_it_is_typed(world, milliseconds):
    """^q in the middle of the start ends the chat; only line editing, before the program runs, may take it for itself."""
    world.talk("first", "hello", "Hi.")
    with Terminal(TYPIST, dict(os.environ), columns=130) as terminal:
        terminal.wait_for(lambda _: terminal.marks_pastes)
        terminal.pump(milliseconds / 1_000)
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0


MARKED = "\x1b[200~{}\x1b[201~"


def paste(terminal, text):
    """Paste as a terminal that marks pastes does: piece by piece, while the program writes."""
    terminal.wait_for(lambda _: terminal.marks_pastes)
    pasted = MARKED.format(text.replace("\n", "\r"))
    for at in range(0, len(pasted), 1 << 11):
        assert terminal.process.poll() is None, terminal.text
        terminal.send(pasted[at : at + (1 << 11)])
        terminal.pump(0)


@pytest.mark.slow
def test_a_paste_into_the_start_is_one_paste(world):
    """Lines that are pasted before the chat listens are not sent one by one: they are a chip that waits for Enter."""
    conversation = world.talk("first", "hello", "Hi.")
    lines = "\n".join(f"line {number}" for number in range(60))
    with Terminal(TYPIST, dict(os.environ), columns=130) as terminal:
        paste(terminal, lines)
        terminal.send(" what?")
        terminal.wait_for("[pasted 60 lines] what?")
        terminal.send("\r")
        terminal.wait_for("Yes.")
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
    assert [message.text for message in world.store.path(conversation)][2:] == [f"{lines} what?", "Yes."]


@pytest.mark.slow
def test_a_paste_of_a_megabyte_through_the_terminal(world):
    """One chip, keys that work after it, and a question with every byte of it; the draft of it outlives the program."""
    conversation = world.talk("first", "hello", "Hi.")
    text = "\n".join(f"{number:07} " + "x" * 91 for number in range(10_486))
    assert len(text) > 1 << 20
    with Terminal(TYPIST, dict(os.environ), columns=130) as terminal:
        terminal.wait_for("ready")
        paste(terminal, text)
        terminal.wait_for("[pasted 10,486 lines]")
        terminal.send(" why?")
        terminal.wait_for("lines] why?")
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
    with Terminal(TYPIST, dict(os.environ), columns=130) as terminal:
        terminal.wait_for("[pasted 10,486 lines] why?")
        terminal.send("\r")
        terminal.wait_for("Yes.")
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
    assert [message.text for message in world.store.path(conversation)][2:] == [f"{text} why?", "Yes."]
