"""What is open is marked in the list, and its neighbours are those of the list, never what is in the trash."""

import pytest

from tests.tui.conftest import play, rows_of, text_of, until

WIDE = (130, 30)


async def ask(pilot, world, text):
    """Ask in the open conversation and let the answer end."""
    turns = len(world.chat.turns)
    await command(pilot, text)
    await until(pilot, lambda: len(world.chat.turns) > turns, "a turn")
    world.chat.turns[-1].end()
    await until(pilot, lambda: not pilot.app.chat_screen._ticking._active.is_set(), "rest")


async def command(pilot, line):
    """Send a line."""
    pilot.app.chat_screen.composer.load_text(line)
    await pilot.press("enter")
    await pilot.pause()


def stored(world, title):
    """The conversation with this title."""
    return next(each for each in world.store.list(include_trashed=True) if each.title == title)


BEGINNINGS = {"asked": "a new one", "renamed": "/rename a new one"}


@pytest.mark.parametrize("way", BEGINNINGS)
def test_a_new_conversation_is_marked_once_it_is_stored(world, way):
    """Whatever stores it: the list shows it as the open one, with the cursor on it."""
    world.talk("old", "q", "a", age=3_600.0)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        assert screen.sessions.opened == ""
        await command(pilot, BEGINNINGS[way])
        await until(pilot, lambda: any("▌" in row and "a new one" in row for row in rows_of(screen.sessions)), "the mark")
        assert screen.sessions.opened == screen.desk.key != ""
        assert screen.sessions.current.title == "a new one"
        assert sum("▌" in row for row in rows_of(screen.sessions)) == 1

    play(world.app(), scene, size=WIDE)


def test_the_neighbour_of_a_new_conversation_is_another_one(world):
    """ctrl+pagedown right after the first question goes to the conversation below, ctrl+pageup back."""
    world.talk("old", "q", "an old answer", age=3_600.0)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await ask(pilot, world, "a new one")
        await pilot.press("ctrl+pagedown")
        assert screen.desk.title == "old"
        await pilot.press("ctrl+pageup")
        assert screen.desk.title == "a new one"

    play(world.app(), scene, size=WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("others", [[], ["old"], ["old", "older"]])
@pytest.mark.parametrize("opening", [None, "/new", "/new named"])
def test_what_was_deleted_is_not_open(world, others, opening):
    """/delete in a new conversation leaves it in the trash and shows another one; what is asked next goes there."""
    for n, title in enumerate(others):
        world.talk(title, "q", "a", age=3_600.0 * (n + 1))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        if opening is not None:
            await command(pilot, opening)
        await ask(pilot, world, "a new one")
        key = screen.desk.key
        await command(pilot, "/delete")
        assert screen.desk.key != key
        assert screen.desk.title == (others[0] if others else "")
        assert world.store.get(key).trashed is not None
        await ask(pilot, world, "what comes next")
        assert [message.text for message in world.store.path(key)][0] == "a new one"
        assert len(world.store.path(key)) == 2
        assert world.store.get(key).trashed is not None

    play(world.app(), scene, size=WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+pagedown", "ctrl+pageup"])
def test_stepping_takes_nothing_out_of_the_trash(world, key):
    """While the list shows the trash, its rows are no neighbours of what is open."""
    world.talk("kept", "q", "a", age=10)
    for n in range(2):
        world.store.trash(world.talk(f"thrown away {n}", "q", "a", age=20.0 + n))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await command(pilot, "/trash")
        await until(pilot, lambda: "thrown away" in text_of(pilot.app), "the trash")
        await pilot.press(key, key)
        assert screen.desk.title == "kept"
        assert all(stored(world, f"thrown away {n}").trashed is not None for n in range(2))

    play(world.app(session="kept"), scene, size=WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("thrown", [0, 1, 2])
def test_deleting_opens_nothing_from_the_trash(world, thrown):
    """While the list shows the trash, /delete throws the open conversation away and looks at none of the trash."""
    world.talk("kept", "q", "a", age=10)
    for n in range(thrown):
        world.store.trash(world.talk(f"thrown away {n}", "q", "a", age=20.0 + n))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await command(pilot, "/trash")
        screen.composer.focus()
        await command(pilot, "/delete")
        assert stored(world, "kept").trashed is not None
        assert screen.desk.key == ""
        assert screen.sessions.opened == ""

    play(world.app(session="kept"), scene, size=WIDE)
