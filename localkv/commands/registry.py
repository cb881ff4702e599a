"""The commands that a person can give inside a chat, once, for plain mode, the screen's palette, and help.

Only names, arguments and help: what a command does is the face's. Pure.
"""

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command; `arguments` as shown in help, empty for none, in brackets where they may be left out."""

    name: str
    arguments: str
    help: str

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.arguments}".rstrip()


COMMANDS = (
    SlashCommand("help", "", "show these commands"),
    SlashCommand("new", "[NAME]", "start a new conversation"),
    SlashCommand("open", "NAME", "go on with another conversation"),
    SlashCommand("list", "[WORD]", "show all conversations, or those with WORD in name or title"),
    SlashCommand("rename", "TITLE", "give this conversation another title"),
    SlashCommand("delete", "", "move this conversation to the trash; /undo brings it back"),
    SlashCommand("undo", "", "bring back what was deleted last"),
    SlashCommand("erase", "", "remove this conversation for good, with the cached state that is its alone"),
    SlashCommand("retry", "", "answer the last question again; the old answer is kept beside it"),
    SlashCommand("continue", "", "go on with an answer that was cut or stopped"),
    SlashCommand("system", "[TEXT]", "show the system prompt, or start a new conversation with another one"),
    SlashCommand("set", "[KEY VALUE]", "show or change how this conversation samples, such as: /set temperature 0.2"),
    SlashCommand("model", "[NAME]", "show or change the model of this conversation"),
    SlashCommand("stats", "", "show what the cache did"),
    SlashCommand("quit", "", "save and leave"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A command as given: which, and the text after its name."""

    command: SlashCommand
    argument: str


@dataclass(frozen=True, slots=True)
class Mistake:
    """A line that looks like a command and is none; `message` says so and names the nearest."""

    message: str


def parse(line: str) -> Call | Mistake | None:
    """The command in `line`; None if it is a message. "//" at the start stands for a message that starts with "/"."""
    if not line.startswith("/") or line.startswith("//"):
        return None
    name, _, argument = line[1:].partition(" ")
    argument = argument.strip()
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        near = difflib.get_close_matches(name, [command.name for command in COMMANDS], n=1)
        return Mistake(f"there is no command /{name}" + (f"; did you mean /{near[0]}?" if near else "; /help shows all"))
    if argument and not command.arguments:
        return Mistake(f"/{name} takes nothing after it")
    if not argument and command.arguments and not command.arguments.startswith("["):
        return Mistake(f"write {command.usage}")
    return Call(command, argument)


def message_of(line: str) -> str:
    """The message in a line for which `parse` returned None."""
    return line[1:] if line.startswith("//") else line


def help_lines() -> list[str]:
    """All commands with their help, aligned."""
    width = max(len(command.usage) for command in COMMANDS)
    return [f"{command.usage.ljust(width)}  {command.help}" for command in COMMANDS]
