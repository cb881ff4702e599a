"""Keys of the screen: help tells all of them, and a person's own keys act, are shown, and end what they replace."""

import re

import pytest

from localkv.commands.actions import ACTIONS
from localkv.commands.keymap import resolve
from localkv.errors import ConfigError
from localkv.tui.keys import help_sections
from tests.tui.conftest import notices, play, text_of, until


def with_keys(world, **keys):
    """An app with these keys."""
    from localkv.config import Config
    from localkv.tui.app import LocalKVApp

    config = Config(keys={name.replace("_", "."): value for name, value in keys.items()})
    return LocalKVApp(world.home, config, world.store, world.chat, world.client, clock=world.clock, ticks=lambda: 0.0)


def test_help_has_every_key():
    """What can be pressed is in F1."""
    assert sum(len(lines) for lines in help_sections().values()) == sum(bool(action.keys) for action in ACTIONS)


def test_help_tells_other_keys_of_the_same():
    """Keys that do the same stand in one line."""
    lines = {name: text for section in help_sections().values() for name, text in section}
    assert "(also shift+enter, alt+enter)" in lines["^j"]


def test_keys_of_the_person_act_and_replace_the_defaults(world):
    """While writing, in the list and anywhere; the replaced key does nothing any more."""
    world.talk("first", "hello", "Hi.")
    app = with_keys(world, session_new="f9", send="ctrl+x", undo="z", session_next="")

    async def scene(pilot):
        screen = app.chat_screen
        screen.open_like("first")
        await pilot.press("ctrl+n")
        assert screen.desk.key
        await pilot.press("f9")
        await until(pilot, lambda: not screen.desk.key, "a new conversation")
        await pilot.press("a", "ctrl+x")
        await until(pilot, lambda: world.chat.turns, "a sent message")
        world.chat.turns[0].end()
        screen.sessions.focus()
        await pilot.press("u")
        await pilot.press("z")
        await until(pilot, lambda: "nothing was deleted" in notices(app), "undo")
        assert notices(app).count("nothing was deleted") == 1
        await pilot.press("f1")
        await until(pilot, lambda: "F9" in text_of(app), "help with the new key")

    play(app, scene, (120, 45))


def test_the_footer_shows_the_keys_of_the_person(world):
    """What the last row promises is what acts."""
    app = with_keys(world, session_new="f9")

    async def scene(pilot):
        await until(pilot, lambda: "F9 new" in text_of(app).splitlines()[-1], "the footer")
        assert re.search(r"F9 +another conversation", text_of(app))
        assert "^n" not in text_of(app).splitlines()[-1]

    play(app, scene, (160, 40))


def test_a_default_that_gave_way_is_told_at_the_start(world):
    """Nobody loses a key without a word."""
    app = with_keys(world, retry="ctrl+n")

    async def scene(pilot):
        await until(pilot, lambda: 'no longer "session.new"' in notices(app), "the notice")

    play(app, scene)


def test_wrong_keys_keep_the_chat_from_starting(world):
    """Like every other wrong setting."""
    with pytest.raises(ConfigError, match='nearest is "retry"'):
        with_keys(world, retri="f9")


def test_every_action_can_be_run(world):
    """What keys and palette run exists at its place: an action without a method would do nothing, silently."""
    app = world.app()

    async def scene(pilot):
        screen = app.chat_screen
        places = {"anywhere": screen, "composer": screen.composer, "list": screen.sessions, "text": screen.transcript}
        places |= {"message": screen.transcript, "queue": screen.queue}
        for action in ACTIONS:
            if action.act:
                name = action.act.partition("(")[0]
                assert hasattr(places[action.place], f"action_{name}"), action.id

    play(app, scene)
    assert resolve({}).notes == ()
