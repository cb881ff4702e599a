"""Plots made of characters: never larger than asked, honest about up and down, and calm where there is nothing to draw."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from localkv.tui.glyphs import DRAWN, PLAIN
from localkv.tui.plot import _DOTS, columns_of, nice_bytes, nice_top, plot, sparkline

glyphs = st.sampled_from([DRAWN, PLAIN])
numbers = st.floats(0, 1e15, allow_nan=False)
series = st.lists(st.none() | numbers, max_size=120)
odd = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=60)


def heights(lines, glyphs):
    """The highest dot of each column of a plot, from 0 at the bottom; None where there is none."""
    tall, wide = (2, 1) if glyphs.ascii else (4, 2)
    found = []
    for column in range(len(lines[0]) * wide if lines else 0):
        dots = []
        for up, line in enumerate(reversed(lines)):
            mark = line[column // wide]
            if glyphs.ascii:
                inside = {".": [0], "'": [1], ":": [0, 1]}.get(mark, [])
            else:
                bits = ord(mark) - 0x2800 if mark != " " else 0
                inside = [dot for dot in range(4) if bits & _DOTS[column % 2][dot]]
            dots += [up * tall + dot for dot in inside]
        found.append(max(dots, default=None))
    return found


@given(series, st.integers(1, 12), glyphs, st.booleans())
def test_a_plot_is_as_large_as_asked(values, rows, glyphs, filled):
    """So many rows, each as wide as the values need and no wider, of characters that are one cell wide."""
    lines = plot(values, rows, nice_top(values), glyphs, filled=filled)
    cells = math.ceil(len(values) / columns_of(1, glyphs))
    assert len(lines) == rows
    assert {cell_len(line) for line in lines} == {cells}


@given(st.lists(numbers, min_size=1, max_size=120), st.integers(1, 12), glyphs, st.booleans())
def test_a_rising_value_never_looks_as_if_it_fell(values, rows, glyphs, filled):
    """Monotone data, monotone drawing: the top of each column is not below that of the one before."""
    values = sorted(values)
    seen = [top for top in heights(plot(values, rows, nice_top(values), glyphs, filled=filled), glyphs) if top is not None]
    assert seen == sorted(seen)


@given(numbers, st.integers(1, 60), st.integers(1, 12), glyphs)
def test_a_constant_is_a_straight_line(value, count, rows, glyphs):
    """Every column at one height, and no dots elsewhere."""
    lines = plot([value] * count, rows, nice_top([value]), glyphs)
    assert len(set(heights(lines, glyphs)[:count])) == 1
    assert sum(bool(line.strip()) for line in lines) == 1


@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN])
@pytest.mark.parametrize("values", [[], [None], [None] * 30])
def test_nothing_is_drawn_where_nothing_was_seen(glyphs, values):
    """No values, or gaps alone."""
    assert all(not line.strip() for line in plot(values, 3, nice_top(values), glyphs))


@given(odd, st.integers(1, 8), glyphs, st.booleans())
def test_values_that_are_no_numbers_leave_gaps(values, rows, glyphs, filled):
    """NaN and infinity, which no counter should give, draw nothing and break nothing."""
    lines = plot(values, rows, 1.0, glyphs, filled=filled)
    tops = heights(lines, glyphs)
    for value, top in zip(values, tops, strict=False):
        assert top is None or math.isfinite(value)


@given(series)
@example([5e-324])
def test_the_upper_edge_is_round_and_above_all(values):
    """Nothing is cut off, and less than a fifth of a plot's height is used only by what is nought."""
    top, seen = nice_top(values), [value for value in values if value is not None]
    assert top > 0
    assert all(value <= top * (1 + 1e-9) for value in seen)
    if seen and max(seen) > 1e-300:
        assert max(seen) >= top / 2.5 * (1 - 1e-9)
    for value in seen:
        assert value <= nice_bytes(values)


@given(st.lists(st.integers(0, 10**9), max_size=40), glyphs)
def test_a_sparkline_has_one_character_for_each_value_and_shows_whatever_is_not_nought(values, glyphs):
    """A single record among a million is seen, and nought is a space."""
    line = sparkline(values, glyphs)
    assert cell_len(line) == len(values)
    assert [mark != " " for mark in line] == [value > 0 for value in values]


def test_bars_stand_on_the_ground():
    """A bar is drawn from the bottom up, a line is not."""
    assert plot([0, 4], 2, 4.0, PLAIN, filled=True) == [" :", " :"]
    assert plot([4, 4], 2, 4.0, PLAIN) == ["''", "  "]


@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN])
def test_ascii_is_ascii(glyphs):
    """Terminals without braille get dots of their own."""
    drawn = "".join(plot([1, 2, 3], 2, 3.0, glyphs)) + sparkline([1, 2, 3], glyphs)
    assert drawn.isascii() == glyphs.ascii
