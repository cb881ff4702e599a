"""Tables: what copying takes from them."""

from hypothesis import given
from hypothesis import strategies as st

from localkv.tui.rows import selected
from tests.tui.samples import MARKDOWN, texts


def table(cell, width):
    return MARKDOWN.rows(f"| name | cost |\n|---|---|\n| x | {cell} |", width)


def copied(rows, start=0, end=-1):
    return selected((row, start, end) for row in rows)


def test_a_selected_cell_is_that_cell():
    """What is copied is what the selection covers, wherever the padding put it on screen."""
    rows = table("12", 40)
    assert texts(rows)[2] == "x    │ 12"
    assert copied(rows[2:], 7, 9) == "12"
    assert copied(rows[2:], 0, 1) == "x"


@given(st.lists(st.sampled_from(["word", "漢字", "a", "longer-word"]), min_size=1, max_size=12), st.integers(20, 60))
def test_a_wrapped_cell_is_copied_in_one_piece(words, width):
    """A table line that takes several rows is one line where it is copied, without borders and padding."""
    cell = " ".join(words)
    rows = table(cell, width)
    assert copied(rows).split("\n")[2:] == [f"x | {cell}"]


def test_part_of_a_wrapped_cell():
    """One row out of a wrapped cell gives the words in that row."""
    rows = table("one two three four five six", 22)
    assert texts(rows)[2:] == ["x    │ one two three", "     │ four five six"]
    assert copied(rows[3:], 7, 11) == "four"


def test_a_table_in_a_list_is_copied_with_its_mark():
    """Behind a bullet, the cells are still found."""
    rows = MARKDOWN.rows("- | a | b |\n  |---|---|\n  | 1 | 2 |", 40)
    assert texts(rows)[2] == "  1   │ 2"
    assert copied(rows[2:], 8, 9) == "2"
