"""The composer: pastes of any size, chips that no key breaks, drafts and history with all that they stand for."""

import time

import pytest
from textual.events import Key, Paste

from tests.tui.conftest import play, text_of, until

LOG = "\n".join(f"line {number}" for number in range(312))


async def paste(pilot, text):
    pilot.app.post_message(Paste(text))
    await pilot.pause()


def test_a_long_paste_is_a_chip_and_is_sent_whole(world):
    """312 lines are a few words in the composer; the model gets every line, in its place."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"why? ")
        await paste(pilot, LOG)
        await pilot.press(*" tell")
        assert composer.text == "why? [pasted 312 lines] tell"
        assert composer.region.height == 1
        assert composer.message == f"why? {LOG} tell"
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert world.chat.turns[0].question == f"why? {LOG} tell"
        assert composer.message == ""

    play(world.app(), scene)


@pytest.mark.slow
def test_a_short_paste_is_text_and_never_sends(world):
    """Lines of a paste are lines, whatever ends them; only Enter sends."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await paste(pilot, "one\r\ntwo\rthree\n")
        assert composer.text == "one\ntwo\nthree\n"
        assert not world.chat.turns

    play(world.app(), scene)


@pytest.mark.slow
def test_a_paste_of_a_megabyte_leaves_the_composer_usable(world):
    """Keys after it cost what keys cost: the text behind a chip is not written, wrapped or measured again."""
    text = "\n".join("x" * 79 for _ in range(13_108))

    async def burst(pilot, characters):
        began = time.process_time()
        for character in characters:
            pilot.app.post_message(Key(character, character))
        await until(pilot, lambda: pilot.app.chat_screen.composer.text.endswith(characters), "the keys")
        return time.process_time() - began

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await burst(pilot, "warm up")
        without = min([await burst(pilot, "abcdefghij" * 4) for _ in range(3)])
        await paste(pilot, text)
        assert "[pasted 13,108 lines]" in composer.text
        with_it = min([await burst(pilot, "abcdefghij" * 4) for _ in range(3)])
        assert with_it < 4 * without + 0.2
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert text in world.chat.turns[0].question

    play(world.app(), scene)


def test_a_chip_is_deleted_whole_and_comes_back_with_undo(world):
    """Backspace behind a chip takes it; ctrl+/ brings it and what it stands for back."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await paste(pilot, LOG)
        await pilot.press("backspace")
        assert composer.text == ""
        await pilot.press("ctrl+underscore")
        assert composer.message == LOG
        await pilot.press("home", "delete")
        assert composer.text == ""

    play(world.app(), scene)


def test_the_cursor_steps_over_chips_and_nothing_is_written_into_them(world):
    """One key left of a chip's end is its start, and what is typed stands beside it."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await paste(pilot, LOG)
        await pilot.press("left", "a", "right", "b")
        assert composer.text == "a[pasted 312 lines]b"
        composer.insert("c", (0, 5))
        assert composer.text == "a[pasted 312 lines]cb"
        composer.replace("-", (0, 0), (0, 5))
        assert composer.message == "-cb"

    play(world.app(), scene)


def test_two_pastes_of_one_size_are_two_chips(world):
    """Equal sizes are not equal texts."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await paste(pilot, LOG)
        await paste(pilot, LOG.replace("line", "row"))
        assert composer.text == "[pasted 312 lines][pasted 312 lines 2]"
        assert composer.message == LOG + LOG.replace("line", "row")

    play(world.app(), scene)


def test_a_chip_is_written_out_on_demand(world):
    """F7 shows what was pasted, so that it can be edited; undo folds it again."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"a ")
        await paste(pilot, LOG)
        await pilot.press(*" b", "f7")
        assert composer.text == f"a {LOG} b"
        await pilot.press("ctrl+underscore")
        assert composer.text == "a [pasted 312 lines] b"

    play(world.app(), scene)


def test_drafts_keep_chips_over_conversations_and_restarts(world):
    """A half-written message with a paste in it is there again, looks the same and sends the same."""
    world.talk("first", "q", "a")
    world.talk("second", "q", "a")

    async def write(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"see ")
        await paste(pilot, LOG)
        screen.open(world.store.by_name("second").id)
        assert screen.composer.message == ""
        screen.open(world.store.by_name("first").id)
        assert screen.composer.text == "see [pasted 312 lines]"
        await pilot.press("!")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: world.client.left, "leaving")

    async def read(pilot):
        assert pilot.app.chat_screen.composer.text == "see [pasted 312 lines]!"
        assert pilot.app.chat_screen.composer.message == f"see {LOG}!"

    play(world.app(session="first"), write)
    play(world.app(session="first"), read)


