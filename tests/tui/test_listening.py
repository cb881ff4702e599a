"""What a terminal sends, as the chat understands it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import Key, Paste

from localkv.tui.listening import Clearer, Listener

PIECES = st.lists(st.sampled_from(["a", "two", "\x1b\r", "\r", "\x1b[A", "ü"]), max_size=8)
PASTED = st.lists(
    st.sampled_from(["a", "\r", "\x1b", "\x1b[A", "\x1b[31m", "\x1b\r", "\x1b[200~", "\x1b]0;t\x07", "\u202e", "ü", "\x1b[20"])
)


def in_reads(text, cuts):
    """`text` as it comes in several reads."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[low:high] for low, high in zip(places, places[1:], strict=False)]


@given(PIECES, PIECES)
def test_alt_enter_is_understood_whatever_is_typed_around_it(before, after):
    """Keys come in one piece when the machine is busy: alt+enter among others must not send the message."""
    found = Clearer().understood("".join([*before, "\x1b\r", *after]))
    assert "\x1b\r" not in found
    assert found.count("\x1b[13;3u") == 1 + before.count("\x1b\r") + after.count("\x1b\r")
    assert found.replace("\x1b[13;3u", "\x1b\r") == "".join([*before, "\x1b\r", *after])


def keys(events):
    return [each.key for each in events if isinstance(each, Key)]


@given(
    st.lists(st.sampled_from(["a", "\r", "\x1b\r", "\x1b\x1b\r", "\x1b[A", "\x1b[13;3u"]), max_size=6),
    st.lists(st.integers(0, 30)),
)
def test_keys_are_the_same_in_any_number_of_reads(pieces, cuts):
    """A read may end within a key: alt+enter torn in two must not send the message."""
    sent = "".join(pieces)
    listener, torn = Listener(), Listener()
    at_once = [*listener.feed(sent), *listener.end()]
    in_parts = [each for part in in_reads(sent, cuts) for each in torn.feed(part)]
    assert keys([*in_parts, *torn.end()]) == keys(at_once)


def test_esc_and_enter_are_two_keys(monkeypatch):
    """Esc that nothing follows in time comes without the next key, and Enter after it is Enter, also after the half of a mark."""
    now = 0.0
    monkeypatch.setattr("textual._parser.get_time", lambda: now)
    listener = Listener()
    for begun in ("\x1b", "\x1b[200"):
        assert keys(listener.feed(begun)) == []
        assert listener.waits
        now += 1.0
        assert keys(listener.tick())
        assert not listener.waits
        assert keys(listener.feed("\r~\x1b[A")) == ["enter", "tilde", "up"]


@given(PASTED, st.lists(st.integers(0, 200), max_size=4))
def test_a_paste_is_one_paste_whatever_is_in_it_and_however_it_comes(pieces, cuts):
    """No key is made of pasted text: Enter among it would send half of it. Nothing of it is lost, changed or moved."""
    text = "".join(pieces)
    listener = Listener()
    events = [each for part in in_reads(f"\x1b[200~{text}\x1b[201~z", cuts) for each in listener.feed(part)]
    assert [each.text for each in events if isinstance(each, Paste)] == [text]
    assert [each.key for each in events if isinstance(each, Key)] == ["z"]


@given(PASTED, PASTED)
def test_keys_are_keys_again_after_a_paste(first, second):
    """Two pastes and what is typed between and after them come in their order."""
    listener = Listener()
    sent = f"\x1b[200~{''.join(first)}\x1b[201~x\x1b\r\x1b[200~{''.join(second)}\x1b[201~\x1b[A"
    events = [*listener.feed(sent), *listener.end()]
    told = [each.text if isinstance(each, Paste) else each.key for each in events]
    assert told == ["".join(first), "x", "alt+enter", "".join(second), "up"]


@pytest.mark.parametrize("end", ["\x1b", "\x1b[", "\x1b[20", "\x1b[201"])
def test_the_end_of_a_paste_may_come_in_two_reads(end):
    """The half of a mark is no part of the text."""
    listener = Listener()
    assert list(listener.feed(f"\x1b[200~text{end}")) == []
    [paste] = listener.feed("\x1b[201~"[len(end) :])
    assert paste.text == "text"
