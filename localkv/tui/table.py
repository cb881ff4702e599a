"""Tables of Markdown as rows: columns as wide as they need, narrowed together when the screen is not wide enough. Pure."""

from dataclasses import replace
from itertools import zip_longest

from rich.cells import cell_len
from rich.style import Style

from localkv.tui.glyphs import Glyphs
from localkv.tui.rows import Row, Span, plain, row, spans_of, wrap
from localkv.tui.theme import Palette

MIN_COLUMN = 3
SEPARATOR = " | "
"""Between cells where a table is copied."""


def table_rows(grid: list[list[list[Span]]], width: int, palette: Palette, glyphs: Glyphs) -> list[Row]:
    """`grid` (lines of cells, the first line is the head) as rows at most `width` cells wide."""
    if not grid or not grid[0]:
        return []
    columns = max(len(line) for line in grid)
    natural = [max((cell_len(plain(line[i])) for line in grid if i < len(line)), default=0) for i in range(columns)]
    widths = fit(natural, width - 3 * (columns - 1))
    bar = (f" {glyphs.column} ", palette.rule)
    rows = []
    for index, line in enumerate(grid):
        rows += _line(line, widths, bar, palette.text)
        if index == 0:
            joint = glyphs.rule + glyphs.cross + glyphs.rule
            rows.append(row([(joint.join(glyphs.rule * size for size in widths), palette.rule)], text=_rule(widths)))
    return rows


def fit(natural: list[int], room: int) -> list[int]:
    """Column widths that together take at most `room` cells where that is possible: the widest columns give way first."""
    widths = [max(size, MIN_COLUMN) for size in natural]
    excess = sum(widths) - room
    while excess > 0 and max(widths) > MIN_COLUMN:
        widest = max(widths)
        below = max([size for size in widths if size < widest], default=MIN_COLUMN)
        tops = [i for i, size in enumerate(widths) if size == widest]
        step = min(widest - max(below, MIN_COLUMN), max(1, excess // len(tops)))
        for i in tops:
            take = min(step, excess)
            widths[i] -= take
            excess -= take
    return widths


def _line(cells: list[list[Span]], widths: list[int], bar: Span, style: Style) -> list[Row]:
    wrapped = [wrap(cells[i], size) if i < len(cells) else [] for i, size in enumerate(widths)]
    rows = [_row(parts, widths, bar, style) for parts in zip_longest(*wrapped)]
    if len(rows) > 1:
        line = SEPARATOR.join(plain(cell) for cell in cells).rstrip()
        rows[0] = replace(rows[0], line=line, n_rows=len(rows))
    return rows


def _row(parts: tuple[Row | None, ...], widths: list[int], bar: Span, style: Style) -> Row:
    spans: list[Span] = []
    offsets: list[int] = []
    text = ""
    for i, (part, size) in enumerate(zip(parts, widths, strict=True)):
        if i:
            spans.append(bar)
            offsets += [len(text) + min(k, len(SEPARATOR)) for k in range(len(bar[0]))]
            text += SEPARATOR
        shown = spans_of(part) if part is not None else []
        copied, characters = (part.text, len(part.strip.text)) if part is not None else ("", 0)
        pad = size - (part.strip.cell_length if part is not None else 0)
        spans += [*shown, (" " * pad, style)]
        offsets += [*range(len(text), len(text) + characters), *[len(text) + len(copied)] * pad]
        text += copied
    return replace(row(spans, text=text.rstrip()), offsets=(*offsets, len(text)))


def _rule(widths: list[int]) -> str:
    return " | ".join("-" * size for size in widths)
