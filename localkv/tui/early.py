"""The first frame, drawn before the screen's own library is imported: list, title, prompt, where the chat will draw them.

Importing Textual takes four times as long as reading the list. Knows no widgets; imports nothing but the store, and is only
a picture: whatever is in its way (narrow terminal, no database yet, a theme that can't be read), it draws nothing and the
chat says what is wrong. The terminal is in its alternate screen afterwards, where the chat goes on; keys typed meanwhile are
kept by `typeahead`. Thread: main.
"""

import contextlib
import os
import re
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation
from localkv.chat.visible import one_line
from localkv.commands.order import place_of
from localkv.commands.output import ProgressLine, shown_on
from localkv.config import Config
from localkv.errors import LocalKVError
from localkv.paths import Home, resource_dir
from localkv.tui.glyphs import Glyphs, choose_glyphs
from localkv.tui.listing import UNTITLED, Heading, ordered, to_item, with_headings
from localkv.units import format_age

LIST_CELLS = 26
PANEL_CELLS = 35
MIN_WIDTH, WIDE, MIN_HEIGHT = 100, 120, 20
"""As in layout.py: below these sizes the chat begins without its list."""

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HEX = re.compile(r"#[0-9a-fA-F]{6}")


@dataclass(frozen=True, slots=True)
class Ink:
    """Escape sequences of a theme; all empty where colours are not wanted or not known."""

    ground: str = ""
    side: str = ""
    text: str = ""
    muted: str = ""
    rule: str = ""
    bold: str = "\x1b[1m"
    off: str = "\x1b[0m"


@contextlib.contextmanager
def first_frame(
    home: Home,
    config: Config,
    *,
    theme: str | None = None,
    session: str | None = None,
    resume: bool = False,
    stream: TextIO | None = None,
) -> Iterator[bool]:
    """Draw the list at once, then run the body, which starts the chat; gives whether anything was drawn.

    The chat will open `session`, or with `resume` the conversation that was used last.

    If the body fails before the chat was there, the terminal is back on its main screen.
    """
    stream = stream or sys.stdout
    frame = _frame(home, config, theme or config.chat.theme, session, stream, resume=resume)
    if not frame:
        yield False
        return
    stream.write(frame)
    stream.flush()
    ended_well = False
    try:
        yield True
        ended_well = True
    finally:
        if not ended_well:
            stream.write(LEAVE)
            stream.flush()


def picture(
    conversations: Sequence[Conversation],
    size: tuple[int, int],
    now: float,
    ink: Ink,
    glyphs: Glyphs,
    *,
    title: str = UNTITLED,
    panel: bool,
) -> list[str]:
    """The rows of the first frame, each as wide as the screen."""
    width, height = size
    side = _side(conversations, height - 1, now, ink, glyphs)
    right = PANEL_CELLS if panel and width >= WIDE else 0
    main = width - LIST_CELLS - 1 - right
    bar, edge = ("|", "|") if glyphs.ascii else ("▕", "▏")
    rows = []
    for y, left in enumerate(side):
        middle = {0: f" {ink.bold}{set_cell_size(title, main - 1)}", 1: f"{ink.rule}{glyphs.rule * main}"}.get(y, " " * main)
        if y == height - 2:
            middle = " >".ljust(main)
        end = f"{ink.side}{ink.rule}{edge}{' ' * (right - 1)}" if right else ""
        rows.append(f"{ink.side}{left}{ink.rule}{bar}{ink.off}{ink.ground}{ink.text}{middle}{ink.off}{end}{ink.off}")
    return [*rows, f"{ink.ground}{' ' * width}{ink.off}"]


def _side(conversations: Sequence[Conversation], rows: int, now: float, ink: Ink, glyphs: Glyphs) -> list[str]:
    """The list, `rows` tall and LIST_CELLS wide: in the order of the list that takes its place, with its headings."""
    head = f" Conversations  {ink.off}{ink.side}{ink.muted}{str(len(conversations)).ljust(LIST_CELLS - 16)}"
    lines = [f"{ink.text}{ink.bold}{head}", " " * LIST_CELLS]
    room = LIST_CELLS - 9
    items = ordered(map(to_item, conversations))
    for each in with_headings(items[:rows], "newest", now)[: max(0, rows - 2)]:
        if isinstance(each, Heading):
            lines.append(f"{ink.muted}{ink.bold}{set_cell_size(f' {each.text.upper()}', LIST_CELLS)}{ink.off}{ink.side}")
            continue
        title = each.title
        shown = title if cell_len(title) <= room else set_cell_size(title, room - 1).rstrip() + glyphs.ellipsis
        age = format_age(max(0.0, now - each.updated)).rjust(4)
        lines.append(f"   {ink.text}{set_cell_size(shown, room)} {ink.muted}{age} ")
    return [*lines, *[" " * LIST_CELLS] * (rows - len(lines))]


def _frame(home: Home, config: Config, theme: str, session: str | None, stream: TextIO, *, resume: bool = False) -> str:
    """Everything that is written, or nothing."""
    try:
        size = os.get_terminal_size(stream.fileno())
        if size.columns < MIN_WIDTH or size.lines < MIN_HEIGHT or not home.database.exists():
            return ""
        store = ConversationStore.open(home.database, home.backups, progress=shown_on(ProgressLine(sys.stderr)))
        try:
            conversations = [each for each in store.list() if place_of(each) == "list"]
        finally:
            store.close()
    except (OSError, ValueError, LocalKVError):
        return ""  # the chat meets the same and says it
    glyphs = choose_glyphs(os.environ, stream.encoding or "")
    opened = conversations[:1] if resume else [each for each in conversations if each.name == session]
    title = next((one_line(each.title) for each in opened), "") or UNTITLED
    ink = _ink(home, theme)
    rows = picture(conversations, (size.columns, size.lines), time.time(), ink, glyphs, title=title, panel=config.chat.panel)
    return ENTER + "".join(f"\x1b[{y};1H{row}" for y, row in enumerate(rows, 1))


def _ink(home: Home, theme: str) -> Ink:
    """The theme's colours, where the terminal has them all and they can be read without checking the file."""
    if os.environ.get("NO_COLOR") or os.environ.get("COLORTERM") not in {"truecolor", "24bit"}:
        return Ink()
    for folder in (home.user_themes, resource_dir("themes")):
        try:
            colors = tomllib.loads((folder / f"{theme}.toml").read_text(encoding="utf-8"))["colors"]
            chosen = {key: colors[key] for key in ("background", "surface", "foreground", "muted", "rule")}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if all(isinstance(color, str) and _HEX.fullmatch(color) for color in chosen.values()):
            return Ink(
                ground=_sgr(48, chosen["background"]),
                side=_sgr(48, chosen["surface"]),
                text=_sgr(38, chosen["foreground"]),
                muted=_sgr(38, chosen["muted"]),
                rule=_sgr(38, chosen["rule"]),
            )
    return Ink()


def _sgr(kind: int, color: str) -> str:
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"\x1b[{kind};2;{red};{green};{blue}m"
