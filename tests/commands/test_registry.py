"""The commands inside a chat: parsing and help. No face needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.registry import COMMANDS, Call, Mistake, help_lines, message_of, parse


def test_names_are_unique_and_simple():
    """A name is one lower-case word, once."""
    names = [command.slash for command in COMMANDS]
    assert len(set(names)) == len(names)
    assert all(name.isalpha() and name.islower() for name in names)


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [
        ("/help", "help", ""),
        ("/new", "new", ""),
        ("/new  a b ", "new", "a b"),
        ("/set temperature 0.2", "set", "temperature 0.2"),
    ],
)
def test_parse(line, name, argument):
    """Name and argument, without the spaces around."""
    call = parse(line)
    assert isinstance(call, Call)
    assert (call.command.slash, call.argument) == (name, argument)


@pytest.mark.parametrize(
    ("line", "words"),
    [("/quti", "/quit"), ("/", "/help"), ("/open", "/open NAME"), ("/quit now", "nothing"), ("/xyz", "/help")],
)
def test_mistakes(line, words):
    """A mistake is answered with what could be meant; it is never sent to the model."""
    mistake = parse(line)
    assert isinstance(mistake, Mistake)
    assert words in mistake.message


@given(st.text() | st.text("/ ab"))
def test_everything_else_is_a_message(text):
    """Only lines that begin with one slash are commands; a message arrives as typed, less the slash that protects it."""
    if text.startswith("/") and not text.startswith("//"):
        assert parse(text) is not None
    else:
        assert parse(text) is None
        assert message_of(text) == (text[1:] if text.startswith("//") else text)


def test_help_is_aligned():
    """Each command has one line of help, in one column."""
    lines = help_lines()
    assert len(lines) == len(COMMANDS)
    assert len({line.index(command.help) for line, command in zip(lines, COMMANDS, strict=True)}) == 1
