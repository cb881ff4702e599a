"""Wrapping, and what copying takes."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from localkv.tui.clean import harmless
from localkv.tui.rows import indent, row, selected, wrap

PLAIN = Style()


def copied(rows):
    return selected((each, 0, -1) for each in rows)


@given(st.text(alphabet=st.sampled_from("ab c漢字、👩\u200d💻é-."), max_size=200), st.integers(2, 40))
def test_wrap_fits_and_loses_nothing(text, width):
    """No row is wider than asked, and what is copied is the line that was wrapped."""
    line = harmless(text)
    rows = wrap([(line, PLAIN)], width)
    assert all(each.strip.cell_length <= width for each in rows)
    assert all(each.strip.cell_length == cell_len(each.strip.text) for each in rows)
    assert copied(rows) == line


def test_wrap_breaks_at_spaces_and_between_wide_characters():
    """Words stay whole where they fit; Chinese and Japanese break anywhere but before closing marks."""
    assert [each.strip.text for each in wrap([("aaa bbb ccc", PLAIN)], 7)] == ["aaa bbb", "ccc"]
    assert [each.strip.text for each in wrap([("漢字漢字。漢", PLAIN)], 8)] == ["漢字漢", "字。漢"]
    assert [each.strip.text for each in wrap([("abcdefgh", PLAIN)], 3)] == ["abc", "def", "gh"]


def test_styles_survive_wrapping():
    """A style goes on in the next row."""
    rows = wrap([("aaa ", PLAIN), ("bbb ccc", Style(bold=True))], 5)
    assert [segment.style.bold for each in rows for segment in each.strip] == [None, True, True]


def test_prefixes_are_copied_only_where_they_are_text():
    """A bullet belongs to the text, a bar beside a quotation and the indent of a soft wrap do not."""
    rows = wrap([("aaa bbb ccc", PLAIN)], 7)
    assert copied(indent(rows, [("- ", PLAIN)], [("  ", PLAIN)], copied=True)) == "- aaa bbb ccc"
    assert copied(indent(rows, [("| ", PLAIN)], [("| ", PLAIN)], copied=False)) == "aaa bbb ccc"


def test_part_of_rows():
    """A selection takes the characters under it; the gutter counts on screen and not in the text."""
    rows = [row([("| one", PLAIN)], gutter=2), row([("| two", PLAIN)], gutter=2)]
    assert selected([(rows[0], 3, -1), (rows[1], 0, 4)]) == "ne\ntw"
