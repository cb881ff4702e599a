"""The messages that wait, in a few rows over the composer. It knows what it is given to show, and says what is to be done.

Thread: the UI's.
"""

from rich.cells import cell_len, set_cell_size
from textual.events import Blur, Focus
from textual.message import Message

from localkv.commands.waiting import Texts, brief
from localkv.tui.keys import bindings
from localkv.tui.rows import Row, row
from localkv.tui.rowsview import RowsView
from localkv.tui.theme import Palette

ROWS = 4
"""More messages scroll."""


class Queue(RowsView, inherit_bindings=False):
    """A title, and a row for each message that waits; with the focus, one of them is marked."""

    BINDINGS = bindings("queue")
    DEFAULT_CSS = """
    Queue { height: auto; display: none; background: $panel; padding: 0 1; }
    Queue.-open { display: block; }
    """

    class Edited(Message):
        """The message `text`, shown at `index`, is to be written again."""

        def __init__(self, index: int, text: str) -> None:
            super().__init__()
            self.index = index
            self.text = text

    class Dropped(Message):
        """The message `text`, shown at `index`, is to be forgotten."""

        def __init__(self, index: int, text: str) -> None:
            super().__init__()
            self.index = index
            self.text = text

    def __init__(self, palette: Palette, *, id: str | None = None) -> None:  # noqa: A002  textual's name
        super().__init__(id=id, can_focus=True)
        self._palette = palette
        self._texts: Texts = ()
        self._moving = False
        self._marks = False
        self._at = 0

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self._draw()

    def show(self, texts: Texts, *, moving: bool) -> None:
        """Show these messages; `moving`: they are sent without being asked for, once the answer is finished."""
        if (texts, moving) != (self._texts, self._moving):
            self._texts, self._moving = texts, moving
            self._at = min(self._at, max(0, len(texts) - 1))
            self._draw()

    def on_focus(self, event: Focus) -> None:
        """Mark a row."""
        del event
        self._marks = True
        self._draw()

    def on_blur(self, event: Blur) -> None:
        """Mark none."""
        del event
        self._marks = False
        self._draw()

    def action_move(self, step: int) -> None:
        """Mark another message."""
        self._at = max(0, min(self._at + step, len(self._texts) - 1))
        self._draw()

    def action_edit(self) -> None:
        """Write the marked message again."""
        if self._texts:
            self.post_message(self.Edited(self._at, self._texts[self._at]))

    def action_drop(self) -> None:
        """Forget the marked message."""
        if self._texts:
            self.post_message(self.Dropped(self._at, self._texts[self._at]))

    def _draw(self) -> None:
        texts, at = self._texts, self._at if self._marks else -1
        moving, palette = self._moving, self._palette
        self.set_class(bool(texts), "-open")
        self.styles.height = min(ROWS, len(texts)) + 1
        self.draw((texts, at, moving, palette.name), lambda width: _rows(texts, at, palette, width, moving=moving))
        self.scroll_to(y=max(0, self._at + 2 - ROWS), animate=False, force=True)


def _rows(texts: Texts, at: int, palette: Palette, width: int, *, moving: bool) -> list[Row]:
    count = "one message waits" if len(texts) == 1 else f"{len(texts)} messages wait"
    when = "sent after this answer" if moving else "enter sends"
    title = set_cell_size(f"{count}: {when}; up edits", width).rstrip()
    return [row([(title, palette.muted)]), *(_row(text, n, n - 1 == at, palette, width) for n, text in enumerate(texts, 1))]


def _row(text: str, number: int, marked: bool, palette: Palette, width: int) -> Row:
    lead = f"{'>' if marked else ' '} {number}  "
    shown = brief(text, max(8, width - cell_len(lead)))
    return row(
        [
            (lead, palette.user),
            (set_cell_size(shown, width - cell_len(lead)).rstrip(), palette.bold if marked else palette.text),
        ]
    )
