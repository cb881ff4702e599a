"""The slash commands of a chat: the actions that can be written as a message, read from a line and listed for help.

Names, arguments and help come from the table of actions; what a command does is the face's. Pure.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from localkv.commands.actions import ACTIONS, Action

COMMANDS = tuple(action for action in ACTIONS if action.slash)
"""What can be written on the screen."""

PLAIN_COMMANDS = tuple(action for action in COMMANDS if action.plain)
"""What can be written in plain mode."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command as given: which, and the text after its name."""

    command: Action
    argument: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """A line that looks like a command and is none; `message` says so and names the nearest."""

    message: str


def parse(line: str, commands: Sequence[Action] = COMMANDS) -> Call | Mistake | None:
    """The command in `line`; None if it is a message. "//" at the start stands for a message that starts with "/"."""
    if not line.startswith("/") or line.startswith("//"):
        return None
    name, _, argument = line[1:].partition(" ")
    argument = argument.strip()
    command = next((command for command in commands if command.slash == name), None)
    if command is None:
        return Mistake(_unknown(name, commands))
    if argument and not command.arguments:
        return Mistake(f"/{name} takes nothing after it")
    if not argument and command.needs_words:
        return Mistake(f"write {command.usage}")
    return Call(command, argument)


def message_of(line: str) -> str:
    """The message in a line for which `parse` returned None."""
    return line[1:] if line.startswith("//") else line


def completions(line: str, commands: Sequence[Action] = COMMANDS) -> list[Action]:
    """The commands that `line` may become: those whose name begins with its first word, else those that contain it."""
    if not line.startswith("/") or line.startswith("//") or any(character.isspace() for character in line):
        return []
    word = line[1:]
    begin = [command for command in commands if command.slash.startswith(word)]
    return begin or [command for command in commands if word in command.slash]


def help_lines(commands: Sequence[Action] = COMMANDS) -> list[str]:
    """All commands with their help, aligned."""
    width = max(len(command.usage) for command in commands)
    return [f"{command.usage.ljust(width)}  {command.help}" for command in commands]


def _unknown(name: str, commands: Sequence[Action]) -> str:
    if any(command.slash == name for command in COMMANDS):
        return f"/{name} needs the screen; run localkv chat in a terminal"
    near = difflib.get_close_matches(name, [command.slash for command in commands], n=1)
    return f"there is no command /{name}" + (f"; did you mean /{near[0]}?" if near else "; /help shows all")
