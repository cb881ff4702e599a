"""Keys that come faster than a screen goes are answered once."""

import pytest
from textual.events import Key

from localkv.tui.dialogs import Dialog
from localkv.tui.once import Once
from tests.tui.conftest import play, text_of, until

OPENED = {
    "f1": ("escape",),
    "f2": ("escape", "enter"),
    "f3": ("escape",),
    "f4": ("escape", "enter"),
    "ctrl+p": ("escape", "enter"),
    "ctrl+o": ("escape", "enter"),
    "/erase": ("escape", "y"),
    "/set": ("escape", "enter"),
    "/system": ("escape", "ctrl+s"),
    "/branches": ("escape", "enter"),
}


def below(kind):
    """Every class of screens that derives from `kind`."""
    return [each for sub in kind.__subclasses__() for each in (sub, *below(sub))]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "key"), [(way, key) for way, keys in OPENED.items() for key in keys])
@pytest.mark.parametrize("times", [2, 5])
def test_a_key_pressed_again_while_a_screen_goes_does_nothing(world, way, key, times):
    """Twice Esc or Enter, from an impatient person or a slow line: the chat is there, and nothing was done twice."""
    world.talk("Harbours", "Why is the sky blue?", "Because of scattering.")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await until(pilot, lambda: "scattering" in text_of(pilot.app), "the conversation")
        if way.startswith("/"):
            screen.composer.text = way
            await pilot.press("enter")
        else:
            await pilot.press(way)
        await pilot.pause()
        if pilot.app.screen is screen:
            return  # there was nothing to ask
        for _ in range(times):
            pilot.app.post_message(Key(key, "y" if key == "y" else None))
        await pilot.pause()
        await pilot.pause()
        assert pilot.app.is_running
        assert screen in pilot.app.screen_stack

    play(world.app(session="Harbours"), scene, size=(130, 40))


def test_a_screen_answers_once(world):
    """Whatever calls it again, and whatever lies above it by then."""
    answers = []

    async def scene(pilot):
        first, second = Dialog(), Dialog()
        pilot.app.push_screen(first, answers.append)
        await pilot.pause()
        pilot.app.push_screen(second, answers.append)
        await pilot.pause()
        first.dismiss("beneath")
        second.dismiss("second")
        second.dismiss("again")
        await pilot.pause()
        first.dismiss("first")
        first.dismiss("again")
        await pilot.pause()
        assert answers == ["second", "first"]
        assert pilot.app.screen is pilot.app.chat_screen

    play(world.app(), scene)


def test_every_screen_over_the_chat_is_one_of_them():
    """A new dialog cannot forget it."""
    import importlib
    import pkgutil

    from textual.screen import Screen

    import localkv.tui
    from localkv.tui.panes import Panes

    for module in pkgutil.iter_modules(localkv.tui.__path__):
        importlib.import_module(f"localkv.tui.{module.name}")
    ours = {each for each in below(Screen) if each.__module__.startswith("localkv.")}
    assert ours - set(below(Once)) - {Once, Panes, *below(Panes)} == set()
