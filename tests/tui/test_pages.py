"""The column of messages: heights, places, and that looking moves nothing."""

import random

from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from localkv.tui.pages import Entry, Pages
from localkv.tui.rows import row


def painted(calls):
    """A painter whose rows name their message; real heights differ from every estimate."""

    def paint(entry, width):
        calls.append(entry.id)
        return [row([(f"{entry.id}:{index}", Style())]) for index in range(int(entry.text))]

    return paint


def pages(heights, calls=None):
    made = Pages(painted(calls if calls is not None else []))
    made.resize(80, "theme")
    made.load([Entry(str(index), "user", str(height)) for index, height in enumerate(heights)])
    return made


def view(made, y, rows):
    return [made.row(y + index).text for index in range(rows)]


def test_the_end_renders_only_what_is_seen():
    """Opening 2,000 messages at the end renders a handful."""
    calls = []
    made = pages([7] * 2_000, calls)
    y = made.settle_end(24)
    assert view(made, y, 24)[-1] == "1999:6"
    assert len(set(calls)) <= 5


def test_nothing_is_painted_before_the_width_is_known():
    """Rows are blank until then."""
    calls = []
    made = Pages(painted(calls))
    made.load([Entry("0", "user", "5")])
    assert view(made, 0, 5) == [""] * 5
    assert calls == []
    made.resize(80, "theme")
    made.settle_end(5)
    assert view(made, 0, 5)[0] == "0:0"


def test_settling_moves_nothing_that_is_seen():
    """While one scrolls up through estimates, what was on screen moves exactly as far as one scrolled."""
    source = random.Random(1)
    made = pages([source.randrange(1, 40) for _ in range(300)])
    y = made.settle_end(20)
    before = view(made, y, 20)
    for _ in range(2_000):
        step = min(y, source.randrange(1, 19))
        y = made.settle(y - step, 20)
        after = view(made, y, 20)
        if y > 0:
            assert after[step:] == before[: 20 - step]
        before = after
        if y == 0:
            break
    assert before[0] == "0:0"


def test_a_jump_into_the_unknown_lands():
    """Jumping to the middle of estimates shows rows without gaps."""
    made = pages([3, 50, 2] * 100)
    y = made.settle(made.height // 2, 20)
    shown = view(made, y, 20)
    assert all(shown)
    assert len(set(shown)) == 20


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 30), st.data())
def test_rows_between_two_seen_ones_are_all_there(heights, rows, data):
    """Between what was on screen, messages that never were are whole and nothing else is there; no message gets another height."""
    made = pages(heights)
    seen = [made.settle_end(rows)]
    seen.append(made.settle(data.draw(st.integers(0, seen[0])), rows))
    seen[0] = made.settle_end(rows)
    first, last = sorted(data.draw(st.tuples(*[st.integers(y, min(y + rows, made.height) - 1) for y in seen])))
    whole = [f"{index}:{offset}" for index, height in enumerate(heights) for offset in range(height)]
    wanted = whole[whole.index(made.row(first).text) : whole.index(made.row(last).text) + 1]
    before = made.height
    taken = list(made.between(first, last))
    assert [each.text for _, each in taken] == wanted
    assert [y for y, each in taken if y is not None and made.row(y) is not each] == []
    assert made.height == before
    assert [each.text for _, each in made.between(0, before - 1)] == whole


def test_places_survive_another_width():
    """A place is a message and a share of it."""
    made = pages([10] * 50)
    y = made.settle(200, 20)
    place = made.place(y)
    made.resize(40, "theme")
    assert made.at(made.find(place))[0] == made.at(y)[0] or made.place(made.find(place))[0] == place[0]


def test_put_replaces_and_appends():
    """The same id is the same message; another id comes last."""
    made = pages([2, 2])
    made.put(Entry("1", "user", "5"))
    made.put(Entry("2", "user", "1"))
    made.settle_end(50)
    assert made.height == 2 + 5 + 1
    assert view(made, 0, 8) == ["0:0", "0:1", "1:0", "1:1", "1:2", "1:3", "1:4", "2:0"]


def test_loading_again_keeps_what_is_known():
    """The same messages in another list are not rendered again."""
    calls = []
    made = pages([4] * 30, calls)
    made.settle_end(200)
    calls.clear()
    made.load([*made.entries, Entry("new", "user", "2")])
    made.settle_end(200)
    assert calls == ["new"]
    assert made.height == 30 * 4 + 2


def test_a_growing_message_is_rendered_once_for_each_state():
    """What grows is not kept, and asking twice renders once."""
    calls = []
    made = pages([2], calls)
    for height in (1, 2, 3):
        made.put(Entry("g", "assistant", str(height), growing=True))
        made.settle_end(10)
        view(made, 0, 10)
    assert calls.count("g") == 3


def test_nothing_is_an_empty_column():
    """No message, no rows, no error."""
    made = pages([])
    assert made.settle(5, 10) == 0
    assert made.settle_end(10) == 0
    assert made.height == 0
    assert made.row(0).text == ""
    assert made.place(3) == ("", 0.0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("scroll"), st.integers(-60, 60)),
        st.tuples(st.just("grow"), st.integers(1, 30)),
        st.tuples(st.just("append"), st.integers(1, 30)),
        st.tuples(st.just("reload"), st.just(0)),
    ),
    max_size=40,
)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(3, 30), STEPS)
def test_only_scrolling_moves_what_is_read(heights, rows, steps):
    """In any order: text that grows or is added below, and messages read again from the store, move no row in view; and
    scrolling moves rows by what was scrolled, however wrong the estimates are."""
    made = pages(heights)
    y = made.settle_end(rows)
    for step, size in steps:
        before = view(made, y, rows)
        if step == "scroll":
            wanted = max(0, min(y + size, made.height - rows))
            moved, y = wanted - y, made.settle(wanted, rows)
            if not 0 <= y <= made.height - rows or abs(moved) >= rows:
                y = max(0, min(y, made.height - rows))  # an end came sooner than estimated, or nothing stays in view
                continue
            after = view(made, y, rows)
            shared = before[max(0, moved) : rows + min(0, moved)]
            assert after[max(0, -moved) : rows - max(0, moved)] == shared
            continue
        last = made.entries[-1]
        if step == "grow":
            made.put(Entry(last.id, "assistant", str(int(last.text) + size), growing=True))
        elif step == "append":
            made.put(Entry(str(len(made)), "assistant", str(size)))
        else:
            made.load([Entry(each.id, each.role, each.text) for each in made.entries])
        y = made.settle(y, rows)
        seen = [row for row in before if row]
        assert view(made, y, len(seen)) == seen
