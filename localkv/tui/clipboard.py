"""Copying: by a program of this machine where there is one, else by the terminal (OSC 52); the notice says by which.

Programs are better known to work: terminals may ignore OSC 52 or cut it without a word. Over SSH only the terminal is on the
person's machine, so programs are left out there; inside tmux its own buffer is loaded, which passes text on to the terminal.
Choosing is pure. Thread: `put` runs a program on a thread of its own; the rest is the UI's.
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from textual.screen import Screen

from localkv.errors import ClipboardRefused

LIMIT_SECONDS = 3.0
"""A clipboard program that has not taken the text by then never will."""

TERMINAL_LIMIT = 74_000
"""Many terminals take no more than 100,000 characters of base64, which is so much text."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that takes text from its standard input."""

    name: str
    arguments: tuple[str, ...] = ()
    encoding: str = "utf-8"


def find_tool(environ: Mapping[str, str], platform: str, exists: Callable[[str], object]) -> Tool | None:
    """The program that reaches the person's clipboard; None if only the terminal can."""
    found = [tool for tool in _candidates(environ, platform) if exists(tool.name)]
    return found[0] if found else None


def _candidates(environ: Mapping[str, str], platform: str) -> list[Tool]:
    tools = []
    if environ.get("TMUX"):
        tools.append(Tool("tmux", ("load-buffer", "-w", "-")))
    if environ.get("SSH_TTY") or environ.get("SSH_CONNECTION"):
        return tools
    if environ.get("WAYLAND_DISPLAY"):
        tools.insert(0, Tool("wl-copy"))
    if environ.get("DISPLAY"):
        tools.insert(0 if not environ.get("WAYLAND_DISPLAY") else 1, Tool("xclip", ("-selection", "clipboard")))
    if platform == "darwin":
        tools.insert(0, Tool("pbcopy"))
    if platform == "win32" or environ.get("WSL_DISTRO_NAME"):
        tools.append(Tool("clip.exe", encoding="utf-16"))
    return tools


def give(tool: Tool, text: str) -> None:
    """Have `tool` take `text`. Raises ClipboardRefused."""
    try:
        subprocess.run(
            [tool.name, *tool.arguments],
            input=text.encode(tool.encoding, "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise ClipboardRefused(f"{tool.name} did not take the text in {LIMIT_SECONDS:.0f} s") from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise ClipboardRefused(f"{tool.name} failed ({error})") from error


def put(screen: Screen[None], tool: Tool | None, text: str, what: str, say: Callable[[str], None]) -> None:
    """Copy `text` and say how; `what` names it. Without a tool, or if it fails, the terminal is asked."""
    if tool is None:
        say(through_terminal(screen, text, what))
        return
    screen.run_worker(lambda: _put(screen, tool, text, what, say), thread=True, group="clipboard", exit_on_error=False)


def _put(screen: Screen[None], tool: Tool, text: str, what: str, say: Callable[[str], None]) -> None:
    try:
        give(tool, text)
        said = f"{what}: {len(text):,} characters copied ({tool.name})"
    except ClipboardRefused as error:
        said = f"{error}; {screen.app.call_from_thread(through_terminal, screen, text, what)}"
    screen.app.call_from_thread(say, said)


def through_terminal(screen: Screen[None], text: str, what: str) -> str:
    """Ask the terminal to copy `text`; what there is to say about it."""
    screen.app.copy_to_clipboard(text)
    size = len(text.encode("utf-8", "replace"))
    cut = "; many terminals take only the first 74,000 bytes" if size > TERMINAL_LIMIT else ""
    return f"{what}: {len(text):,} characters sent to the terminal's clipboard (OSC 52){cut}"
