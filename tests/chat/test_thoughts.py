"""Thoughts told apart from answers, and how long they took."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.thoughts import Thought, ThoughtMeter, answer_of, split_thought


def metered(pieces):
    """A meter that took these pieces, one token each, a second apart; and the text."""
    meter, text = ThoughtMeter(), ""
    for second, piece in enumerate(pieces):
        text += piece
        meter.take(text, len(piece), 1, 100.0 + second)
    return meter, text


@pytest.mark.parametrize(("text", "inside", "rest", "closed"), [
    ("<think>\na\n</think>\n\nb", "a", "b", True),
    ("\n <thinking>a</thinking>b", "a", "b", True),
    ("<think>a", "a", "", False),
    ("<think>", "", "", False),
    ("a\n</think>\nb", "a", "b", True),
    ("<think>a</think>", "a", "", True),
])  # fmt: skip
def test_a_text_in_its_two_parts(text, inside, rest, closed):
    """With and without the tag that opens, ended and not."""
    assert split_thought(text) == Thought(inside, rest, closed)


@pytest.mark.parametrize("text", ["", "a", "a <think>b</think>", "Use `</think>` here.", "<thin", "a </think> b"])
def test_texts_without_thoughts(text):
    """Tags in the middle of an answer are its words."""
    assert split_thought(text) is None
    assert answer_of(text) == text


@given(st.lists(st.sampled_from(["a", "b", "\n", " ", "<think>", "</think>", "<", "thinking>"]), max_size=20))
def test_no_letter_is_lost(parts):
    """Whatever the text: its letters are in one of the parts, in their order."""
    text = "".join(parts)
    thought = split_thought(text)
    if thought is not None:
        assert re.findall("[ab]", thought.inside + thought.rest) == re.findall("[ab]", text)


def test_thoughts_are_counted_to_the_tag_that_ends_them():
    """Tokens and seconds until the tag is whole, in however many pieces it came; what follows is not counted."""
    meter, text = metered(["<think>", "so ", "it is", "</th", "ink>", "\n\nyes", " it", " is"])
    assert meter.so_far(text) == (5, 4.0)


def test_an_answer_without_thoughts_took_none():
    """Nothing is counted, also where an answer speaks of the tag."""
    meter, text = metered(["Use `", "</think>", "` to end it"])
    assert meter.so_far(text) == (0, 0.0)


def test_thoughts_that_nothing_ended():
    """What was thought when the answer was stopped is counted up to there."""
    meter, text = metered(["<think>", "so", " it"])
    assert meter.so_far(text) == (3, 2.0)
