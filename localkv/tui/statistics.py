"""The statistics view: plots over time and tables, on the whole screen over the chat.

It reads a History that others fill, and has no timer of its own: the heart of the screen below beats for it, once a second
while it is open. Thread: the UI's.
"""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from localkv.tui.charts import SPANS, statistics_rows
from localkv.tui.dialogs import READING
from localkv.tui.glyphs import Glyphs
from localkv.tui.heart import Heart
from localkv.tui.history import History
from localkv.tui.keys import follow, keymap_of, own, with_keys
from localkv.tui.once import Once
from localkv.tui.panel import Brush
from localkv.tui.rows import row
from localkv.tui.rowsview import RowsView
from localkv.tui.scrolling import use_plain_bars
from localkv.tui.theme import Palette

NAME = "statistics"


class Statistics(Once[None]):
    """What the cache did since the face started."""

    BINDINGS: ClassVar[list[BindingType]] = own(
        ("cancel", "leave"), ("stats", "leave"), ("quit", "app.quit"), *READING, "reading.span"
    )
    DEFAULT_CSS = """
    Statistics { background: $background; color: $foreground; }
    Statistics #statistics-head { height: 2; padding: 0 1; }
    Statistics #statistics { height: 1fr; padding: 0 1; scrollbar-gutter: stable; }
    Statistics .hint { height: 1; padding: 0 1; color: $muted; }
    """

    def __init__(self, palette: Palette, glyphs: Glyphs, history: History, heart: Heart, clock: Callable[[], float]) -> None:
        """`clock` is that of the history's moments."""
        super().__init__()
        self._palette = palette
        self._glyphs = glyphs
        self._history = history
        self._heart = heart
        self._clock = clock
        self._span = 0
        self._head = RowsView(id="statistics-head")
        self._view = RowsView(id=NAME)

    def compose(self) -> ComposeResult:
        """What is shown, the plots, and what keys do."""
        yield self._head
        yield self._view
        hint = "[cancel] closes   [reading.span] how far back   [reading.up] and [reading.down] scroll"
        yield Static(with_keys(hint, keymap_of(self.app)), classes="hint", markup=False)

    def on_mount(self) -> None:
        """Show how things stand, and how they go on."""
        follow(self, keymap_of(self.app))
        if self._glyphs.ascii:
            use_plain_bars(self)
        self._heart.watch(NAME, self.show)
        self.show()

    def on_unmount(self) -> None:
        """Nobody looks any more."""
        self._heart.leave(NAME)

    def show(self) -> None:
        """Draw what is known by now."""
        name, seconds = SPANS[self._span]
        now, palette, glyphs = self._clock(), self._palette, self._glyphs
        newest = self._history.newest
        about = f"  {newest.model} on {newest.device}" if newest is not None and newest.model else ""
        told = "since this face started" if not seconds else f"the last {name}"
        title = [("Statistics", palette.heading), (f"  {told}", palette.text), (about, palette.muted)]
        self._head.draw((told, about, palette.name), lambda _: [row(title)])
        height = self._view.size.height
        self._view.draw(
            (newest, now, seconds, height, palette.name),
            lambda width: statistics_rows(self._history, Brush(palette, glyphs, width), now, seconds, height),
        )

    def on_resize(self) -> None:
        """Another size, other plots."""
        self.call_after_refresh(self.show)

    def action_span(self) -> None:
        """Show another part of the time."""
        self._span = (self._span + 1) % len(SPANS)
        self.show()

    def action_scroll(self, step: int) -> None:
        """Scroll the plots."""
        self._view.scroll_relative(y=step, animate=False)

    def action_leave(self) -> None:
        """Back to the chat."""
        self.dismiss(None)
