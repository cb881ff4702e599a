"""Text made harmless."""

from hypothesis import given
from hypothesis import strategies as st

from localkv.tui.clean import harmless, one_line


def test_what_a_terminal_obeys_is_spelled_out():
    """Escape sequences, C1 controls, direction overrides and invisible characters are visible and dead."""
    assert harmless("\x1b[31mred\x07\x7f\x9b") == "^[[31mred^G^?\\x9b"
    assert harmless("a\u202eb\u2066\u200b\ufeff") == "a\\u202eb\\u2066\\u200b\\ufeff"
    assert harmless("\ud800\U000e0041") == "\\ud800\\U000e0041"


def test_text_stays():
    """Newlines are one kind, tabs are spaces, joiners of emoji and scripts stay."""
    assert harmless("a\r\nb\rc\u2028d\te") == "a\nb\nc\nd    e"
    assert harmless("👩\u200d💻 क्\u200dष ❤\ufe0f") == "👩\u200d💻 क्\u200dष ❤\ufe0f"


@given(st.text())
def test_nothing_that_steers_is_left(text):
    """Whatever comes in, no control character but newline comes out, and cleaning twice changes nothing."""
    clean = harmless(text)
    assert all(char == "\n" or (ord(char) >= 32 and not 0x7F <= ord(char) < 0xA0) for char in clean)
    assert harmless(clean) == clean


@given(st.text(), st.text())
def test_pieces_clean_like_the_whole(one, other):
    """A growing text may be cleaned piece by piece, unless a piece ends between CR and LF."""
    if not (one.endswith("\r") and other.startswith("\n")):
        assert harmless(one) + harmless(other) == harmless(one + other)


def test_one_line():
    """Titles and notices are one line."""
    assert one_line(" a\n\tb\x1b ") == "a b^["
