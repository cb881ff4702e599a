"""Nothing that a terminal obeys leaves through any widget, whatever is typed, pasted, edited or shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from localkv.tui.guard import Guard
from tests.tui.conftest import play, text_of, until
from tests.tui.test_app import HOSTILE

STEERING = "\x00\x07\x08\t\n\r\x1b\x7f\x85\x9b\u200b\u202e\u2028\u2066\ufeff\U000e0041"


@given(st.text(st.one_of(st.sampled_from(STEERING), st.characters(codec="utf-8")), max_size=40))
def test_a_row_stays_as_wide_as_it_was_and_steers_nothing(text):
    """What follows on the row stays in its place."""
    [segment] = Guard().apply([Segment(text)], Color(0, 0, 0))
    assert cell_len(segment.text) == cell_len(text)
    assert not set(STEERING) & set(segment.text)


@given(st.text(st.characters(codec="utf-8", categories=("L", "M", "N", "P", "S", "Zs"))))
def test_what_is_harmless_stays_as_it_is(text):
    """Every letter, sign and accent of every script is drawn as it was."""
    assert Guard().apply([Segment(text)], Color(0, 0, 0))[0].text == text


@pytest.mark.slow
@pytest.mark.parametrize("key", ["", "f2", "ctrl+f", "f4", "/system", "/edit"])
def test_what_is_edited_steers_nothing(world, key):
    """The composer and every field and dialog that text can be put into."""
    world.talk("hostile", HOSTILE, "an answer")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await until(pilot, lambda: "an answer" in text_of(pilot.app), "the conversation")
        if key.startswith("/"):
            screen.composer.text = key
            await pilot.press("enter")
        elif key:
            await pilot.press(key)
        await pilot.pause()
        field = pilot.app.focused
        assert field is not None
        if hasattr(field, "value"):
            field.value = HOSTILE
        else:
            field.text = HOSTILE
        await pilot.pause()
        shown = text_of(pilot.app)
        assert "red" in shown
        assert not set(STEERING) - {"\n"} & set(shown)

    play(world.app(session="hostile"), scene, size=(130, 40))
