"""The list of conversations on screen: a virtual list that draws only the rows in view.

It shows items and says what the person wants; it knows no store. Thread: the UI's.
"""

from collections.abc import Callable, Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.events import Click, Resize
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip

from localkv.tui.glyphs import DRAWN, Glyphs
from localkv.tui.keys import bindings
from localkv.tui.listing import Item, line, matching, ordered
from localkv.tui.scrolling import stretch
from localkv.tui.theme import Palette


class Sessions(ScrollView, can_focus=True, inherit_bindings=False):
    """Conversations, newest first, with a cursor and a filter."""

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
        """The person wants something done: "rename", "delete", "undo" or "filter"."""

        def __init__(self, wish: str, conversation: str) -> None:
            super().__init__()
            self.wish = wish
            self.conversation = conversation

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
        self._badges: Mapping[str, str] = {}
        self.shown: list[Item] = []
        self.query_text = ""
        self.opened = ""

    @property
    def count(self) -> int:
        """All conversations, filtered or not."""
        return len(self._items)

    @property
    def current(self) -> Item | None:
        """The conversation under the cursor."""
        return self.shown[self.cursor] if 0 <= self.cursor < len(self.shown) else None

    def show(self, items: Sequence[Item]) -> None:
        """These conversations; the cursor stays on the one it was on."""
        self._items = ordered(items)
        self._filter()

    def change(self, item: Item) -> None:
        """Put in this conversation, or another state of it."""
        self.show([*(other for other in self._items if other.id != item.id), item])

    def drop(self, conversation: str) -> None:
        """Take this conversation out."""
        self.show([item for item in self._items if item.id != conversation])

    def filter(self, query: str) -> None:
        """Show only what contains the words of `query`."""
        self.query_text = query
        self._filter()
        self.cursor = 0

    def mark(self, badges: Mapping[str, str]) -> None:
        """Show these badges, by conversation."""
        if badges != self._badges:
            self._badges = dict(badges)
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
        """The first conversation, filtered away or not, that has these words."""
        return next(iter(matching(self._items, words)), None)

    def neighbour(self, step: int) -> Item | None:
        """The conversation `step` rows from the open one."""
        at = next((i for i, item in enumerate(self.shown) if item.id == self.opened), -step)
        return self.shown[at + step] if 0 <= at + step < len(self.shown) else None

    def _filter(self) -> None:
        before = self.current
        self.shown = matching(self._items, self.query_text)
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
        stretch(self, len(self.shown))
        self.refresh()

    def on_resize(self, event: Resize) -> None:
        """Lines are as wide as the list."""
        del event
        self._measure()
        self.watch_cursor()

    def watch_cursor(self) -> None:
        """Keep the cursor in view."""
        height = self.size.height
        if not height:
            return
        top = round(self.scroll_y)
        if not top <= self.cursor < top + height:
            y = self.cursor if self.cursor < top else self.cursor - height + 1
            self.scroll_to(y=y, animate=False, force=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The conversation at row `y` of the widget."""
        at = round(self.scroll_y) + y
        width = self.scrollable_content_region.width
        base = self.rich_style
        if at >= len(self.shown):
            hint = "nothing has these words" if self.query_text and not at else ""
            return Strip([Segment(f"  {hint}", self._palette.muted)]).crop_extend(0, width, None).apply_style(base)
        item = self.shown[at]
        spans = line(item, width, self._clock(), self._badges, self._palette, self._glyphs, opened=item.id == self.opened)
        strip = Strip([Segment(text, style) for text, style in spans]).crop_extend(0, width, None)
        if at == self.cursor and self.has_focus:
            base += self._palette.cursor + self._emphasis()
        return strip.apply_style(base)

    def _emphasis(self) -> Style:
        return Style(reverse=True) if "nocolor" in self.app.pseudo_classes else Style(bold=True)

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.refresh()

    def on_click(self, event: Click) -> None:
        """Open the conversation that was clicked."""
        at = round(self.scroll_y) + event.y
        if 0 <= at < len(self.shown):
            self.cursor = at
            self.action_open()

    def action_open(self) -> None:
        """Open the conversation under the cursor."""
        if self.current is not None:
            self.post_message(self.Chosen(self.current.id))

    def action_rename_row(self) -> None:
        """Rename the conversation under the cursor."""
        self._ask("rename")

    def action_delete_row(self) -> None:
        """Trash the conversation under the cursor."""
        self._ask("delete")

    def action_undo(self) -> None:
        """Bring back what was trashed last."""
        self.post_message(self.Asked("undo", ""))

    def action_filter(self) -> None:
        """Type words to filter by."""
        self.post_message(self.Asked("filter", ""))

    def _ask(self, wish: str) -> None:
        if self.current is not None:
            self.post_message(self.Asked(wish, self.current.id))

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
