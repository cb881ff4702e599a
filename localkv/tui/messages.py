"""How one message looks: who and when, the text, the numbers or the mark beneath it, a blank row.

Pure. What people type is shown as they typed it; answers are Markdown. The answer that is being written keeps its finished
blocks rendered (live.OpenText).
"""

from localkv.tui.clean import harmless
from localkv.tui.glyphs import Glyphs
from localkv.tui.live import OpenText
from localkv.tui.markdown import Markdown, parser
from localkv.tui.pages import Entry
from localkv.tui.rows import BLANK, Row, row, wrap
from localkv.tui.theme import Palette

TEXT_WIDTH = 100
"""Longer lines are hard to read; wider screens leave room at the right."""

_NAMES = {"user": "You", "assistant": "Assistant", "system": "System"}


class Painter:
    """Paints messages in one palette."""

    def __init__(self, markdown: Markdown) -> None:
        self._markdown = markdown
        self._open: tuple[str, OpenText] | None = None

    def rows(self, entry: Entry, width: int) -> list[Row]:
        """`entry` as rows."""
        width = min(width, TEXT_WIDTH)
        palette = self._markdown.palette
        body = self._body(entry, width)
        foot = [made for note in entry.notes for made in wrap([(note, palette.muted)], width)]
        mark = wrap([(entry.mark, palette.warning)], width) if entry.mark else []
        return [self._head(entry), *body, *mark, *foot, BLANK]

    def _head(self, entry: Entry) -> Row:
        palette = self._markdown.palette
        style = {"user": palette.user, "assistant": palette.assistant}.get(entry.role, palette.muted)
        return row([(_NAMES.get(entry.role, entry.role), style), (f"  {entry.time}" if entry.time else "", palette.muted)])

    def _body(self, entry: Entry, width: int) -> list[Row]:
        if entry.role != "assistant":
            return self._markdown.plain(harmless(entry.text.strip("\n")), width)
        if entry.growing:
            return self._growing(entry, width).rows()
        if self._open is not None and self._open[0] == entry.id:
            live = self._open[1]
            self._open = None
            if live.width == width and live.raw_length <= len(entry.text):
                live.grow(entry.text)
                return live.finish()
        return self._markdown.rows(harmless(entry.text), width)

    def _growing(self, entry: Entry, width: int) -> OpenText:
        live = self._open[1] if self._open is not None and self._open[0] == entry.id else None
        if live is None or live.width != width or live.raw_length > len(entry.text):
            live = OpenText(self._markdown, width)
            self._open = (entry.id, live)
        live.grow(entry.text)
        return live


def painter(palette: Palette, glyphs: Glyphs) -> Painter:
    """A painter for one palette and set of glyphs."""
    return Painter(Markdown(parser(), palette, glyphs))
