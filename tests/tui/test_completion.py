"""Slash commands are completed while they are written, and no key that belongs to the text is taken from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.registry import COMMANDS, completions
from localkv.tui.completion import command_offers
from tests.tui.conftest import play, text_of, until


@given(st.text(alphabet="/abcdelnorst ", max_size=8))
def test_offers_go_on_from_what_is_written(text):
    """Each offered command contains what was typed; a message is never offered anything."""
    for command in completions(text):
        assert text.startswith("/")
        assert text[1:] in command.slash
    if not text.startswith("/") or text.startswith("//") or " " in text:
        assert completions(text) == []


def test_every_command_can_be_reached_by_its_first_letters():
    """Whatever exists is offered."""
    assert set(completions("/")) == set(COMMANDS)
    for command in COMMANDS:
        assert command in completions(f"/{command.slash[:2]}")


def test_a_finished_command_is_not_offered_again():
    """Enter after the last letter sends and does not choose."""
    assert command_offers("/quit") == []
    assert command_offers("/qui")[0].text == "/quit"
    assert command_offers("/ope")[0].text == "/open "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["/", "q", "tab"], "/quit"),
        (["/", "o", "p", "tab", "x"], "/open x"),
        (["/", "o", "p", "enter"], "/open "),
        (["/", "r", "e", "t", "down", "up", "tab"], "/retry"),
        (["/", "q", "escape", "u"], "/qu"),
        (["a", "/", "q", "tab"], "a/q    "),
    ],
)
def test_keys_while_something_is_offered(world, keys, text):
    """Tab and enter take what is marked, up and down mark another, esc turns the offers down; all in the order of typing."""
    app = world.app()

    async def scene(pilot):
        await pilot.press(*keys)
        await until(pilot, lambda: app.chat_screen.composer.text == text, text)

    play(app, scene)


def test_offers_are_shown_with_their_help(world):
    """They appear over the composer and go with the last letter."""
    app = world.app()

    async def scene(pilot):
        await pilot.press("/", "h")
        await until(pilot, lambda: "> /help" in text_of(app) and "show all keys" in text_of(app), "the offer")
        await pilot.press("backspace", "backspace")
        await until(pilot, lambda: "> /help" not in text_of(app), "no offer")

    play(app, scene, (100, 30))


def test_enter_runs_a_command_that_is_whole(world):
    """A command that was completed is done by the next enter."""
    app = world.app()

    async def scene(pilot):
        await pilot.press("/", "h", "e", "tab", "enter")
        await until(pilot, lambda: app.screen is not app.chat_screen, "help")

    play(app, scene)
