"""Chips: whatever is pasted, folded, stored or edited around them, the message has all of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.attachments import Attachment, with_files
from localkv.tui import chips as module
from localkv.tui.chips import Chip, beside, fold, is_long, labels_in, pack, paste_label, unpack, whole, widen

WORDS = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.sampled_from(
            ["[pasted 5 lines]", "[a.py 1 B]", "\n", " ", "\x02", "[", "]", "a.py", "File: a.py\n```python\nx\n```\n\n"]
        ),
    ),
    max_size=8,
).map("".join)
FILES = st.lists(
    st.builds(Attachment, st.sampled_from(["a.py", "b", "x [1].md"]), st.sampled_from(["x", "", "```", "y\nz"])), max_size=3
)
CHIPS = st.dictionaries(
    st.sampled_from(["[pasted 5 lines]", "[pasted 5 lines 2]", "[a.py 1 B]"]),
    st.builds(Chip, st.text(max_size=6), st.sampled_from(["", "a.py"])),
)


@pytest.mark.slow
@given(FILES, WORDS, st.sampled_from([4, 1 << 16]))
def test_a_message_that_is_written_again_is_the_same(files, words, long):
    """Edit and resend without a change sends exactly what was sent before, whatever of it was folded away."""
    before, module.FOLD_CHARACTERS = module.FOLD_CHARACTERS, long
    try:
        message = with_files(files, words)
        assert whole(*fold(message)) == message
    finally:
        module.FOLD_CHARACTERS = before


@given(WORDS, CHIPS)
def test_a_draft_keeps_its_chips(text, chips):
    """What is stored and read again sends the same, and looks the same."""
    again, kept = unpack(pack(text, chips))
    assert again == text
    assert whole(again, kept) == whole(text, chips)


@given(WORDS, CHIPS)
def test_a_draft_without_chips_is_plain_text(text, chips):
    """Other programs and older versions read such drafts as they are."""
    if not text.startswith("\x02") and not labels_in(text, chips):
        assert pack(text, chips) == text


@given(WORDS, CHIPS, CHIPS)
def test_what_is_given_back_stands_beside_what_was_written_since(text, chips, others):
    """Two chips of the same label never become one."""
    again, fresh = beside(text, chips, others)
    table = {**others, **fresh}
    if labels_in(again, table) == labels_in(again, fresh):  # else a label of the others stood there as words
        assert whole(again, table) == whole(text, chips)
    assert all(others[label] == chip for label, chip in fresh.items() if label in others)


@given(WORDS.map(lambda text: text.replace("\n", "")), CHIPS, st.data())
def test_no_edit_takes_a_part_of_a_chip(line, chips, data):
    """Whatever range an edit names, each chip is taken whole or left whole."""
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, len(line)))
    low, high = widen(line, chips, start, end)
    assert low == high if start == end else low <= start and high >= end
    for (first, last), _ in labels_in(line, chips):
        if low == high:
            assert not first < low < last
        else:
            assert last <= low or high <= first or (low <= first and last <= high)


@given(st.text(max_size=50), st.sets(st.sampled_from(["[pasted 1 characters]", "[pasted 4 lines]", "[pasted 4 lines 2]"])))
def test_labels_are_free(text, taken):
    """A label never names two things."""
    assert paste_label(text, taken) not in taken


def test_files_come_before_the_words_and_are_mentioned_where_they_stood():
    """The model reads the file first and the question last; a sentence about a file keeps its words."""
    chips = {"[a.py 1 B]": Chip("x", "a.py"), "[pasted 5 lines]": Chip("1\n2\n3\n4\n5")}
    file = "File: a.py\n```python\nx\n```\n\n"
    assert whole("what does [a.py 1 B] do?", chips) == f"{file}what does a.py do?"
    assert whole("[a.py 1 B] explain", chips) == f"{file}explain"
    assert whole("[a.py 1 B] and [a.py 1 B]", chips) == f"{file}and a.py"
    assert whole("log:\n[pasted 5 lines]\nwhy?", chips) == "log:\n1\n2\n3\n4\n5\nwhy?"


def test_what_counts_as_long():
    """More than 20 lines or 2,000 characters."""
    assert not is_long("a\n" * 19)
    assert is_long("a\n" * 20)
    assert not is_long("a" * 2_000)
    assert is_long("a" * 2_001)
