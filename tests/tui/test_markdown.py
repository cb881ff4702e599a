"""Markdown as rows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.tui.messages import Painter
from localkv.tui.pages import Entry
from localkv.tui.rows import selected
from tests.tui.samples import EVERYTHING, MARKDOWN, PALETTE, texts


def shown(text, width=80):
    return texts(MARKDOWN.rows(text, width))


@pytest.mark.parametrize("width", [20, 40, 100])
def test_every_row_fits(width):
    """No row of any construct is wider than the width."""
    assert all(row.strip.cell_length <= width for row in MARKDOWN.rows(EVERYTHING, width))


def test_no_word_is_lost():
    """Every word of a text with a bit of everything is on screen: HTML, link targets, titles and definitions too."""
    screen = " ".join(shown(EVERYTHING, 200))
    words = set(re.findall(r"[^\W_]+", EVERYTHING))
    assert [word for word in words if word not in screen] == []


@given(st.text(alphabet=st.sampled_from("ab\n *_`~#>-+1.|[]()<>!&;\\ "), max_size=120))
def test_letters_are_never_lost(text):
    """Whatever the markup, the letters and digits of a text are on screen."""
    screen = "".join(shown(text, 60))
    wanted = re.findall(r"[ab]", text)
    assert len(re.findall(r"[ab]", screen)) >= len(wanted)


def test_raw_html_is_literal():
    """Tags show as characters."""
    assert shown("<think>\nwhy\n</think>") == ["<think>", "why", "</think>"]
    assert shown("a <b>c</b> <!-- d -->") == ["a <b>c</b> <!-- d -->"]


def test_lists():
    """Bullets, numbers from where they start, nesting, loose items."""
    assert shown("- a\n- b\n  - c") == ["- a", "- b", "  - c"]
    assert shown("9. a\n10. b") == ["9.  a", "10. b"]
    assert shown("1. a\n\n   more\n2. b") == ["1. a", "", "   more", "", "2. b"]


def test_fences_are_coloured_and_copied_whole():
    """Code keeps its lines and is copied without padding; a keyword has its own colour."""
    rows = MARKDOWN.rows("```python\nif x:\n\n    y = 1\n```", 30)
    assert texts(rows) == [" python", " if x:", "", "     y = 1"]
    assert selected((row, 0, -1) for row in rows) == "if x:\n\n    y = 1"
    assert rows[1].strip._segments[1].style == PALETTE.syntax["keyword"]
    assert all(row.strip.cell_length == 30 for row in rows)


def test_an_unknown_language_is_plain():
    """A fence that names nonsense is shown as it is."""
    assert shown("```nonsense-lang x\na < b\n```")[1:] == [" a < b"]


def test_tables():
    """Columns line up, and give way together where the screen is narrow."""
    table = "| a | bb |\n|---|---|\n| 1 | 2 |"
    assert shown(table) == ["a   │ bb", "────┼────", "1   │ 2"]
    wide = "| a | b |\n|---|---|\n| 1 | " + "word " * 20 + "|"
    assert max(len(row) for row in shown(wide, 30)) <= 30


def test_newlines_in_paragraphs_stay():
    """Models mean their line breaks."""
    assert shown("a\nb  \nc") == ["a", "b", "c"]


def test_headings_are_bold():
    """A heading is told from text without colour."""
    [row] = MARKDOWN.rows("## Head", 40)
    assert row.strip._segments[0].style.bold


def test_deep_nesting_stays_readable():
    """Ten quotations deep text still has room; deeper than the parser goes, the text is shown as it was written."""
    assert any("deep" in row for row in shown(">" * 10 + " deep", 30))
    assert "".join(shown(">" * 200 + " deep", 30)) == ">" * 200 + " deep"


PAIRS = [
    ("*", "*"),
    ("**", "**"),
    ("*a _b ", "_ *"),
    ("~~a ", "~~"),
    ("![", "](x)"),
    ("[![", "](x)](y)"),
    ("[", "](x)"),
    ("*![", "](x)*"),
]


@pytest.mark.slow
@pytest.mark.parametrize("around", ["{}", "# {}", "> - {}", "| a |\n|---|\n| {} |"])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("depth", [41, 500])
def test_deep_nesting_in_a_line_is_shown_as_it_was_written(depth, pair, around):
    """Emphasis in emphasis and pictures in pictures, in any block, are no way to end the program; nor is any of it lost."""
    text = around.format(pair[0] * depth + "deep" + pair[1] * depth)
    assert "deep" in "".join(shown(text, 30))


MARKS = [
    "*",
    "**",
    "~~",
    "`",
    "![",
    "](x)",
    "[",
    "](x)",
    "<",
    "&#",
    "http://",
    "|",
    "> ",
    "- ",
    "1. ",
    "# ",
    "```",
    "\n",
    "\n\n",
    "    ",
    "a ",
]
TORN = st.lists(
    st.tuples(st.sampled_from(MARKS), st.sampled_from([1, 2, 50])).map(lambda made: made[0] * made[1]), max_size=10
)


@given(st.one_of(st.text(max_size=80), TORN.map("".join)), st.sampled_from([1, 9, 60]))
def test_no_text_is_refused(text, width):
    """Whatever a model writes has rows, also as the thoughts of an answer that grows."""
    for written in (text, f"<think>{text}"):
        painter = Painter(MARKDOWN)
        for end in (len(written) // 2, len(written)):
            assert painter.rows(Entry("m", "assistant", written[:end], growing=True, unfolded=True), width)
        assert painter.rows(Entry("m", "assistant", written, unfolded=True), width)
