"""The palette: every action is found by a few characters, shows its key, and is run where it belongs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.actions import ACTIONS
from localkv.tui.fuzzy import score
from localkv.tui.palette import LEFT_OUT, choices
from tests.tui.conftest import notices, play, text_of, until


def test_every_action_that_is_no_movement_is_offered():
    """What a key or a slash command does is in the palette, too."""
    offered = set(choices(""))
    assert {action for action in ACTIONS if action.act and action.place not in LEFT_OUT} - offered == {
        next(action for action in ACTIONS if action.id == "palette")
    }


def test_enter_in_a_palette_that_was_just_opened_stops_nothing():
    """Its first row is harmless: help. What stops an answer is asked for by its name."""
    assert choices("")[0].id == choices("  ")[0].id == "help"
    assert choices("stop")[0].id == "cancel"


def test_an_action_is_found_by_its_name_first():
    """Its id and its slash command lead to it before others that happen to have the same letters."""
    for action in choices(""):
        assert action in choices(action.id)[:3], action.id
        if action.slash:
            assert action in choices(action.slash)[:4], action.slash


@given(st.text(max_size=8), st.text(max_size=30))
def test_a_fit_is_a_subsequence(query, text):
    """Whatever is typed: a text fits exactly if each typed word can be read off it in order."""
    folded = text.casefold()

    def reads(word):
        rest = iter(folded)
        return all(character in rest for character in word)

    assert (score(query, text) is not None) == all(reads(word) for word in query.casefold().split())


def test_beginnings_of_words_count_more():
    """ "nc" means "new conversation" before "since"."""
    assert score("nc", "start a new conversation") > score("nc", "since when")
    assert score("new", "a new one") > score("new", "never be watched")


@pytest.mark.slow
def test_choose_and_run(world):
    """Typed characters leave what fits; Enter does it; Esc does nothing; the focus returns to where it was."""
    world.talk("first", "hello", "Hi.")
    app = world.app(session="first")

    async def scene(pilot):
        screen = app.chat_screen
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "what to do" in text_of(app), "the palette")
        await pilot.press(*"new conv")
        await until(pilot, lambda: "> Start a new conversation" in text_of(app).replace("▌", ">"), "what fits")
        assert "^n" in next(row for row in text_of(app).splitlines() if "Start a new" in row)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen, "the chat")
        assert screen.desk.key
        await pilot.press("ctrl+p", *"new conv", "enter")
        await until(pilot, lambda: app.screen is screen and not screen.desk.key, "a new conversation")
        assert screen.composer.has_focus

    play(app, scene)


@pytest.mark.slow
def test_an_action_of_the_list_is_done_to_the_list(world):
    """Actions of other panes than the one with the focus find their pane."""
    world.talk("first", "hello", "Hi.")
    app = world.app()

    async def scene(pilot):
        await pilot.press("ctrl+p", *"move it to the trash", "enter")
        await until(pilot, lambda: "is in the trash" in notices(app), "the trash")

    play(app, scene)


def test_a_command_that_needs_words_is_begun(world):
    """It stands in the composer, before a draft that is there, and waits for its words."""
    app = world.app()

    async def scene(pilot):
        screen = app.chat_screen
        await pilot.press(*"draft")
        await pilot.press("ctrl+p", *"/open", "enter")
        await until(pilot, lambda: screen.composer.text == "/open draft", "the begun command")

    play(app, scene)


@pytest.mark.slow
def test_moving_and_clicking(world):
    """Down marks the next one and scrolls with it; a click runs the one under the pointer."""
    app = world.app()

    async def scene(pilot):
        await pilot.press("ctrl+p")
        await until(pilot, lambda: app.screen is not app.chat_screen, "the palette")
        found = choices("")
        await pilot.press("pagedown", "pagedown", "up")
        await until(pilot, lambda: app.screen._at == min(20, len(found) - 1) - 1, "the mark")
        view = app.screen.query_one("#choices")
        top = round(view.scroll_y)
        assert top <= app.screen._at < top + view.size.height
        await pilot.press(*"new conv")
        await pilot.click("#choices", offset=(5, 0))
        await until(pilot, lambda: app.screen is app.chat_screen, "the chat")

    play(app, scene)


def test_the_smallest_screen(world):
    """At 60 x 16 the palette shows what fits with its key, and Help can be read."""
    app = world.app()

    async def scene(pilot):
        await pilot.press("ctrl+p", *"quit")
        await until(pilot, lambda: "Save and leave" in text_of(app), "the palette")
        line = next(row for row in text_of(app).splitlines() if "Save and leave" in row)
        assert "/quit" in line
        assert "^q" in line
        await pilot.press("escape", "f1")
        await until(pilot, lambda: "send the message" in text_of(app) and "esc closes" in text_of(app), "help")

    play(app, scene, (60, 16))
