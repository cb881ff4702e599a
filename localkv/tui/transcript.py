"""The conversation on screen: one line-API ScrollView over Pages.

It shows entries and knows no store, no engine and no turn. Owns where the person looks: at the end, and following it, until
they scroll up; then nothing moves what they read. Owns the cursor among messages, which thoughts are unfolded, and what is
looked for; what is done to a message is a Wish that others fulfil. Thread: the UI's.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.style import Style
from textual.events import Click, Resize
from textual.geometry import Region
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from localkv.tui.finding import in_folded
from localkv.tui.glyphs import DRAWN, Glyphs
from localkv.tui.keys import bindings
from localkv.tui.marks import Count, Marks
from localkv.tui.pages import Entry, Pages, Place
from localkv.tui.rows import BLANK, Row, cut, row, selected
from localkv.tui.scrolling import stretch
from localkv.tui.theme import Palette

if TYPE_CHECKING:
    from localkv.tui.messages import Painter

_CURSOR = Style(reverse=True)
_HERE = Style(reverse=True, bold=True)
_FOUND = Style(underline=True, bold=True)


class Transcript(ScrollView, can_focus=True, inherit_bindings=False):
    """All messages of the open conversation."""

    BINDINGS = bindings("text", "message")
    ALLOW_SELECT = True
    FOCUS_ON_CLICK = False
    """Who selects text with the mouse goes on writing; keys of messages must not catch what is typed then."""
    DEFAULT_CSS = """
    Transcript {
        background: $background;
        color: $foreground;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        padding: 0 0 0 1;
    }
    """

    class Followed(Message):
        """The view reached the end (`following`) or left it."""

        def __init__(self, following: bool) -> None:
            super().__init__()
            self.following = following

    class Wish(Message):
        """The person wants something done to the message `entry`; `wish` is the name of a slash command or of a key."""

        def __init__(self, wish: str, entry: Entry) -> None:
            super().__init__()
            self.wish = wish
            self.entry = entry

    class Left(Message):
        """The cursor went down from the last message."""

    def __init__(self, palette: Palette, glyphs: Glyphs = DRAWN, *, id: str | None = None) -> None:  # noqa: A002  textual's name
        super().__init__(id=id)
        self._glyphs = glyphs
        self._palette = palette
        self._painter: Painter | None = None
        self._pages = Pages(self._paint)
        self._marks = Marks(self._pages)
        self._unfolded: set[str] = set()
        self._moving = False
        self._ground = Style()
        self.following = True
        self._welcome: Callable[[int], list[Row]] = lambda _: []
        self._welcome_rows: list[Row] = []

    @property
    def room(self) -> int:
        """Cells in a row, the scroll bar not counted."""
        return self.scrollable_content_region.width

    @property
    def entries(self) -> Sequence[Entry]:
        return self._pages.entries

    @property
    def place(self) -> Place | None:
        """Where the person reads, a message and how far into it; None at the end."""
        return None if self.following or not len(self._pages) else self._pages.place(round(self.scroll_y))

    def go_to(self, place: Place) -> None:
        """Read on where `place` is, if its message is here."""
        if self._pages.index(place[0]) is not None:
            self.following = False
            self._move(self._pages.find(place))
            self._settle()
            self._look_at_end()
            self.refresh()

    def show(self, entries: Sequence[Entry]) -> None:
        """Another conversation, seen at its end."""
        self.following = True
        self._marks.chosen = ""
        self._unfolded.clear()
        self._pages.load(entries)
        self._settle()
        self.refresh()

    def _dressed(self, entry: Entry) -> Entry:
        return replace(entry, unfolded=True) if entry.id in self._unfolded else entry

    def _paint(self, entry: Entry, width: int) -> list[Row]:
        if self._painter is None:
            from localkv.tui.messages import painter  # Markdown and Pygments: not before the first message is on screen

            self._painter = painter(self._palette, self._glyphs)
        return self._painter.rows(entry, width)

    def set_welcome(self, rows: Callable[[int], list[Row]]) -> None:
        """What is shown, at a width, while there is no message."""
        self._welcome = rows
        self._welcome_rows = rows(self.room)
        self.refresh()

    def has(self, entries: Sequence[Entry]) -> bool:
        """Whether all of these messages are shown already, in this state or another."""
        known = {entry.id for entry in self._pages.entries[-8:]}
        return all(entry.id in known for entry in entries)

    def sync(self, entries: Sequence[Entry]) -> None:
        """The same conversation in another state; the view stays where the person put it."""
        place = self._pages.place(round(self.scroll_y))
        self._pages.load([self._dressed(entry) for entry in entries] if self._unfolded else entries)
        if not self.following:
            self._move(self._pages.find(place))
        self._settle()
        self.refresh()

    def put(self, *entries: Entry) -> None:
        """Replace messages of the same ids, append new ones; the view stays where the person put it.

        Only rows that look different are drawn again: ten times a second a whole screen would take a fifth of a core.
        """
        top, before = self._view()
        for entry in entries:
            self._pages.put(self._dressed(entry))
        self._settle()
        now, after = self._view()
        if now != top or len(before) != len(after):
            self.refresh()
            return
        changed = [index for index, strip in enumerate(after) if strip is not before[index] and strip != before[index]]
        if changed:
            self.refresh_lines(top + changed[0], changed[-1] - changed[0] + 1)

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self._painter = None
        self._remeasure()

    def go_end(self) -> None:
        """Look at the newest text and follow it."""
        self.following = True
        self._settle()
        self.refresh()
        self.post_message(self.Followed(following=True))

    # The cursor among messages

    @property
    def chosen(self) -> Entry | None:
        """The message under the cursor."""
        return self._marks.entry

    def choose(self, message: str) -> None:
        """Put the cursor on the message with this id; an empty one takes it away."""
        self._marks.chosen = message
        if (index := self._pages.index(message)) is not None:
            self._reveal(*self._pages.extent(index))
            self.following = self.following and index == len(self._pages) - 1
        self.refresh()

    def step_cursor(self, step: int) -> None:
        """Move the cursor by messages; it begins at the last one in view, and leaves below the last one."""
        if not len(self._pages):
            return
        index = self._pages.index(self._marks.chosen)
        index = self._last_seen() if index is None else index + step
        if index >= len(self._pages):
            self.choose("")
            self.go_end()
            self.post_message(self.Left())
        else:
            self.choose(self._pages.entries[max(0, index)].id)

    def swap(self, entries: Sequence[Entry], old: str, new: str) -> None:
        """Show another version of the message `old`, called `new`, and what follows it; its first row stays where it is."""
        index = self._pages.index(old)
        offset = None if index is None else self._pages.top(index) - round(self.scroll_y)
        self.following = False
        self.sync(entries)
        index = self._pages.index(new)
        if index is not None and offset is not None:
            self._move(max(0, self._pages.extent(index)[0] - offset))
            self._settle()
        self.choose(new)
        self._look_at_end()

    def fold(self, message: str) -> None:
        """Show or hide what the model thought before this answer, or the files of this question; its first row stays where it is."""
        index = self._pages.index(message)
        if index is None:
            return
        self._unfolded ^= {message}
        offset = self._pages.top(index) - round(self.scroll_y)
        self._pages.put(replace(self._pages.entries[index], unfolded=message in self._unfolded))
        self.following = False
        self._move(max(0, self._pages.extent(index)[0] - offset))
        self._settle()
        self._look_at_end()
        self.refresh()

    def _look_at_end(self) -> None:
        self.following = round(self.scroll_y) >= self.max_scroll_y

    def _last_seen(self) -> int:
        return self._pages.at(round(self.scroll_y) + self.scrollable_content_region.height - 1)[0]

    def _reveal(self, top: int, end: int) -> None:
        """Scroll just so far that rows are in view; of more than fit, the first."""
        rows = self.scrollable_content_region.height
        y = round(self.scroll_y)
        if not y <= top < end <= y + rows:
            y = top if top < y or end - top > rows else end - rows
        self.following = self.following and y >= self._pages.height - rows
        self._move(y)
        self._settle()

    def action_cursor(self, step: int) -> None:
        """Move the cursor by messages."""
        self.step_cursor(step)

    def action_wish(self, wish: str) -> None:
        """Ask for something to be done to the message under the cursor, else to the last one in view."""
        if len(self._pages):
            self.post_message(self.Wish(wish, self.chosen or self._pages.entries[self._last_seen()]))

    def on_click(self, event: Click) -> None:
        """A click on the row that stands for thoughts unfolds them."""
        from localkv.tui.messages import FOLDS

        message = event.style.meta.get(FOLDS)
        if message is not None:
            self.fold(message)

    # Words that are looked for

    def find(self, words: str) -> Count:
        """Mark `words` everywhere and go to the nearest place above; empty words mark nothing."""
        self._marks.find(words, self._last_seen() if len(self._pages) else 0)
        return self._go_to_hit()

    def find_next(self, step: int) -> Count:
        """Go on to another place that has the words."""
        self._marks.step(step)
        return self._go_to_hit()

    def _go_to_hit(self) -> Count:
        hit, pattern = self._marks.hit, self._marks.pattern
        if hit is not None and pattern is not None:
            entry = self._pages.entries[hit.message]
            if not entry.unfolded and in_folded(entry, pattern):
                self.fold(entry.id)
            self._reveal(*self._pages.extent(hit.message))
            rows = self._marks.rows_of_hit()
            self._reveal(rows[0], rows[-1] + 1)
            self._look_at_end()
        self.refresh()
        return self._marks.count

    def on_resize(self, event: Resize) -> None:
        """Rewrap for the new width, the first visible message staying first."""
        del event
        self._remeasure()

    def _remeasure(self) -> None:
        place = self._pages.place(round(self.scroll_y))
        self._pages.resize(max(1, self.room), self._palette.name)
        self._welcome_rows = self._welcome(self.room)
        if not self.following:
            self._move(self._pages.find(place))
        self._settle()
        self.refresh()

    def _settle(self) -> None:
        """Render what is in view and put the view where it belongs."""
        if not self.scrollable_content_region.height:
            return
        rows = self.scrollable_content_region.height
        self._move(self._pages.settle_end(rows) if self.following else self._pages.settle(round(self.scroll_y), rows))

    def _move(self, y: int) -> None:
        self._moving = True
        stretch(self, self._pages.height)
        if y != round(self.scroll_y):
            self.scroll_to(y=y, animate=False, force=True)
        self._moving = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The view moved: by `_move`, or because the person scrolled."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving or round(old_value) == round(new_value):
            return
        was = self.following
        self.following = False
        self._settle()
        self.following = round(self.scroll_y) >= self.max_scroll_y
        if was != self.following:
            self.post_message(self.Followed(self.following))

    def _view(self) -> tuple[int, list[Strip]]:
        """The first row in view, and what all rows in view look like."""
        top = round(self.scroll_y)
        return top, [self._row(top + y).strip for y in range(self.scrollable_content_region.height)]

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows within `crop`; the base style is worked out once for all of them."""
        self._ground = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """The strip at row `y` of the widget."""
        at = round(self.scroll_y) + y
        shown = self._row(at)
        base = self._ground
        width = self.room
        strip = shown.strip
        if (selection := self.text_selection) is not None and (span := selection.get_span(at)) is not None:
            strip = _mark(strip, span, self.screen.get_component_rich_style("screen--selection"))
        for span, is_here in self._marks.spans(at):
            strip = _mark(strip, span, _HERE if is_here else _FOUND)
        if at == self._marks.head:
            strip = row([(strip.text, self._palette.bold + _CURSOR)]).strip.extend_cell_length(
                width, self._palette.bold + _CURSOR
            )
        return strip.crop_extend(0, width, None).apply_style(base).apply_offsets(0, at)

    def _row(self, y: int) -> Row:
        if len(self._pages):
            return self._pages.row(y)
        return self._welcome_rows[y] if y < len(self._welcome_rows) else BLANK

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The logical text that is selected: no soft wraps, no gutters. Nothing on screen moves for it."""
        last = max(0, self._pages.height - 1)
        first_y = selection.start.y if selection.start is not None else 0
        last_y = min(selection.end.y if selection.end is not None else last, last)
        parts = []
        for y, shown in self._pages.between(first_y, last_y):
            span = (0, -1) if y is None else selection.get_span(y)
            if span is not None:
                parts.append((shown, *span))
        return selected(parts), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Repaint with or without the selection."""
        del selection
        self.refresh()


def _mark(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """`strip` with the characters of `span` in the style of selections."""
    start, end = span
    spans = [(segment.text, segment.style or Style()) for segment in strip]
    length = sum(len(text) for text, _ in spans)
    end = length if end < 0 else min(end, length)
    inside = [(text, old + style) for text, old in cut(spans, start, end)]
    return row([*cut(spans, 0, start), *inside, *cut(spans, end, length)]).strip
