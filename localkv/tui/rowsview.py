"""A widget that shows rows and scrolls them: the cache panel, the header, the phase line, help.

It knows nothing of what they say: it is given a way to make them for a width, and makes them again when its width changes.
"""

from collections.abc import Callable, Sequence

from textual.events import Resize
from textual.scroll_view import ScrollView
from textual.strip import Strip

from localkv.tui.keys import bindings
from localkv.tui.rows import BLANK, Row
from localkv.tui.scrolling import stretch

Make = Callable[[int], Sequence[Row]]


class RowsView(ScrollView, inherit_bindings=False):
    """Rows, top to bottom; taller than the widget, they scroll."""

    BINDINGS = bindings("text")
    FOCUS_ON_CLICK = False
    DEFAULT_CSS = """
    RowsView {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, *, id: str | None = None, can_focus: bool = False) -> None:  # noqa: A002  textual's name
        super().__init__(id=id, can_focus=can_focus)
        self._rows: Sequence[Row] = ()
        self._of: object = None
        self._make: Make = lambda _: ()
        self._made: object = None

    def draw(self, of: object, make: Make) -> None:
        """Show what `make` gives for a width; it is asked again only when `of`, all that it depends on, or the width changes."""
        self._of, self._make = of, make
        self._remake()

    def on_resize(self, event: Resize) -> None:
        """Rows for another width."""
        del event
        self._remake()

    def _remake(self) -> None:
        room = self.scrollable_content_region.width
        if not room or (self._of, room) == self._made:
            return
        self._made = (self._of, room)
        before, self._rows = self._rows, self._make(room)
        stretch(self, len(self._rows))
        if len(self._rows) != len(before):
            self.refresh()
            return
        for index, (old, new) in enumerate(zip(before, self._rows, strict=True)):
            if old.strip != new.strip:
                self.refresh_line(index)

    def render_line(self, y: int) -> Strip:
        """The row at `y` of the widget."""
        at = round(self.scroll_y) + y
        shown = self._rows[at] if at < len(self._rows) else BLANK
        return shown.strip.crop_extend(0, self.size.width, None).apply_style(self.visual_style.rich_style)
