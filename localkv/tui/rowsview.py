"""A widget that shows rows and scrolls them: the cache panel, the header, the phase line. It knows nothing of what they say."""

from collections.abc import Callable, Sequence

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from localkv.tui.keys import bindings
from localkv.tui.rows import BLANK, Row


class RowsView(ScrollView, inherit_bindings=False):
    """Rows, top to bottom; taller than the widget, they scroll."""

    BINDINGS = bindings("text")
    DEFAULT_CSS = """
    RowsView {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None, can_focus: bool = False) -> None:  # noqa: A002  textual's
        super().__init__(id=id, classes=classes, can_focus=can_focus)
        self.rows: Sequence[Row] = ()
        self._drawn: object = None

    @property
    def room(self) -> int:
        """Cells in a row, the scroll bar not counted."""
        return self.scrollable_content_region.width

    def draw(self, of: object, rows: Callable[[], Sequence[Row]]) -> None:
        """Show what `rows` makes, unless it would be made `of` the same things as last time, at the same width."""
        if (of, self.room) != self._drawn:
            self._drawn = (of, self.room)
            self.show(rows())

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows; only those that look different are drawn again."""
        before, self.rows = self.rows, rows
        if len(rows) != len(before) or self.virtual_size.width != self.room:
            self.virtual_size = Size(self.room, len(rows))
            self.refresh()
            return
        for index, (old, new) in enumerate(zip(before, rows, strict=True)):
            if old.strip != new.strip:
                self.refresh_line(index)

    def render_line(self, y: int) -> Strip:
        """The row at `y` of the widget."""
        at = round(self.scroll_y) + y
        shown = self.rows[at] if at < len(self.rows) else BLANK
        return shown.strip.crop_extend(0, self.room, None).apply_style(self.rich_style)
