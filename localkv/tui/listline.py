"""One row of the list of conversations as spans: mark of the open one, badge, title, how long coming back takes, age.

Pure; knows no widgets. Badges are ASCII letters, because several terminals give other signs two cells: H is in the slot or
in VRAM, W in RAM, C on SSD, - nowhere, * is being answered, + has an answer that was not seen.
"""

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from localkv.commands.order import hashed
from localkv.service.client import Resume
from localkv.tui.glyphs import Glyphs
from localkv.tui.listing import Heading, Item
from localkv.tui.rows import Span
from localkv.tui.theme import Palette
from localkv.units import format_age

GENERATING = "*"
UNREAD = "+"
BADGES = {"slot": "H", "vram": "H", "ram": "W", "ssd": "C", "none": "-"}
MEANINGS = (
    ("H", "its cache is in the slot or in VRAM: the answer begins at once"),
    ("W", "its cache is in RAM"),
    ("C", "its cache is on SSD; the time beside it is what reading it will take"),
    ("-", "nothing is cached: the time beside it is what computing it again will take"),
    (GENERATING, "an answer is being written"),
    (UNREAD, "a new answer that you have not seen"),
    ("x", "it is marked: the next key is meant for all that are"),
)
"""For help."""

_LEAST_SECONDS = 0.1
"""Shorter waits are not worth a number."""
_LEAST_TITLE = 8
_LEAST_TAG = 4


@dataclass(frozen=True, slots=True)
class Look:
    """What a row needs beside the item itself."""

    now: float
    palette: Palette
    glyphs: Glyphs
    badge: str = ""
    """GENERATING or UNREAD, which say more than where the cache is."""
    resume: Resume | None = None
    opened: bool = False
    marked: bool = False
    sizes: bool = False
    """Show how long it is, in tokens, and not how old."""


def line(item: Item, width: int, look: Look) -> list[Span]:
    """`item` as spans of exactly `width` cells."""
    palette = look.palette
    badge = look.badge or (BADGES[look.resume.origin] if look.resume is not None else " ")
    end = _thousands(item.tokens) if look.sizes else format_age(max(0.0, look.now - item.updated))
    wait = f" {waiting(look.resume)}" if look.resume is not None and not look.badge else ""
    wait = wait if wait.strip() and width - 8 - len(wait) >= _LEAST_TITLE else ""
    room = max(1, width - 8 - len(wait))
    title = item.title if cell_len(item.title) <= room else set_cell_size(item.title, room - 1).rstrip() + look.glyphs.ellipsis
    strong = Style(bold=True) if look.badge == UNREAD or look.opened else Style()
    return [
        (look.glyphs.cursor if look.opened else " ", palette.user),
        badge_of(badge, palette),
        ("x", palette.user) if look.marked else (" ", palette.text),
        (title, palette.text + strong),
        # In a run of its own: a joiner at the end of a title would swallow the first space.
        (_tags(item, room - cell_len(title), look.glyphs), palette.muted),
        (wait, palette.muted),
        (" ", palette.text),
        (end.rjust(4), palette.muted),
    ]


def badge_of(badge: str, palette: Palette) -> Span:
    """A badge; a blank one has no colour, which a reversed row would show."""
    return (badge, palette.accent + Style(bold=True) if badge.strip() else palette.text)


def _tags(item: Item, room: int, glyphs: Glyphs) -> str:
    """The tags in `room` cells, as far as they fit; blank where not even the beginning of one does."""
    text = f" {hashed(item.tags)}" if item.tags and room > _LEAST_TAG else ""
    text = text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + glyphs.ellipsis
    return set_cell_size(text, room)


def heading(row: Heading, width: int, palette: Palette) -> list[Span]:
    """A group's name."""
    return [(set_cell_size(f" {row.text.upper()}", width), palette.muted + Style(bold=True))]


def waiting(resume: Resume | None) -> str:
    """The predicted wait in at most five characters: "~0.4s", "~12s", "~3m"; empty if nobody would notice it."""
    if resume is None or resume.seconds < _LEAST_SECONDS:
        return ""
    if resume.seconds < 9.95:
        return f"~{resume.seconds:.1f}s"
    return f"~{resume.seconds:.0f}s" if resume.seconds < 99.5 else f"~{min(999, resume.seconds / 60):.0f}m"


def _thousands(n: int) -> str:
    """A count in at most four characters: "812", "1.2k", "34k", "1.5M"."""
    value = float(n)
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if not unit or value >= 9.95 else f"{value:.1f}{unit}"
        value /= 1000
    return "999G"
