"""The list of conversations as data: order, filter, one line each.

Pure; knows no widgets. 10,000 titles are filtered in a few milliseconds because each is folded once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from localkv.chat.tree import Conversation
from localkv.tui.clean import one_line
from localkv.tui.glyphs import Glyphs
from localkv.tui.rows import Span
from localkv.tui.theme import Palette
from localkv.units import format_age

UNTITLED = "New conversation"

GENERATING = "*"
UNREAD = "+"


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation in the list."""

    id: str
    title: str
    folded: str
    updated: float
    pinned: bool = False


def to_item(conversation: Conversation) -> Item:
    """`conversation` as a line of the list."""
    title = one_line(conversation.title) or UNTITLED
    folded = f"{title} {conversation.name}".casefold()
    return Item(conversation.id, title, folded, conversation.updated, conversation.pinned)


def ordered(items: Iterable[Item]) -> list[Item]:
    """Pinned ones first, then the one that was spoken in last."""
    return sorted(items, key=lambda item: (not item.pinned, -item.updated))


def matching(items: Sequence[Item], query: str) -> list[Item]:
    """The items whose title or name contains every word of `query`."""
    words = query.casefold().split()
    found = list(items)
    for word in words:
        found = [item for item in found if word in item.folded]
    return found


def line(
    item: Item, width: int, now: float, badges: Mapping[str, str], palette: Palette, glyphs: Glyphs, *, opened: bool
) -> list[Span]:
    """`item` as spans of exactly `width` cells: mark of the open one, badge, title, age."""
    badge = badges.get(item.id, " ")
    age = format_age(max(0.0, now - item.updated)).rjust(4)
    room = max(1, width - 8)
    title = item.title if cell_len(item.title) <= room else set_cell_size(item.title, room - 1).rstrip() + glyphs.ellipsis
    strong = Style(bold=True) if badge == UNREAD or opened else Style()
    mark = glyphs.cursor if opened else " "
    return [
        (mark, palette.user),
        (badge, palette.accent + Style(bold=True)),
        (" ", palette.text),
        (set_cell_size(title, room), palette.text + strong),
        (" ", palette.text),
        (age, palette.muted),
    ]
