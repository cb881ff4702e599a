"""What the screen tells the engine ahead of time: what is opened, pointed at and written, and nothing else."""

import pytest

from localkv.kv.record import Head
from tests.tui.conftest import play, until
from tests.tui.test_app import ask, idle


def headed(world, title, age=60.0):
    """A stored conversation whose answer names a record; its id."""
    conversation = world.talk(title, "question", age=age)
    leaf = world.store.get(conversation).leaf
    store = world.store
    store.set_ids(leaf, b"ask.")
    answer = store.begin_answer(conversation, leaf)
    store.finish_answer(answer.id, text="answer", ids=b"say.", state="complete", head=Head(title, "i", 2), numbers=None)
    return conversation


def said(world):
    """The hints so far, in words."""
    words = []
    for hint in world.client.hints:
        match type(hint).__name__:
            case "Warm":
                words.append(f"{hint.why} {' '.join(want.head.name for want in hint.wants)}")
            case "Typing":
                words.append(f"typing {hint.text}")
            case "Look":
                words.append("look")
    return words


async def rest(pilot, world):
    """All that follows from the start has been said."""
    await until(pilot, lambda: "look" in said(world) and any(word.startswith("likely") for word in said(world)), "a look")
    await until(pilot, lambda: idle(pilot.app), "rest")
    world.client.hints.clear()


def test_what_is_open_when_the_engine_is_ready_comes_into_the_slot(world):
    """The conversation on screen is told as soon as there is an engine; then, once, how far the others are and which may be next."""
    headed(world, "older", age=900)
    headed(world, "newer")

    async def scene(pilot):
        await until(pilot, lambda: len(said(world)) >= 3, "three hints")
        await until(pilot, lambda: idle(pilot.app), "rest")
        assert said(world) == ["open newer", "look", "likely older"]

    play(world.app(session="newer"), scene, (120, 30))


@pytest.mark.slow
def test_opening_and_pointing_are_told(world):
    """A conversation that is opened comes into the slot; one that the cursor rests on, into RAM."""
    for age, title in enumerate(("one", "two", "three")):
        headed(world, title, age=100.0 * (age + 1))

    async def scene(pilot):
        await rest(pilot, world)
        screen = pilot.app.chat_screen
        screen.sessions.focus()
        await pilot.press("up", "up")
        await until(pilot, lambda: said(world)[:1] == ["rest three"], "where the cursor rests")
        await pilot.press("enter")
        await until(pilot, lambda: "open three" in said(world), "what is opened")
        assert [word for word in said(world) if word != "look"][:2] == ["rest three", "open three"]

    play(world.app(session="one"), scene, (120, 30))


@pytest.mark.slow
def test_what_is_written_is_told_when_the_hands_rest(world):
    """A message is read while it is written; commands are not, nor what is written while an answer comes, until it has come."""
    headed(world, "other", age=900)
    headed(world, "one")

    async def scene(pilot):
        await rest(pilot, world)
        screen = pilot.app.chat_screen
        screen.composer.insert("/them")
        await pilot.pause()
        screen.composer.load_text("")
        screen.composer.insert("first words")
        await until(pilot, lambda: said(world), "a hint")
        assert said(world) == ["typing first words"]
        screen.composer.load_text("")
        turn = await ask(pilot, world, "a question")
        screen.composer.insert("and then")
        turn.write("an answer")
        await pilot.pause(0.4)
        assert said(world) == ["typing first words"]
        turn.end()
        await until(pilot, lambda: "typing and then" in said(world), "what was written meanwhile")

    play(world.app(session="one"), scene, (120, 30))


@pytest.mark.slow
def test_nothing_is_told_while_nothing_is_done(world):
    """With hands at rest and no answer coming nothing ticks and nothing is said, whatever stands in the composer."""
    headed(world, "other", age=900)
    headed(world, "one")

    async def scene(pilot):
        await rest(pilot, world)
        pilot.app.chat_screen.composer.insert("half a message")
        await until(pilot, lambda: said(world), "a hint")
        world.client.hints.clear()
        waiting = pilot.app.chat_screen.stage.hints._waiting
        for _ in range(20):
            await pilot.pause()
            assert not waiting
            assert idle(pilot.app)
        assert said(world) == []

    play(world.app(session="one"), scene, (120, 30))
