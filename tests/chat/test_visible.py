"""Strangers' text on a terminal."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.visible import one_line, visible

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()))


def test_what_a_terminal_obeys_is_spelled_out():
    """A model or a paste can't move the cursor, set titles, make links, fill the clipboard or turn text around."""
    assert visible("\x1b[2J\x1b]52;c;aGk=\x07") == "^[[2J^[]52;c;aGk=^G"
    assert visible("\x1b]8;;http://x\x1b\\link") == "^[]8;;http://x^[\\link"
    assert visible("a\x9b31m\x7f\x00") == "a\\x9b31m^?^@"
    assert visible("safe\u202etxt.exe\u2066") == "safe\\u202etxt.exe\\u2066"
    assert visible("\ud800\U000e0041\ufeff\u200b") == "\\ud800\\U000e0041\\ufeff\\u200b"


def test_text_stays():
    """Newlines are one kind; tabs, accents, joiners and scripts stay."""
    assert visible("a\r\nb\rc\u2028d\x85e\tf") == "a\nb\nc\nd\ne\tf"
    assert visible("naïve 👩‍👩‍👧 字 क्\u200dष ❤\ufe0f עברית") == "naïve 👩‍👩‍👧 字 क्\u200dष ❤\ufe0f עברית"
    assert one_line(" a\n\tb\x1b ") == "a b^["


SEEN = {
    0x00AD,
    0x200C,
    0x200D,
    *range(0x600, 0x606),
    0x6DD,
    0x70F,
    0x890,
    0x891,
    0x8E2,
    0x110BD,
    0x110CD,
    *range(0x13430, 0x13440),
}
"""Format characters that people see, or whose scripts and emoji need them: hyphens, joiners, signs of numbers, hieroglyphs in a row."""


def test_no_format_character_hides_or_reorders():
    """Every one that Unicode has is spelled out, but for those that are seen or that scripts need."""
    found = {code for code in range(0x110000) if unicodedata.category(chr(code)) == "Cf"}
    assert {code for code in found if visible(chr(code)) == chr(code)} == found & SEEN


@given(ANY_TEXT)
def test_nothing_to_obey_is_left(text):
    """No input gets a control character, a direction control or an unprintable surrogate through; twice is as good as once."""
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not set(shown) & set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    assert visible(shown) == shown
    shown.encode()
