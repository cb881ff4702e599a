"""Deleting the open conversation leaves it first, like any other way to another conversation: nothing of it follows."""

import pytest
from textual.widgets import Static

from localkv.tui.dialogs import Confirm
from tests.tui.conftest import play, text_of, until

WIDE = (130, 30)
WAYS = ["key", "command", "erase"]


async def delete(pilot, way):
    """Delete the open conversation by a key in the list, or as a command does."""
    screen = pilot.app.chat_screen
    if way == "key":
        screen.sessions.focus()
        await pilot.press("d")
    elif way == "command":
        screen.delete_open()
    else:
        await screen.run_action("slash('erase')")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm), "the question")
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.screen is screen, "the chat")
    await until(pilot, lambda: screen.desk.title == "two", "the neighbour")
    await pilot.pause()


def two_talks(world):
    """Two conversations; the ids of both."""
    return world.talk("one", "question one", "answer one", age=10), world.talk("two", "question two", "answer two", age=20)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_an_edit_ends_with_its_conversation(world, way):
    """What is sent next is a new message of the neighbour, and esc puts no draft of the deleted one there."""
    _, two = two_talks(world)
    world.store.set_draft(two, "draft of two")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")
        screen.composer.insert("draft of one")
        await pilot.press("alt+up", "e")
        await delete(pilot, way)
        assert screen.acts.editing is None
        assert str(screen.query_one("#prompt", Static).render()) == ">"
        assert screen.stage.hint == ""
        screen.composer.focus()
        await pilot.press("escape")
        assert screen.composer.text == "draft of two"
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].end()
        await until(pilot, lambda: not screen.stage.runs.moving, "the end of the answer")
        assert [message.text for message in world.store.path(two)][:3] == ["question two", "answer two", "draft of two"]

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["key", "command"])
def test_what_was_typed_last_is_stored_in_the_conversation_that_is_deleted(world, way):
    """Brought back, it has its draft; the neighbour gets none of it."""
    one, two = two_talks(world)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"xyz")
        await delete(pilot, way)
        assert screen.composer.text == ""
        screen.store_draft()
        assert (world.store.get(one).draft, world.store.get(two).draft) == ("xyz", "")
        screen.undo_delete()
        assert screen.composer.text == "xyz"

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_place_among_messages_that_wait_is_left(world, way):
    """A message that waited there and was being written again has no place among those of the neighbour: what is sent is asked."""
    one, two = two_talks(world)
    world.store.set_queue(one, ("waits", "waits too"))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press("up")
        assert screen.composer.text == "waits too"
        await delete(pilot, way)
        screen.composer.load_text("hello")
        screen.composer.focus()
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert (world.chat.turns[0].conversation, world.chat.turns[0].question) == (two, "hello")

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_words_are_looked_for_no_longer(world, way):
    """The row for words goes with the conversation, and in the list the next key is still one of the list."""
    two_talks(world)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press("ctrl+f", *"answer")
        await until(pilot, lambda: "1/1" in text_of(pilot.app), "the count")
        await delete(pilot, way)
        assert not screen.finds
        assert "1/1" not in text_of(pilot.app)
        if way == "key":
            assert screen.focused is screen.sessions

    play(world.app(session="one"), scene, size=WIDE)
