"""The pure side of conversations: walks, titles, harmless text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.tree import (
    TITLE_LENGTH,
    Message,
    children,
    newest_leaf,
    path_to,
    siblings,
    title_from,
    well_formed,
)
from localkv.errors import ConversationError

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()))


def message(key, parent=None, role="user"):
    return Message(key, "c", parent, role, f"text of {key}", b"", "complete", 0.0)


def tree(*edges):
    return {key: message(key, parent) for key, parent in edges}


FORK = tree(("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "d"), ("f", "b"))


def test_path_runs_from_the_root_to_the_leaf():
    """The order in which messages are fed to the model."""
    assert [each.id for each in path_to(FORK, "f")] == ["a", "b", "f"]
    assert [each.id for each in path_to(FORK, "a")] == ["a"]


def test_children_and_siblings_are_in_the_order_of_writing():
    """Branches are numbered on screen by age; the first try stays the first."""
    assert [each.id for each in children(FORK, "a")] == ["b", "d"]
    assert [each.id for each in children(FORK, None)] == ["a"]
    assert [each.id for each in siblings(FORK, "f")] == ["c", "f"]


def test_newest_leaf_is_where_the_branch_was_left():
    """Switching to another branch lands at its newest end, not at its first."""
    assert newest_leaf(FORK) == "f"
    assert newest_leaf(FORK, "d") == "e"
    assert newest_leaf(FORK, "c") == "c"
    assert newest_leaf({}) is None


def test_a_broken_tree_is_an_error_and_no_endless_walk():
    """A damaged database must not hang the face."""
    circle = tree(("a", "b"), ("b", "a"))
    with pytest.raises(ConversationError, match="broken"):
        path_to(circle, "a")
    with pytest.raises(ConversationError, match="broken at gone"):
        path_to(tree(("a", "gone")), "a")
    with pytest.raises(ConversationError, match="no message x"):
        siblings(FORK, "x")


def test_walks_do_not_recurse():
    """A conversation of 100,000 messages is far deeper than Python's stack."""
    n = 100_000
    long = tree(*((str(i), str(i - 1) if i else None) for i in range(n)))
    assert len(path_to(long, str(n - 1))) == n
    assert newest_leaf(long, "0") == str(n - 1)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("Hello there", "Hello there"),
        ("two\nlines\tand   spaces", "two lines and spaces"),
        ("\x1b[31mred\x1b[0m \x1b]0;owned\x07title\x00\x9b", "red title"),
        ("\u202edesrever\u2066", "desrever"),
        ("bro\ud800ken", "bro\ufffdken"),
        ("word " * 30, "word " * 11 + "word…"),
        ("x" * 61, "x" * 59 + "…"),
        ("字" * 100, "字" * 59 + "…"),
        ("a" * 58 + "👩‍👩‍👧 more", "a" * 58 + "…"),
        ("a" * 58 + "é" * 3, "a" * 58 + "é…"),
        ("a" * 58 + "e\u0301" * 3, "a" * 58 + "…"),
        ("a" * 57 + "🇩🇪🇫🇷", "a" * 57 + "🇩🇪…"),
        ("a" * 58 + "🇩🇪🇫🇷", "a" * 58 + "…"),
        ("a" + "\u0301" * 100, "a" + "\u0301" * 58 + "…"),
    ],
)
def test_titles_from_first_words(text, title):
    """A title is one readable line that never ends in half a character."""
    assert title_from(text) == title


@given(ANY_TEXT)
def test_titles_are_short_plain_and_stable(text):
    """Whatever was pasted, the list of conversations shows at most one harmless line of it."""
    title = title_from(text)
    assert len(title) <= TITLE_LENGTH
    assert title_from(title) == title
    assert "\n" not in title
    assert not {unicodedata.category(character) for character in title} & {"Cc", "Cs"}


@given(ANY_TEXT)
def test_well_formed_changes_lone_surrogates_only(text):
    """Text from a broken pipe can be stored, and good text is stored as it is."""
    assert len(well_formed(text)) == len(text)
    assert all(a == b or 0xD800 <= ord(b) <= 0xDFFF for a, b in zip(well_formed(text), text, strict=True))
