"""Words in what rows show: marks fall on the words, whatever stands between and around them."""

from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from localkv.chat.words import pattern_of
from localkv.tui import marks
from localkv.tui.finding import hits_in, nearest, spans_in
from localkv.tui.messages import Painter
from localkv.tui.pages import Entry, Pages
from localkv.tui.rows import row
from tests.tui.samples import MARKDOWN


def marked(text, words, width=60):
    """What is marked, each occurrence in one piece."""
    rows = MARKDOWN.rows(text, width)
    found = spans_in(rows, pattern_of(words))
    return ["".join(rows[row].strip.text[start:end] for row, (start, end) in pieces) for pieces in found]


@given(
    st.lists(st.sampled_from(["needle", "hay", "漢字", "Needle", "x"]), min_size=1, max_size=40),
    st.integers(12, 60),
)
def test_every_occurrence_is_marked_however_it_wraps(words, width):
    """Each place is found once, on whatever rows it falls."""
    text = " ".join(words)
    wanted = sum(word.lower() == "needle" for word in words)
    assert [each.lower() for each in marked(text, "needle", width)] == ["needle"] * wanted


def test_words_across_a_soft_wrap_are_one_place():
    """What one reads as a phrase is found as one."""
    [found] = marked("one two three four five", "three four", 14)
    assert found == "threefour", "the space between them is the end of a row"


def test_places_behind_gutters():
    """In code, quotations, lists and tables the mark falls on the word and not beside it."""
    text = "```python\nneedle = 1\n```\n\n> needle\n\n- needle\n\n| a | needle |\n|---|---|\n| 1 | needle |"
    assert marked(text, "needle") == ["needle"] * 5


def test_markup_and_lines_between_words():
    """Emphasis and line breaks between two words do not hide them."""
    assert marked("a **big** word", "big word") == ["big word"]
    entries = [Entry("1", "assistant", "a **big** word\nand big\nword")]
    assert len(hits_in(entries, pattern_of("big word"))) == 2


def test_patterns_are_literal():
    """What one types is no expression."""
    assert marked("a.b a+b (x) [y]", "a+b") == ["a+b"]
    assert pattern_of("  ") is None


def test_the_search_begins_above_the_view():
    """The last place up to the message in view; else the first."""
    hits = hits_in([Entry(str(n), "user", "x" if n in (2, 5, 9) else "") for n in range(12)], pattern_of("x"))
    assert [nearest(hits, n) for n in (0, 2, 4, 5, 11)] == [0, 0, 0, 1, 2]
    assert nearest([], 3) == 0


def test_marks_are_made_once_for_each_state(monkeypatch):
    """Painting a screen full of rows looks through a message once, also while it grows."""
    seen = []
    real = marks.spans_in
    monkeypatch.setattr(marks, "spans_in", lambda rows, pattern: (seen.append(len(rows)), real(rows, pattern))[1])
    painter = Painter(MARKDOWN)
    pages = Pages(painter.rows)
    pages.resize(60, "theme")
    found = marks.Marks(pages)
    for n in range(1, 4):
        pages.load([Entry("old", "user", "needle"), Entry("live", "assistant", "needle\n\n" * n, growing=True)])
        pages.settle_end(30)
        found.find("needle", 1)
        assert sum(len(found.spans(y)) for y in range(pages.height)) == 1 + n
    assert len(seen) == 1 + 3


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(-3, 3))
def test_stepping_goes_to_the_neighbour(counts, step):
    """From any place to the one before or after it, around the ends, also when new places came in between."""
    pages = Pages(lambda entry, width: [row([(entry.id, Style())])])
    pages.resize(60, "theme")
    entries = [Entry(str(n), "user", "x " * count) for n, count in enumerate(counts)]
    pages.load(entries)
    found = marks.Marks(pages)
    found.find("x", len(counts))
    total = sum(counts)
    at = found.count.n
    assert at == total
    pages.load([*entries, Entry("new", "user", "x x")])
    found.step(step)
    assert found.count.of == total + 2
    assert found.count.n == ((max(at, 1) - 1 + step) % (total + 2)) + 1
