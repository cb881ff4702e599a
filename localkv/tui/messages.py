"""How one message looks: who and when, the text, the numbers or the mark beneath it, a blank row.

Pure. What people type is shown as they typed it, with the files in it folded into rows; answers are Markdown, with what the
model thought before them folded into one row. The answer that is being written keeps its finished blocks rendered (live.OpenText).
"""

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from localkv.chat.attachments import split_files
from localkv.chat.thoughts import Thought, split_thought
from localkv.tui.clean import harmless, one_line
from localkv.tui.glyphs import Glyphs
from localkv.tui.live import OpenText
from localkv.tui.markdown import Markdown, parser
from localkv.tui.pages import Entry
from localkv.tui.rows import BLANK, Row, indent, row, wrap
from localkv.tui.theme import Palette
from localkv.tui.thinking import thought_label

TEXT_WIDTH = 100
"""Longer lines are hard to read; wider screens leave room at the right."""

FOLDS = "folds"
"""The key of a style's meta that says which message a click folds or unfolds."""

_NAMES = {"user": "You", "assistant": "Assistant", "system": "System"}


class Painter:
    """Paints messages in one palette."""

    def __init__(self, markdown: Markdown) -> None:
        self._markdown = markdown
        self._open: dict[str, OpenText] = {}
        self._open_of = ""

    def rows(self, entry: Entry, width: int) -> list[Row]:
        """`entry` as rows."""
        width = min(width, TEXT_WIDTH)
        palette = self._markdown.palette
        body = self._body(entry, width)
        foot = [made for note in entry.notes for made in wrap([(note, palette.muted)], width)]
        mark = wrap([(entry.mark, palette.warning)], width) if entry.mark else []
        return [self._head(entry, width), *body, *mark, *foot, BLANK]

    def _head(self, entry: Entry, width: int) -> Row:
        palette = self._markdown.palette
        style = {"user": palette.user, "assistant": palette.assistant}.get(entry.role, palette.muted)
        name, time = _NAMES.get(entry.role, entry.role), f"  {entry.time}" if entry.time else ""
        gap = max(2, width - cell_len(name + time + entry.versions)) if entry.versions else 0
        return row([(name, style), (time, palette.muted), (" " * gap, palette.muted), (entry.versions, palette.bold)])

    def _body(self, entry: Entry, width: int) -> list[Row]:
        if entry.role != "assistant":
            return self._written(entry, width)
        thought = split_thought(entry.text)
        if thought is None:
            return self._text("answer", entry, entry.text, width)
        rows = [self._fold(entry, thought, width)]
        if entry.unfolded and thought.inside:
            bar = [(self._markdown.glyphs.quote + " ", self._markdown.palette.muted)]
            inside = self._text("thought", entry, thought.inside, width - 2)
            rows += indent(inside, bar, bar, copied=False)
        answer = self._text("answer", entry, thought.rest, width) if thought.rest else []
        return [*rows, *([BLANK, *answer] if answer else [])]

    def _written(self, entry: Entry, width: int) -> list[Row]:
        """What a person wrote; the files in it as a row each, until they are unfolded."""
        files, words = split_files(entry.text) if entry.role == "user" else ([], entry.text)
        shown = entry.text if entry.unfolded else words
        mark = "v" if entry.unfolded else ">"
        heads = [self._folding(entry, f"{mark} {one_line(file.name)}  {file.size}", width) for file in files]
        return [*heads, *self._markdown.plain(harmless(shown.strip("\n")), width)]

    def _fold(self, entry: Entry, thought: Thought, width: int) -> Row:
        """The row that stands for the thoughts; copying passes over it."""
        label = thought_label(thought, entry.thought, growing=entry.growing)
        return self._folding(entry, f"{'v' if entry.unfolded else '>'} {label}", width)

    def _folding(self, entry: Entry, label: str, width: int) -> Row:
        """A row that folds and unfolds what it names."""
        shown = set_cell_size(label, min(width, cell_len(label)))
        style = self._markdown.palette.muted + Style(meta={FOLDS: entry.id})
        return row([(shown, style)], text="", gutter=len(shown), glue="")

    def _text(self, part: str, entry: Entry, text: str, width: int) -> list[Row]:
        """One part of an answer. While it grows, and once more when it has ended, only what is new is rendered."""
        if entry.growing:
            return self._growing(part, entry.id, text, width).rows()
        live = self._open.pop(part, None) if self._open_of == entry.id else None
        if live is not None and live.begins(text, width):
            live.grow(text)
            return live.finish()
        return self._markdown.rows(harmless(text), width)

    def _growing(self, part: str, message: str, text: str, width: int) -> OpenText:
        if self._open_of != message:
            self._open.clear()
            self._open_of = message
        live = self._open.get(part)
        if live is None or not live.begins(text, width):
            live = self._open[part] = OpenText(self._markdown, width)
        live.grow(text)
        return live


def painter(palette: Palette, glyphs: Glyphs) -> Painter:
    """A painter for one palette and set of glyphs."""
    return Painter(Markdown(parser(), palette, glyphs))
