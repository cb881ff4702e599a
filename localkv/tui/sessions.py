"""The list of conversations on screen: a virtual list that draws only the rows in view.

It shows items of one place at a time (list, archive or trash) and says what the person wants; it knows no store. Thread:
the UI's. The cursor stands on conversations only; headings are rows that it passes over. One timer, only after the cursor
moved: it says where the cursor came to rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rich.segment import Segment
from rich.style import Style
from textual.events import Click, Resize
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer

from localkv.commands.order import ORDERS, PLACES, Order, Place
from localkv.service.client import Resume
from localkv.tui.glyphs import DRAWN, Glyphs
from localkv.tui.keys import bindings
from localkv.tui.listing import Heading, Item, matching, ordered, with_headings
from localkv.tui.listline import Look, heading, line
from localkv.tui.scrolling import stretch
from localkv.tui.theme import Palette

NEAR = 24
"""Rows that count as a screen while the list is hidden or very short."""

REST_SECONDS = 0.3
"""So long the cursor stays where a person looks; moving through the list is faster."""


class Sessions(ScrollView, can_focus=True, inherit_bindings=False):
    """Conversations with a cursor, a filter and an order."""

    BINDINGS = bindings("list", "text")
    DEFAULT_CSS = """
    Sessions {
        background: $surface;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: $surface;
    }
    """

    cursor: var[int] = var(0)

    class Chosen(Message):
        """The person wants to see this conversation."""

        def __init__(self, conversation: str) -> None:
            super().__init__()
            self.conversation = conversation

    class Asked(Message):
        """The person wants something done: "rename", "delete", "undo", "pin", "tags", "archive" or "filter".

        It is meant for these conversations: those that are marked, else the one under the cursor.
        """

        def __init__(self, wish: str, *conversations: str) -> None:
            super().__init__()
            self.wish = wish
            self.conversations = conversations

    class Rested(Message):
        """The cursor stays on this conversation for a moment: it may be opened next."""

        def __init__(self, conversation: str) -> None:
            super().__init__()
            self.conversation = conversation

    class Rearranged(Message):
        """Another order, or another place is shown."""

    class Marked(Message):
        """Others are marked than before."""

    def __init__(
        self,
        palette: Palette,
        clock: Callable[[], float],
        glyphs: Glyphs = DRAWN,
        *,
        id: str | None = None,  # noqa: A002  textual's
    ) -> None:
        super().__init__(id=id)
        self._palette = palette
        self._glyphs = glyphs
        self._clock = clock
        self._items: list[Item] = []
        self._count = 0
        self._badges: Mapping[str, str] = {}
        self._resumes: Mapping[str, Resume] = {}
        self._rows: list[Item | Heading] = []
        self._row_of: list[int] = []
        self._resting: Timer | None = None
        self.marked: frozenset[str] = frozenset()
        """Conversations of this place that the next key is meant for."""
        self.shown: list[Item] = []
        """Those that the filter left, in their order."""
        self.order: Order = "newest"
        self.place: Place = "list"
        self.query_text = ""
        self.opened = ""

    @property
    def count(self) -> int:
        """All conversations of this place, filtered or not."""
        return self._count

    @property
    def items(self) -> list[Item]:
        """All conversations of all places, in their order."""
        return self._items

    @property
    def current(self) -> Item | None:
        """The conversation under the cursor."""
        return self.shown[self.cursor] if 0 <= self.cursor < len(self.shown) else None

    def near(self) -> list[str]:
        """The conversations in view and a screen around it: those whose badges are seen next."""
        top, height = round(self.scroll_y), max(self.size.height, NEAR)
        return [row.id for row in self._rows[max(0, top - height) : top + 2 * height] if isinstance(row, Item)]

    def show(self, items: Sequence[Item]) -> None:
        """These conversations; the cursor stays on the one it was on."""
        self._items = ordered(items, self.order)
        self.marked &= {item.id for item in self._items if item.place == self.place}
        self._filter()

    def change(self, item: Item) -> None:
        """Put in this conversation, or another state of it."""
        known = next((other for other in self._items if other.id == item.id), item)
        item = replace(item, tokens=item.tokens or known.tokens)
        self.show([*(other for other in self._items if other is not known), item])

    def drop(self, conversation: str) -> None:
        """Take this conversation out."""
        self.show([item for item in self._items if item.id != conversation])

    def go_to(self, place: Place) -> None:
        """Show what is kept in another place."""
        if place != self.place:
            self.place = place
            self.marked = frozenset()
            self._filter()
            self.cursor = 0
            self.post_message(self.Rearranged())

    def filter(self, query: str) -> None:
        """Show only what contains the words of `query`."""
        self.query_text = query
        self._filter()
        self.cursor = 0

    def mark(self, badges: Mapping[str, str], resumes: Mapping[str, Resume]) -> None:
        """Show these badges, and how far away each cache is, by conversation."""
        if badges != self._badges or resumes != self._resumes:
            self._badges, self._resumes = dict(badges), dict(resumes)
            self.refresh()

    def open_row(self, conversation: str) -> None:
        """Mark the conversation that is on screen."""
        self.opened = conversation
        self._point_at(conversation)
        self.refresh()

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self.refresh()

    def first(self, words: str) -> Item | None:
        """The first conversation outside the trash, filtered away or not, that has these words."""
        return next((item for item in matching(self._items, words) if item.place != "trash"), None)

    def neighbour(self, step: int) -> Item | None:
        """The conversation `step` rows from the open one."""
        at = next((i for i, item in enumerate(self.shown) if item.id == self.opened), -step)
        return self.shown[at + step] if 0 <= at + step < len(self.shown) else None

    def _filter(self) -> None:
        before = self.current
        here = [item for item in self._items if item.place == self.place]
        self._count = len(here)
        self.shown = matching(here, self.query_text)
        self._rows = with_headings(self.shown, self.order, self._clock())
        self._row_of = [at for at, row in enumerate(self._rows) if isinstance(row, Item)]
        if before is not None:
            self._point_at(before.id)
        self.cursor = max(0, min(self.cursor, len(self.shown) - 1))
        self._measure()

    def _point_at(self, conversation: str) -> None:
        for index, item in enumerate(self.shown):
            if item.id == conversation:
                self.cursor = index
                return

    def _measure(self) -> None:
        stretch(self, len(self._rows))
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """Lines are as wide as the list."""
        del event
        self._measure()
        self.watch_cursor()

    def watch_cursor(self) -> None:
        """Keep the cursor in view, and the heading right above it."""
        height = self.size.height
        if not height or not self.shown:
            return
        top, at = round(self.scroll_y), self._row_of[min(self.cursor, len(self._row_of) - 1)]
        first = at - 1 if at and isinstance(self._rows[at - 1], Heading) else at
        if not top <= first <= at < top + height:
            self.scroll_to(y=first if first < top else at - height + 1, animate=False, force=True)
        self.refresh()
        self._rest()

    def render_line(self, y: int) -> Strip:
        """The conversation at row `y` of the widget."""
        at = round(self.scroll_y) + y
        width = self.scrollable_content_region.width
        base = self.rich_style
        if at >= len(self._rows):
            hint = self._hint() if not at else ""
            return Strip([Segment(f"  {hint}", self._palette.muted)]).crop_extend(0, width, None).apply_style(base)
        row = self._rows[at]
        spans = heading(row, width, self._palette) if isinstance(row, Heading) else line(row, width, self._look(row))
        strip = Strip([Segment(text, style) for text, style in spans]).crop_extend(0, width, None)
        if row is self.current and self.has_focus:
            base += self._palette.cursor + self._emphasis()
        return strip.apply_style(base)

    def _look(self, item: Item) -> Look:
        return Look(
            self._clock(),
            self._palette,
            self._glyphs,
            self._badges.get(item.id, ""),
            self._resumes.get(item.id),
            opened=item.id == self.opened,
            marked=item.id in self.marked,
            sizes=self.order == "size",
        )

    def _hint(self) -> str:
        if self.query_text:
            return "nothing has these words"
        return {"list": "", "archive": "nothing is archived", "trash": "the trash is empty"}[self.place]

    def _emphasis(self) -> Style:
        return Style(reverse=True) if "nocolor" in self.app.pseudo_classes else Style(bold=True)

    def on_focus(self) -> None:
        """Show the cursor."""
        self._rest()
        self.refresh()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self._rest()
        self.refresh()

    def _rest(self) -> None:
        """Tell where the cursor comes to rest, if it does."""
        if self._resting is not None:
            self._resting.stop()
            self._resting = None
        current = self.current
        if self.has_focus and current is not None and current.id != self.opened:
            self._resting = self.set_timer(REST_SECONDS, lambda: self._has_rested(current.id))

    def _has_rested(self, conversation: str) -> None:
        self._resting = None
        if self.has_focus:
            self.post_message(self.Rested(conversation))

    def on_click(self, event: Click) -> None:
        """Open the conversation that was clicked."""
        at = round(self.scroll_y) + event.y
        if 0 <= at < len(self._rows) and isinstance(self._rows[at], Item):
            self.cursor = self._row_of.index(at)
            self.action_open()

    def action_open(self) -> None:
        """Open the conversation under the cursor."""
        if self.current is not None:
            self.post_message(self.Chosen(self.current.id))

    def action_rename_row(self) -> None:
        """Rename the conversation under the cursor."""
        if self.current is not None:
            self.post_message(self.Asked("rename", self.current.id))

    def action_delete_row(self) -> None:
        """Trash the conversation under the cursor; in the trash: remove it for good."""
        self._ask("delete")

    def action_undo(self) -> None:
        """Bring back what was trashed last; in the trash: the conversation under the cursor."""
        if self.place == "trash":
            self._ask("undo")
        else:
            self.post_message(self.Asked("undo"))

    def action_pin_row(self) -> None:
        """Keep the conversation under the cursor on top, or no longer."""
        self._ask("pin")

    def action_tag_row(self) -> None:
        """Change the tags of the conversation under the cursor."""
        self._ask("tags")

    def action_archive_row(self) -> None:
        """Put the conversation under the cursor away, or back."""
        self._ask("archive")

    def action_sort(self) -> None:
        """Sort by the next thing."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self.post_message(self.Rearranged())

    def action_next_place(self) -> None:
        """Go to the next place."""
        self.go_to(PLACES[(PLACES.index(self.place) + 1) % len(PLACES)])

    def action_filter(self) -> None:
        """Type words to filter by."""
        self.post_message(self.Asked("filter"))

    def action_mark_row(self) -> None:
        """Mark the conversation under the cursor, or no longer, and go to the next."""
        if self.current is not None:
            self.marked ^= {self.current.id}
            self.action_scroll_down()
            self.refresh()
            self.post_message(self.Marked())

    def action_mark_all(self) -> None:
        """Mark all that the filter left; none of them if they are marked already."""
        here = {item.id for item in self.shown}
        self.marked = self.marked - here if here <= self.marked else self.marked | here
        self.refresh()
        self.post_message(self.Marked())

    def unmark(self) -> bool:
        """Mark none; whether some were."""
        had, self.marked = bool(self.marked), frozenset()
        if had:
            self.refresh()
            self.post_message(self.Marked())
        return had

    def _ask(self, wish: str) -> None:
        wanted = [item.id for item in self._items if item.id in self.marked]
        if not wanted and self.current is not None:
            wanted = [self.current.id]
        if wanted:
            self.post_message(self.Asked(wish, *wanted))

    def action_scroll_up(self) -> None:
        """The row above."""
        self.cursor = max(0, self.cursor - 1)

    def action_scroll_down(self) -> None:
        """The row below."""
        self.cursor = max(0, min(self.cursor + 1, len(self.shown) - 1))

    def action_page_up(self) -> None:
        """One screen up."""
        self.cursor = max(0, self.cursor - max(1, self.size.height - 1))

    def action_page_down(self) -> None:
        """One screen down."""
        self.cursor = max(0, min(self.cursor + max(1, self.size.height - 1), len(self.shown) - 1))

    def action_scroll_home(self) -> None:
        """The first row."""
        self.cursor = 0

    def action_scroll_end(self) -> None:
        """The last row."""
        self.cursor = max(0, len(self.shown) - 1)