@pytest.mark.slow
def test_what_was_sent_is_no_draft_any_more(world, monkeypatch):
    """A message that became a question does not come back as a draft at the next start."""
    conversation = world.talk("first", "q", "a")
    monkeypatch.setattr("localkv.tui.writing.DRAFT_SECONDS", 0.05)

    async def scene(pilot):
        await pilot.press(*"new words")
        await until(pilot, lambda: world.store.get(conversation).draft == "new words", "the stored draft")
        await pilot.press("enter")
        await until(pilot, lambda: world.store.get(conversation).draft == "", "no draft")

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_history_has_all_of_a_message_and_gives_the_draft_back(world):
    """Up recalls pastes whole; down comes back to the draft with its chips."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await paste(pilot, LOG)
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].end()
        await until(pilot, lambda: not pilot.app.chat_screen.stage.runs.moving, "rest")
        await paste(pilot, LOG.replace("line", "row"))
        await pilot.press("up")
        assert composer.message == LOG
        composer.move_cursor(composer.document.end)
        await pilot.press("down")
        assert composer.text == "[pasted 312 lines]"
        assert composer.message == LOG.replace("line", "row")

    play(world.app(), scene)


async def erase_words(pilot):
    pilot.app.chat_screen.composer.clear()
    await pilot.pause()


@pytest.mark.slow
@pytest.mark.parametrize("put", ["send", "refused", "edit", "begin"])
def test_what_is_typed_after_something_else_was_put_is_not_lost_to_history(world, put):
    """However a recalled question left the composer, the words written next are there again after up and down."""
    conversation = world.talk("first", "one", "A.", "two", "B.")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press("up", "up")
        match put:
            case "send":
                await pilot.press("enter")
                await until(pilot, lambda: world.chat.turns, "a turn")
            case "refused":
                await erase_words(pilot)
                await pilot.press(*"/nonsense", "enter")
                await until(pilot, lambda: screen.composer.text == "/nonsense", "the command back")
                await erase_words(pilot)
            case "edit":
                screen.composer.load("two")
                await erase_words(pilot)
            case "begin":
                screen.open(conversation)
        await pilot.press(*"new words", "up", "down")
        assert screen.composer.text == "new words"

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_a_recalled_question_that_was_changed_is_not_lost_to_history(world):
    """Words written into an earlier question are there again when up or down comes back to it, and so is the draft."""
    world.talk("first", "one", "A.", "two", "B.")

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"draft", "up", "!", "up")
        assert composer.text == "one"
        await pilot.press("down")
        assert composer.text == "two!"
        await pilot.press("down")
        assert composer.text == "draft"
        await pilot.press("up")
        assert composer.text == "two!"

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["other", "edit", "quit"])
def test_looking_at_earlier_questions_keeps_the_draft(world, leave):
    """What was typed before up is the draft, wherever the person goes while an earlier question is shown."""
    conversation = world.talk("first", "one", "A.", "two", "B.")
    other = world.talk("other", "q", "a")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"half a thought", "up", "up")
        match leave:
            case "other":
                screen.open(other)
                screen.open(conversation)
            case "edit":
                screen.acts.edit(world.store.path(conversation)[0])
                screen.acts.leave_edit()
            case "quit":
                screen.action_quit()
                assert world.store.get(conversation).draft == "half a thought"
                return
        assert screen.composer.text == "half a thought"

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "recalled"), [
    ([], []),
    (["one"], ["one"]),
    (["one", "two"], ["one", "two"]),
    (["one", "two", "three"], ["two", "three"]),
])  # fmt: skip
def test_history_that_becomes_shorter_while_it_is_looked_at(world, left, recalled):
    """Earlier questions may be fewer than they were: down goes through those that there are, and comes to the draft."""
    world.talk("first", "one", "A.", "two", "B.", "three", "C.")

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"draft", "up", "up", "up")
        composer.past = left
        await pilot.press("up")
        for text in [*recalled, "draft"]:
            composer.move_cursor(composer.document.end)
            await pilot.press("down")
            assert composer.text == text

    play(world.app(session="first"), scene)


def test_a_refused_message_comes_back_with_its_chips(world):
    """What cannot be sent is in the composer again as it was."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"/nonsense")
        await pilot.press("enter")
        await until(pilot, lambda: "no command" in text_of(pilot.app), "the notice")
        assert composer.text == "/nonsense"
        composer.clear()
        await paste(pilot, LOG)
        draft = composer.draft
        composer.clear()
        await paste(pilot, LOG.replace("line", "row"))
        composer.give_back(draft)
        assert composer.message == LOG + LOG.replace("line", "row")

    play(world.app(), scene)


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [["ctrl+underscore"], ["ctrl+underscore", "ctrl+y"], ["ctrl+underscore", "ctrl+underscore", "ctrl+y", "ctrl+y"]],
    ids=len,
)
def test_undo_of_many_rows(world, keys):
    """Undo and redo of more rows than are seen come back to one that is there."""
    lines = "\n".join(f"row {number}" for number in range(15))

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await paste(pilot, lines)
        composer.clear()
        await pilot.pause()
        await pilot.press(*keys)
        expected = {1: lines, 2: "", 4: ""}[len(keys)]
        assert composer.text == expected
        await pilot.press("z")
        assert "z" in composer.text

    play(world.app(), scene)


def test_composed_characters_arrive_as_they_are(world):
    """What an input method commits, several characters at once or wide ones, is text; no key of ours is one of them."""

    async def scene(pilot):
        for character in "漢字 é ß 👩‍🚀":
            pilot.app.post_message(Key(character, character))
        await pilot.pause()
        assert pilot.app.chat_screen.composer.text == "漢字 é ß 👩‍🚀"

    play(world.app(), scene)
