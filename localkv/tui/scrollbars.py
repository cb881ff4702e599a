"""Scroll bars for terminals that show only ASCII: whole cells of ground, no partial blocks."""

from typing import ClassVar

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
