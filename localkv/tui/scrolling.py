"""What line-API widgets share: how tall they are, and scroll bars for terminals that show only ASCII."""

from typing import ClassVar

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBarRender
from textual.widget import Widget


class PlainBar(ScrollBarRender):
    """A bar whose ends fall on cells."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8


def use_plain_bars(screen: Widget) -> None:
    """Let every scrolling widget of `screen` draw its bar with spaces."""
    for view in screen.query(ScrollView):
        view.vertical_scrollbar.renderer = PlainBar  # type: ignore[misc]  # one bar's, not the class's for all programs


def stretch(view: ScrollView, rows: int) -> None:
    """Let `view` scroll over `rows`.

    Assigning `virtual_size` would lay the whole screen out again: 5 ms, ten times a second while an answer streams. Only
    the scroll bar changes. A layout asked for while a terminal is being resized can even make Textual go back and forth
    between two sizes for ever.
    """
    size = Size(view.scrollable_content_region.width, rows)
    if size != view.virtual_size:
        view.set_reactive(Widget.virtual_size, size)
        view._scroll_update(size)
