"""What a terminal sends, as the chat understands it."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps Textual's listener")

PIECES = st.lists(st.sampled_from(["a", "two", "\x1b\r", "\r", "\x1b[A", "ü"]), max_size=8)


def clearer():
    from localkv.tui.terminal import Clearer

    return Clearer()


@given(PIECES, PIECES)
def test_alt_enter_is_understood_whatever_is_typed_around_it(before, after):
    """Keys come in one piece when the machine is busy: alt+enter among others must not send the message."""
    found = clearer().understood("".join([*before, "\x1b\r", *after]))
    assert "\x1b\r" not in found
    assert found.count("\x1b[13;3u") == 1 + before.count("\x1b\r") + after.count("\x1b\r")
    assert found.replace("\x1b[13;3u", "\x1b\r") == "".join([*before, "\x1b\r", *after])


@given(PIECES)
def test_pastes_come_through_as_they_are(pieces):
    """A paste may hold any characters, and may come in several reads; after it keys are keys again."""
    paste = "\x1b[200~" + "".join(pieces) + "\x1b\r"
    listening = clearer()
    assert listening.understood(paste) == paste
    assert listening.understood("more\x1b\r\x1b[201~") == "more\x1b\r\x1b[201~"
    assert listening.understood("\x1b\r") == "\x1b[13;3u"
