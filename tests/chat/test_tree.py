"""The pure side of conversations: titles and harmless text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.tree import TITLE_LENGTH, title_from, well_formed

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()))


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
