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


@given(ANY_TEXT)
def test_nothing_to_obey_is_left(text):
    """No input gets a control character, a direction control or an unprintable surrogate through; twice is as good as once."""
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not set(shown) & set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    assert visible(shown) == shown
    shown.encode()
