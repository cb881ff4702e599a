"""Rows: what a line-API widget shows, and what copying takes from it.

Pure; knows no widgets. A row is at most `width` cells wide. Soft wraps remember what stood between the two rows, so that a
copied paragraph is the paragraph and not its picture. Widths are terminal cells, counted by grapheme.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

Span = tuple[str, Style]
"""A run of text without newline in one style."""

_WIDE = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
_PLAIN = Style()
_CLOSING = "\u3001\u3002\uff01\uff09\uff0c\uff0e\uff1a\uff1b\uff1f\u300d\u300f\u3011"
_CHUNK = re.compile(f"\\s+|[{_WIDE}][{_CLOSING}]*|[^\\s{_WIDE}]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the screen."""

    strip: Strip
    text: str
    """What copying takes."""
    gutter: int = 0
    """Characters of the strip before `text`."""
    glue: str = "\n"
    """What stands between this row and the next one in the logical text; not a newline after a soft wrap."""
    offsets: tuple[int, ...] = ()
    """Where in `text` each character of the strip stands, and the end; empty where it follows from `gutter`."""
    line: str = ""
    """On the first of several rows that only together are one logical line, such as wrapped cells: that line."""
    n_rows: int = 1
    """How many rows `line` takes."""

    def at(self, column: int) -> int:
        """The offset in `text` of a character of the strip; of its end if `column` is negative."""
        if column < 0:
            return len(self.text)
        if self.offsets:
            return self.offsets[min(column, len(self.offsets) - 1)]
        return max(column - self.gutter, 0)


def plain(spans: Iterable[Span]) -> str:
    """The characters of `spans`."""
    return "".join(text for text, _ in spans)


def spans_of(inner: Row) -> list[Span]:
    """What `inner` shows, as spans."""
    return [(segment.text, segment.style or _PLAIN) for segment in inner.strip]


def row(spans: Sequence[Span], *, text: str | None = None, gutter: int = 0, glue: str = "\n") -> Row:
    """A row that shows `spans`."""
    whole = plain(spans)
    strip = Strip([Segment(part, style) for part, style in spans if part], cell_len(whole))
    return Row(strip, whole[gutter:] if text is None else text, gutter, glue)


BLANK = Row(Strip([], 0), "")


def wrap(spans: Sequence[Span], width: int) -> list[Row]:
    """One logical line as rows of at most `width` cells; breaks at spaces, between wide characters, else anywhere."""
    line = plain(spans)
    if cell_len(line) <= width:
        return [row(spans)]
    rows = []
    start = 0
    for end in [*breaks(line, max(2, width)), len(line)]:
        piece = line[start:end]
        shown = piece.rstrip() if end < len(line) or cell_len(piece) > width else piece
        rows.append(row(cut(spans, start, start + len(shown)), glue=piece[len(shown) :]))
        start = end
    rows[-1] = replace(rows[-1], text=rows[-1].text + rows[-1].glue, glue="\n")
    return rows


def cut(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """The part of `spans` between two character offsets."""
    parts = []
    offset = 0
    for text, style in spans:
        low, high = max(start - offset, 0), min(end - offset, len(text))
        if low < high:
            parts.append((text[low:high], style))
        offset += len(text)
        if offset >= end:
            break
    return parts


def breaks(line: str, width: int) -> list[int]:
    """Offsets at which `line` is cut so that no piece, its trailing spaces aside, is wider than `width` cells."""
    found: list[int] = []
    column = 0
    for match in _CHUNK.finditer(line):
        chunk = match[0]
        cells = cell_len(chunk)
        if column + cells <= width or chunk[0].isspace():
            column += cells
            continue
        if match.start() and column:
            found.append(match.start())
        column = cells
        if cells > width:
            column = _break_word(chunk, match.start(), width, found)
    return found


def _break_word(word: str, offset: int, width: int, found: list[int]) -> int:
    """Cut a word that is wider than a row between graphemes; returns the column after it."""
    column = 0
    for start, _, cells in split_graphemes(word)[0]:
        if column + cells > width:
            found.append(offset + start)
            column = 0
        column += cells
    return column


def indent(rows: Sequence[Row], first: Sequence[Span], rest: Sequence[Span], *, copied: bool) -> list[Row]:
    """`rows` behind a prefix: `first` before row one, `rest` before the others. `copied`: the prefix belongs to the text."""
    result = []
    soft = False
    for index, inner in enumerate(rows):
        prefix = rest if index else first
        lead = plain(prefix)
        strip = Strip(
            [*(Segment(text, style) for text, style in prefix), *inner.strip], cell_len(lead) + inner.strip.cell_length
        )
        kept = lead if copied and not soft else ""
        offsets = inner.offsets
        if offsets:
            offsets = (*(min(k, len(kept)) for k in range(len(lead))), *(len(kept) + offset for offset in offsets))
        gutter = inner.gutter + len(lead) - len(kept)
        result.append(Row(strip, kept + inner.text, gutter, inner.glue, offsets, kept + inner.line, inner.n_rows))
        soft = inner.glue != "\n"
    return result


def fill(inner: Row, width: int, style: Style) -> Row:
    """`inner` continued to `width` cells in `style`."""
    return replace(inner, strip=inner.strip.extend_cell_length(width, style))


def selected(taken: Iterable[tuple[Row, int, int]]) -> str:
    """The logical text of rows, each with the start and end character on screen (end -1: to its end)."""
    rows = list(taken)
    parts: list[str] = []
    glue = ""
    index = 0
    while index < len(rows):
        inner, start, end = rows[index]
        same = rows[index : index + inner.n_rows]
        whole = inner.n_rows > 1 and len(same) == inner.n_rows and all(_is_whole(*each) for each in same)
        parts.append(glue + (inner.line if whole else inner.text[inner.at(start) : inner.at(end)]))
        index += inner.n_rows if whole else 1
        glue = rows[index - 1][0].glue
    return "".join(parts)


def _is_whole(inner: Row, start: int, end: int) -> bool:
    return inner.at(start) == 0 and inner.text[inner.at(end) :].strip() == ""
