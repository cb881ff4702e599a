"""What people complain of while they write, in other chats: each test is named after what must not happen here."""

import os
import sys

import pytest

from localkv.errors import NotWritable
from tests.terminal import Terminal
from tests.tui.conftest import play, text_of, until

TYPIST = [sys.executable, "-m", "tests.tui.typist"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_killed_chat_takes_nothing_with_it_that_was_written(world):
    """kill -9 of the face: the draft with its paste and the messages that waited are there at the next start, in order."""
    conversation = world.talk("first", "hello", "Hi.")
    lines = "\n".join(f"line {number}" for number in range(60))
    with Terminal(TYPIST, {**os.environ, "SILENT": "1"}, columns=130) as terminal:
        for text in ("one\r", "two\r", "three\r", f"\x1b[200~{lines}\x1b[201~ and"):
            terminal.wait_for(lambda _: terminal.marks_pastes)
            terminal.send(text)
        terminal.wait_for("2 messages wait")
        terminal.wait_for(lambda _: "[pasted 60 lines] and" in world.store.get(conversation).draft)
        terminal.process.kill()
        terminal.process.wait()
    with Terminal(TYPIST, {**os.environ, "SILENT": "1"}, columns=130) as terminal:
        terminal.wait_for("[pasted 60 lines] and")
        terminal.wait_for("2 messages wait: enter sends")
    stored = world.store.get(conversation)
    assert stored.queue == ("two", "three")
    assert [message.text for message in world.store.path(conversation)][2] == "one"


@pytest.mark.slow
@pytest.mark.parametrize("newline", [["ctrl+j"], ["shift+enter"], ["alt+enter"], ["backslash", "enter"]], ids="".join)
def test_several_lines_are_not_sent_one_by_one(world, newline):
    """Each way to start a line that some terminal has, works; Enter alone sends, and sends all."""

    async def scene(pilot):
        await pilot.press("a", *newline, "b", *newline, "c", "enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert [turn.question for turn in world.chat.turns] == ["a\nb\nc"]

    play(world.app(), scene)


@pytest.mark.slow
def test_ctrl_c_never_loses_what_is_written(world):
    """The reflex stops the answer or says how to leave; the words stay, and so does the chat."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"half a thought", "ctrl+c", "ctrl+c", "ctrl+c")
        assert composer.text == "half a thought"
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        await pilot.press(*"next", "ctrl+c")
        await until(pilot, lambda: world.chat.turns[0].cancelled.is_set(), "the stop")
        assert composer.text == "next"

    play(world.app(session="first"), scene)


def test_a_second_message_starts_no_second_answer_and_is_not_lost(world):
    """While one answer is written, another message neither cuts in, nor is refused, nor disappears."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        for text in ("one", "two"):
            await pilot.press(*text, "enter")
        await until(pilot, lambda: "one message waits" in text_of(pilot.app), "the queue")
        assert [turn.question for turn in world.chat.turns] == ["one"]

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("away", ["another", "new", "named", "quit", "end"])
def test_a_new_conversation_does_not_lose_what_is_written_in_it(world, away):
    """Words typed before a first question are there again in a new conversation, and after the program has ended."""
    other = world.talk("other", "q", "a")

    async def write(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"a long thought")
        match away:
            case "another":
                screen.open(other)
                assert screen.composer.text == ""
                await pilot.press("ctrl+n")
            case "new":
                await pilot.press("ctrl+n")
            case "named":
                screen.begin_named("journal")
            case "quit":
                screen.open(other)
                await pilot.press("ctrl+q")
            case "end":
                screen.end()
        if away in {"quit", "end"}:
            assert [each.draft for each in world.store.list() if each.id != other] == ["a long thought"]
        else:
            assert screen.composer.text == "a long thought"

    play(world.app(), write)


def test_a_refused_draft_is_stored_later(world, monkeypatch):
    """While the database refuses writes, words that leave the composer are kept; at the end they are stored."""
    first, other = world.talk("first", "q", "a"), world.talk("other", "q", "a")

    def refuse(*_):
        raise NotWritable("the disk is full")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"words")
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "set_draft", refuse)
            screen.store_draft()
            assert screen.composer.changed
            screen.open(other)
            screen.open(first)
            assert screen.composer.text == "words"
            screen.open(other)
        screen.end()
        assert world.store.get(first).draft == "words"

    play(world.app(session="first"), scene)


@pytest.mark.parametrize("how", ["edit", "trash"])
def test_words_typed_just_before_are_stored(world, how):
    """Less than a second after the last key a question is edited or the conversation trashed: the draft is not lost."""
    first = world.talk("first", "q", "a")
    world.talk("other", "q", "a")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"words")
        if how == "edit":
            screen.acts.edit(world.store.path(first)[0])
            screen.end()
        else:
            screen.delete(first)
            assert screen.composer.text == ""
            screen.undo_delete()
            assert screen.composer.text == "words"
        assert world.store.get(first).draft == "words"

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_switching_away_does_not_mix_what_is_written(world):
    """Draft and queue belong to their conversation: the other one shows neither, and coming back shows both."""
    world.talk("other", "q", "a", age=10)
    world.talk("first", "q", "a")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"one", "enter", *"two", "enter", *"draft")
        await until(pilot, lambda: "one message waits" in text_of(pilot.app), "the queue")
        screen.open(world.store.by_name("other").id)
        await until(pilot, lambda: "one message waits" not in text_of(pilot.app), "no queue")
        assert screen.composer.text == ""
        screen.open(world.store.by_name("first").id)
        await until(pilot, lambda: "one message waits" in text_of(pilot.app), "the queue")
        assert screen.composer.text == "draft"

    play(world.app(session="first"), scene)
