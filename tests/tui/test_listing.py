"""The list of conversations as data."""

import statistics
import time

from rich.cells import cell_len

from localkv.tui.glyphs import DRAWN
from localkv.tui.listing import Item, line, matching, ordered
from tests.tui.samples import PALETTE


def item(title, updated=0.0, pinned=False):
    return Item(title, title, title.casefold(), updated, pinned)


def test_every_word_must_be_there():
    """Words match anywhere in a title, in any order and case."""
    items = [item("Rust Borrow checker"), item("borrowed book")]
    assert matching(items, "BORROW rust") == items[:1]
    assert matching(items, "bor") == items
    assert matching(items, "  ") == items
    assert matching(items, "x") == []


def test_order():
    """Pinned first, then the newest."""
    items = [item("old", 1), item("new", 3), item("pinned", 2, pinned=True)]
    assert [each.title for each in ordered(items)] == ["pinned", "new", "old"]


def test_lines_are_as_wide_as_the_list():
    """Whatever the title, a line fills its width exactly."""
    for title in ("a", "漢字" * 20, "word " * 20, "👩‍💻" * 20):
        for width in (12, 24, 40):
            spans = line(item(title), width, 100.0, {title: "*"}, PALETTE, DRAWN, opened=True)
            assert sum(cell_len(text) for text, _ in spans) == width


def test_filtering_follows_the_number_of_conversations():
    """Ten times as many conversations take about ten times as long, not a hundred times."""
    many = [item(f"conversation number {index} about subject {index % 97}") for index in range(10_000)]

    def seconds(items):
        times = []
        for _ in range(7):
            began = time.perf_counter()
            matching(items, "sub 42")
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    assert seconds(many) <= 40 * seconds(many[:1_000])
