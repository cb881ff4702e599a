"""The list of conversations as data."""

import statistics
import time
from collections import Counter
from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localkv.commands.order import ORDERS
from localkv.service.client import Resume
from localkv.tui.clean import one_line
from localkv.tui.glyphs import DRAWN
from localkv.tui.listing import MONTHS, Calendar, Heading, Item, matching, ordered, with_headings
from localkv.tui.listline import Look, heading, line, waiting
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
            spans = line(item(title), width, Look(100.0, PALETTE, DRAWN, "*", opened=True))
            assert sum(cell_len(text) for text, _ in spans) == width


TIMES = st.floats(0, 4e9)
ITEMS = st.lists(
    st.builds(
        lambda title, updated, pinned, tokens: Item(title, title, title.casefold(), updated, pinned, (), "list", tokens),
        st.text(max_size=20), TIMES, st.booleans(), st.integers(0, 10**9),
    ),
    max_size=30,
)  # fmt: skip
ORDER = st.sampled_from(ORDERS)


@given(items=ITEMS, order=ORDER)
def test_sorting_loses_nothing_and_keeps_pins_on_top(items, order):
    """Every order has the same conversations, the pinned ones before all others, each part in that order."""
    found = ordered(items, order)
    assert Counter(map(id, found)) == Counter(map(id, items))
    assert [item.pinned for item in found] == sorted((item.pinned for item in found), reverse=True)
    keys = {
        "newest": lambda item: -item.updated,
        "name": lambda item: item.title.casefold(),
        "size": lambda item: -item.tokens,
    }
    for pinned in (True, False):
        part = [keys[order](item) for item in found if item.pinned == pinned]
        assert part == sorted(part)
    assert ordered(found, order) == found, "sorting again changes nothing"


@given(items=ITEMS, query=st.text(max_size=6))
def test_filtering_keeps_the_order_and_every_match(items, query):
    """What the filter leaves is exactly what has all words, in the order in which it was."""
    found = matching(items, query)
    assert [id(item) for item in found] == [
        id(item) for item in items if all(word in item.folded for word in query.casefold().split())
    ]


@given(items=ITEMS, order=ORDER, now=TIMES)
def test_every_conversation_stands_under_one_heading(items, order, now):
    """Rows are the items in their order; no heading is there twice or without a conversation below it."""
    rows = with_headings(ordered(items, order), order, now)
    assert [row for row in rows if isinstance(row, Item)] == ordered(items, order)
    headings = [row.text for row in rows if isinstance(row, Heading)]
    assert len(headings) == len(set(headings))
    assert all(isinstance(below, Item) for row, below in pairwise(rows) if isinstance(row, Heading))
    if rows:
        assert isinstance(rows[0], Heading)
        assert isinstance(rows[-1], Item)


@given(when=st.floats(1e8, 4e9), now=st.floats(1e8, 4e9))
def test_groups_follow_the_calendar(when, now):
    """Today is the same day, yesterday the one before, 7 days the week before; else the month, with another year's number."""
    day, today = (datetime.fromtimestamp(at) for at in (when, now))
    days = (today.date() - day.date()).days
    year = "" if day.year == today.year else f" {day.year}"
    name = "Today" if days <= 0 else "Yesterday" if days == 1 else "7 days" if days <= 7 else f"{MONTHS[day.month - 1]}{year}"
    assert Calendar(now).group(when) == name


def test_months_that_follow_each_other_are_not_mixed_up():
    """The calendar remembers the last month, and nothing of it sticks to the next one."""
    calendar = Calendar(datetime(2025, 12, 31, 12).timestamp())
    days = [datetime(2025, 11, 1), datetime(2025, 10, 31, 23, 59, 59), datetime(2025, 11, 30, 23, 59), datetime(2024, 11, 5)]
    assert [calendar.group(day.timestamp()) for day in days] == ["November", "October", "November", "November 2024"]


def test_arranging_thousands_does_not_grow_faster_than_they_do():
    """Order, filter and groups of ten times as many conversations take about ten times as long, not a hundred times."""
    many = [item(f"conversation number {index} about {index % 97}", index * 86_400.0 / 9) for index in range(10_000)]

    def seconds(items):
        times = []
        for _ in range(5):
            began = time.thread_time()  # the machine may be busy with something else
            with_headings(matching(ordered(items), "about"), "newest", 10_000 * 9_600.0)
            times.append(time.thread_time() - began)
        return min(times)

    assert seconds(many) <= 40 * seconds(many[:1_000])


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, ""), (0.04, ""), (0.1, "~0.1s"), (9.9, "~9.9s"), (9.96, "~10s"), (75, "~75s"), (99.6, "~2m"), (1e9, "~999m")],
)
def test_waits_are_short_to_read(seconds, shown):
    """What nobody would notice has no number; all others fit in five characters, or six for hours."""
    assert waiting(Resume(seconds, "ssd")) == shown


@pytest.mark.parametrize(("origin", "letter"), [("slot", "H"), ("vram", "H"), ("ram", "W"), ("ssd", "C"), ("none", "-")])
def test_a_letter_says_where_the_cache_is(origin, letter):
    """H, W, C and -; being answered or unread say more and take the letter's place."""
    spans = line(item("t"), 30, Look(100.0, PALETTE, DRAWN, resume=Resume(2.5, origin)))
    text = "".join(part for part, _ in spans)
    assert text[1] == letter
    assert "~2.5s" in text
    busy = "".join(part for part, _ in line(item("t"), 30, Look(100.0, PALETTE, DRAWN, "*", Resume(2.5, origin))))
    assert (busy[1], "~" in busy) == ("*", False)


@given(title=st.text(max_size=40), width=st.integers(9, 60), seconds=st.floats(0, 1e6), tokens=st.integers(0, 10**10))
def test_lines_with_waits_are_as_wide_as_the_list(title, width, seconds, tokens):
    """Whatever stands in it, a line is as wide as the list, and the wait goes before the title gets too short to read."""
    for sizes in (True, False):
        look = Look(1e9, PALETTE, DRAWN, resume=Resume(seconds, "ssd"), sizes=sizes)
        shown = one_line(title)
        spans = line(Item("i", shown, shown, 0.0, tokens=tokens), width, look)
        assert sum(cell_len(text) for text, _ in spans) == width
    assert sum(cell_len(text) for text, _ in heading(Heading("September 2025"), width, PALETTE)) == width


@given(
    tags=st.lists(st.text("abc漢é", min_size=1, max_size=9), max_size=4), title=st.text(max_size=30), width=st.integers(9, 60)
)
def test_tags_stand_after_the_title_as_far_as_they_fit(tags, title, width):
    """A line is as wide as the list; all tags are there if there is room, and what is cut says so."""
    shown = one_line(title)
    spans = line(Item("i", shown, shown, 0.0, tags=tuple(tags)), width, Look(1e9, PALETTE, DRAWN))
    text = "".join(part for part, _ in spans)
    assert sum(cell_len(part) for part, _ in spans) == width
    whole, room = " ".join(f"#{tag}" for tag in tags), max(1, width - 8) - cell_len(shown)
    if tags and room > cell_len(whole) + 4:
        assert f" {whole} " in text
    elif tags and room > 4:
        assert "#" in text
        assert DRAWN.ellipsis in text or whole in text


def test_a_blank_badge_has_no_colour():
    """On the reversed row of the cursor it would be a coloured box that means nothing."""
    for badge, coloured in (("", False), ("*", True)):
        _, (_, style), *_ = line(item("t"), 30, Look(100.0, PALETTE, DRAWN, badge))
        assert (style.color == PALETTE.accent.color) == coloured


@pytest.mark.slow
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
