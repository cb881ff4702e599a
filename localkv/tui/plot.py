"""Numbers as small drawings made of characters: sparklines in one row, plots in several. Pure.

Plots use braille, 2 x 4 dots in a cell, or on terminals without it one column of two heights in a cell, told by ' . and :.
Nothing is drawn where nothing was seen. The lowest row of dots is nought, so a value that is there is always seen.
"""

import math
from collections.abc import Sequence

from localkv.tui.glyphs import Glyphs

_BLOCKS = " ▁▂▃▄▅▆▇█"
_PLAIN_BLOCKS = " .:-=+*#@"
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Of a braille cell: its two columns, each from the lowest dot to the highest."""
_HALVES = (" ", ".", "'", ":")
_STEPS = (1.0, 2.0, 5.0, 10.0)
_LEAST_POWER = -300
"""Of ten: below it numbers lose their digits, and powers of ten become nought."""


def sparkline(values: Sequence[float], glyphs: Glyphs) -> str:
    """One character for each value, higher for more, a space for nought; anything above nought is seen."""
    marks = _PLAIN_BLOCKS if glyphs.ascii else _BLOCKS
    top = max(values, default=0)
    if top <= 0:
        return " " * len(values)
    return "".join(marks[max(1, round(value / top * 8))] if value > 0 else " " for value in values)


def columns_of(cells: int, glyphs: Glyphs) -> int:
    """How many values a plot that is `cells` wide shows."""
    return cells if glyphs.ascii else 2 * cells


def plot(values: Sequence[float | None], rows: int, top: float, glyphs: Glyphs, *, filled: bool = False) -> list[str]:
    """`rows` rows that draw `values` from left to right, of which `top` reaches the upper edge; None leaves a gap.

    A line joins neighbours; `filled`: a bar stands under each value that is not nought.
    """
    wide, tall = (1, 2) if glyphs.ascii else (2, 4)
    heights = [_height(value, top, rows * tall) for value in values]
    cells = math.ceil(len(values) / wide)
    drawn = [[0] * cells for _ in range(rows)]
    before: int | None = None
    for column, height in enumerate(heights):
        if height is not None and not (filled and not values[column]):
            for dot in _dots(height, before, filled=filled):
                row, at = divmod(dot, tall)
                drawn[rows - 1 - row][column // wide] |= (1 << at) if glyphs.ascii else _DOTS[column % wide][at]
        before = height
    return ["".join(_HALVES[bits] if glyphs.ascii else _braille(bits) for bits in line) for line in drawn]


def nice_top(values: Sequence[float | None]) -> float:
    """A round number that no value is above: 1, 2 or 5 times a power of ten; 1 where there is nothing above nought."""
    most = max((value for value in values if value is not None), default=0.0)
    if most <= 0 or not math.isfinite(most):
        return 1.0
    power = 10.0 ** max(_LEAST_POWER, math.floor(math.log10(most)))
    return next((step * power for step in _STEPS if step * power >= most), 10.0 * power)


def nice_bytes(values: Sequence[float | None]) -> float:
    """A power of two that no value is above, a KiB at least: "16.0 GiB" and not "18.6 GiB"."""
    most = max((value for value in values if value is not None and math.isfinite(value)), default=0.0)
    return float(1 << max(10, math.ceil(math.log2(most)))) if most > 1 else 1024.0


def _height(value: float | None, top: float, dots: int) -> int | None:
    """Which dot a value is at, from 0 at the bottom; what is outside stays at the edge."""
    if value is None or not math.isfinite(value):
        return None
    share = min(1.0, max(0.0, value / top)) if top > 0 else 0.0
    return round(share * (dots - 1))


def _dots(height: int, before: int | None, *, filled: bool) -> range:
    """The dots of one column: up to its height, or from beside the neighbour's."""
    if filled:
        return range(height + 1)
    if before is None or abs(height - before) <= 1:
        return range(height, height + 1)
    return range(before + 1, height + 1) if height > before else range(height, before)


def _braille(bits: int) -> str:
    return chr(0x2800 + bits) if bits else " "
