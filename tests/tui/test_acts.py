"""Acts on messages as a person does them: the cursor, then one key; the same by slash command."""

import pytest

from localkv.errors import ConfigError
from localkv.tui.findbar import FindBar
from localkv.tui.orders import number
from tests.tui.conftest import notices, play, text_of, until

CODE = "First:\n\n```python\na = 1\nb = 2\n```\n\nthen:\n\n```\nplain\n```\n"


def texts(world, conversation):
    return [message.text for message in world.store.path(conversation)]


def chosen(pilot):
    entry = pilot.app.chat_screen.transcript.chosen
    return entry.text if entry is not None else None


def clipboard(pilot):
    return pilot.app.clipboard


async def ready(pilot):
    await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")


async def settled(pilot):
    await until(pilot, lambda: not pilot.app.chat_screen._ticking._active.is_set(), "rest")


async def command(pilot, line):
    pilot.app.chat_screen.composer.insert(line)
    await pilot.press("enter")
    await pilot.pause()


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "9" * 5_000], ids=range(5))
def test_what_is_no_number_is_refused(text):
    """Whatever is written behind /branch or /copy, a number comes of it or a short sentence."""
    assert number("12") == 12
    with pytest.raises(ConfigError, match="is no number") as caught:
        number(text)
    assert len(str(caught.value)) < 200


@pytest.mark.slow
def test_the_cursor_walks_messages_and_leaves_below(world):
    """alt+up goes up from the last message in view, alt+down back and at last to the composer."""
    world.talk("t", "q1", "a1", "q2", "a2")

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        seen = []
        for key in ["alt+up"] * 5 + ["alt+down"] * 3:
            await pilot.press(key)
            seen.append(chosen(pilot))
        assert seen == ["a2", "q2", "a1", "q1", "q1", "a1", "q2", "a2"]
        assert screen.focused is screen.transcript
        await pilot.press("alt+down")
        await until(pilot, lambda: screen.focused is screen.composer, "the composer")
        assert chosen(pilot) is None

    play(world.app(session="t"), scene)


def test_escape_leaves_the_cursor(world):
    """Esc goes back to the composer; what is typed then is text again."""
    world.talk("t", "q1", "a1")

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "escape", "y", "e")
        assert pilot.app.chat_screen.composer.text == "ye"
        assert chosen(pilot) is None

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_the_cursor_brings_its_message_into_view(world):
    """However far it walks, the head of the message under the cursor is on screen."""
    world.talk("t", *(f"word {n}\n" * 9 for n in range(40)))

    async def scene(pilot):
        await ready(pilot)
        transcript = pilot.app.chat_screen.transcript
        for key in ["alt+up"] * 25 + ["alt+down"] * 12:
            await pilot.press(key)
            row = transcript._marks.head - round(transcript.scroll_y)
            assert 0 <= row < transcript.scrollable_content_region.height

    play(world.app(session="t"), scene)


def test_copy_message_and_code_blocks(world):
    """y copies the message, b its blocks of code one after the other, /copy N the Nth; each says what it copied."""
    world.talk("t", "q", CODE)

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "y")
        assert clipboard(pilot) == CODE
        seen = []
        for _ in range(3):
            await pilot.press("b")
            seen.append(clipboard(pilot))
        assert seen == ["a = 1\nb = 2", "plain", "a = 1\nb = 2"]
        assert "code 2/2: 5 characters" in notices(pilot.app)
        await pilot.press("escape")
        await command(pilot, "/copy 2")
        assert clipboard(pilot) == "plain"
        await command(pilot, "/copy 3")
        assert "has 2 blocks" in notices(pilot.app)

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_thoughts_fold_and_are_copied_as_shown(world):
    """space unfolds; copied is what is shown: the answer alone, or all of it."""
    text = "<think>\nsecret plan\n</think>\n\nThe answer."
    world.talk("t", "q", text)

    async def scene(pilot):
        await ready(pilot)
        assert "secret plan" not in text_of(pilot.app)
        assert "> Thought for about" in text_of(pilot.app)
        await pilot.press("alt+up", "y")
        assert clipboard(pilot) == "The answer."
        await pilot.press("space")
        assert "secret plan" in text_of(pilot.app)
        await pilot.press("y")
        assert clipboard(pilot) == text
        await pilot.press("space")
        assert "secret plan" not in text_of(pilot.app)
        await pilot.press("escape")
        await command(pilot, "/fold")
        await until(pilot, lambda: "secret plan" in text_of(pilot.app), "thoughts")

    play(world.app(session="t"), scene)


def test_a_click_unfolds_thoughts(world):
    """The row that stands for thoughts answers the mouse."""
    world.talk("t", "q", "<think>\nsecret plan\n</think>\n\nThe answer.")

    async def scene(pilot):
        await ready(pilot)
        rows = text_of(pilot.app).splitlines()
        y = next(index for index, row in enumerate(rows) if "> Thought" in row)
        await pilot.click(offset=(rows[y].index("> Thought") + 3, y))
        await until(pilot, lambda: "secret plan" in text_of(pilot.app), "thoughts")

    play(world.app(session="t"), scene)


def test_unfolding_moves_nothing_above(world):
    """The row that is unfolded stays where it is, in the middle of a long conversation."""
    thought = "<think>\n" + "step\n" * 30 + "</think>\n\ndone"
    world.talk("t", *(part for n in range(20) for part in (f"q{n}", thought)))

    async def scene(pilot):
        await ready(pilot)
        for _ in range(9):
            await pilot.press("alt+up")
        transcript = pilot.app.chat_screen.transcript
        before = transcript._marks.head - round(transcript.scroll_y)
        await pilot.press("space")
        assert transcript._marks.head - round(transcript.scroll_y) == before
        assert "step" in text_of(pilot.app)

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_edit_and_resend_keeps_the_old_path(world):
    """e on an answer edits its question; what is sent is a sibling, and [ shows the old path again, whole."""
    talk = world.talk("t", "first question", "first answer", "second", "second answer")

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        screen.composer.insert("a draft")
        await pilot.press("alt+up", "alt+up", "alt+up", "e")
        assert screen.composer.text == "first question"
        assert screen.focused is screen.composer
        screen.composer.load_text("better question")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert screen.composer.text == "a draft"
        assert "second answer" not in text_of(pilot.app)
        world.chat.turns[0].write("better answer")
        world.chat.turns[0].end()
        await until(pilot, lambda: "< 2/2 >" in text_of(pilot.app), "the versions")
        assert texts(world, talk) == ["better question", "better answer"]
        await settled(pilot)
        await pilot.press("alt+up", "alt+up", "left_square_bracket")
        await until(pilot, lambda: "second answer" in text_of(pilot.app), "the old path")
        assert "< 1/2 >" in text_of(pilot.app)
        assert texts(world, talk) == ["first question", "first answer", "second", "second answer"]
        await pilot.press("right_square_bracket")
        assert texts(world, talk) == ["better question", "better answer"]
        assert chosen(pilot) == "better question"

    play(world.app(session="t"), scene)


def test_an_edit_is_left_with_escape(world):
    """Esc brings the draft back, and nothing was asked; nothing of the edit is stored as a draft."""
    talk = world.talk("t", "first question", "first answer")

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        screen.composer.insert("a draft")
        await pilot.press("alt+up", "e")
        screen.composer.insert(" more")
        screen.store_draft()
        assert world.store.get(talk).draft in {"", "a draft"}
        await pilot.press("escape")
        assert screen.composer.text == "a draft"
        await pilot.press("ctrl+n")
        assert world.store.get(talk).draft == "a draft"
        assert not world.chat.turns

    play(world.app(session="t"), scene)


def test_an_edit_does_not_follow_into_another_conversation(world):
    """Opening another conversation while a question is edited leaves the edit: what is sent there is a new message."""
    world.talk("one", "question one", "answer one")
    two = world.talk("two", "question two", "answer two", age=20)

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press("alt+up", "e")
        screen.open(two)
        assert screen.composer.text == ""
        await command(pilot, "hello")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].end()
        await settled(pilot)
        assert texts(world, two)[:3] == ["question two", "answer two", "hello"]

    play(world.app(session="one"), scene)


def test_regenerate_in_the_middle_keeps_what_followed(world):
    """r answers that question again; the old answer and what came after it stay one key away."""
    talk = world.talk("t", "q1", "a1", "q2", "a2")

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "alt+up", "alt+up", "r")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].write("another a1")
        world.chat.turns[0].end()
        await until(pilot, lambda: "another a1" in text_of(pilot.app) and "< 2/2 >" in text_of(pilot.app), "the answer")
        assert texts(world, talk) == ["q1", "another a1"]
        await settled(pilot)
        await command(pilot, "/branch 1")
        assert texts(world, talk) == ["q1", "a1", "q2", "a2"]
        await until(pilot, lambda: "a2" in text_of(pilot.app), "what followed")

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_another_version_stands_where_the_first_one_stood(world):
    """In the middle of a long conversation, going through versions keeps the row with name and time in its place."""
    talk = world.talk("t", *(f"row {n}\n" * 6 for n in range(30)))
    parts_at = world.store.path(talk)[14]
    other = world.store.ask(talk, parts_at.parent, "short").id
    for n in range(20):
        other = world.store.begin_answer(talk, other).id if n % 2 == 0 else world.store.ask(talk, other, "more\n" * 3).id
        if n % 2 == 0:
            world.store.finish_answer(other, text="line\n\n" * 4, ids=b"", state="complete", head=None, numbers=None)
    world.store.look_at(parts_at.id)

    async def scene(pilot):
        await ready(pilot)
        transcript = pilot.app.chat_screen.transcript
        await pilot.press(*["alt+up"] * 16)
        assert transcript.chosen.id == parts_at.id
        for key in ("right", "left", "right"):
            before = transcript._marks.head - round(transcript.scroll_y)
            await pilot.press(key)
            assert transcript._marks.head - round(transcript.scroll_y) == before
        assert chosen(pilot) == "short"

    play(world.app(session="t"), scene)


def test_continue_an_answer_in_the_middle(world):
    """c goes on with the answer under the cursor."""
    talk = world.talk("t", "q1", "once upon", state="stopped")

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "c")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].write(" a time")
        world.chat.turns[0].end()
        await until(pilot, lambda: "once upon a time" in text_of(pilot.app), "more")
        await settled(pilot)
        assert texts(world, talk) == ["q1", "once upon a time"]

    play(world.app(session="t"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["key", "slash"])
def test_fork_goes_on_in_a_new_conversation(world, way):
    """f opens a conversation that shares everything up to the message; the old one is as it was."""
    talk = world.talk("Trip", "q1", "a1", "q2", "a2")

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press("alt+up", "alt+up", "alt+up")
        if way == "key":
            await pilot.press("f")
        else:
            screen.composer.focus()
            await command(pilot, "/fork side-trip")
        await until(pilot, lambda: screen.desk.key != talk, "another conversation")
        assert texts(world, screen.desk.key) == ["q1", "a1"]
        assert screen.desk.title == "Trip (fork)"
        assert texts(world, talk) == ["q1", "a1", "q2", "a2"]
        assert [item.title for item in screen.sessions.shown][0] == "Trip (fork)"
        if way == "slash":
            assert screen.desk.opened.name == "side-trip"

    play(world.app(session="Trip"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["key", "slash"])
def test_a_branch_taken_away_comes_back(world, way):
    """d takes a message and all below it away, u or /undo brings it back as it was."""
    talk = world.talk("t", "q1", "a1", "q2", "a2")

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "alt+up", "alt+up")
        if way == "key":
            await pilot.press("d")
        else:
            pilot.app.chat_screen.composer.focus()
            await command(pilot, "/prune")
        assert texts(world, talk) == ["q1"]
        assert "3 messages are taken away" in notices(pilot.app)
        assert "q2" not in text_of(pilot.app)
        if way == "key":
            await pilot.press("u")
        else:
            await command(pilot, "/undo")
        assert texts(world, talk) == ["q1", "a1", "q2", "a2"]
        assert "a2" in text_of(pilot.app)

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_undo_takes_the_last_deletion_first(world):
    """A branch, then a conversation: /undo brings back the conversation, then the branch."""
    one = world.talk("one", "q1", "a1")
    two = world.talk("two", "q2", "a2", age=20)

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press("alt+up", "d")
        screen.open(two)
        await command(pilot, "/delete")
        await command(pilot, "/undo")
        assert screen.desk.key == two
        assert texts(world, one) == ["q1"]
        await command(pilot, "/undo")
        assert texts(world, one) == ["q1", "a1"]
        assert screen.desk.key == one

    play(world.app(session="one"), scene)


@pytest.mark.slow
def test_acts_wait_for_the_answer(world):
    """While an answer is written, what it hangs on stays as it is; copying works."""
    talk = world.talk("t", "q1", "a1", "q0", "a0")

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "alt+up", "d", "escape")
        await command(pilot, "q2")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].write("growing")
        await until(pilot, lambda: "growing" in text_of(pilot.app), "text")
        await pilot.press("alt+up", "alt+up", "alt+up")
        for key in ("e", "r", "f", "d", "left_square_bracket", "u"):
            await pilot.press(key)
        assert notices(pilot.app).count("still being written") == 6
        await pilot.press("y")
        assert clipboard(pilot) == "a1"
        world.chat.turns[0].end()
        await settled(pilot)
        assert texts(world, talk) == ["q1", "a1", "q2", "growing"]
        assert len(world.chat.turns) == 1

    play(world.app(session="t"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["f5", "ctrl+r", "/continue", "/retry"])
def test_keys_that_wait_for_the_answer_say_so(world, key):
    """What asks the model again does nothing while it answers, and says why."""
    world.talk("t", "q1", "a1")

    async def scene(pilot):
        await ready(pilot)
        await command(pilot, "q2")
        await until(pilot, lambda: world.chat.turns, "a turn")
        await (command(pilot, key) if key.startswith("/") else pilot.press(key))
        await until(pilot, lambda: "still being written" in notices(pilot.app), "the reason")
        assert len(world.chat.turns) == 1

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_commands_say_what_they_miss(world):
    """Nothing said, no version, no number: a sentence each, and what was typed stays."""

    async def scene(pilot):
        await ready(pilot)
        for line, answer in (
            ("/edit x", "nothing was said"), ("/branch", "no message of this"), ("/copy", "nothing was said"),
        ):  # fmt: skip
            pilot.app.chat_screen.composer.load_text("")
            await command(pilot, line)
            assert answer in notices(pilot.app)
            assert pilot.app.chat_screen.composer.text == line

    play(world.app(), scene)


def three_branches(world):
    """A conversation that parts twice; its id and the last messages of its branches, the newest first."""
    talk = world.talk("t", "q1", "a1", "q2", "a2")
    path = world.store.path(talk)
    second = world.store.ask(talk, path[1].id, "other q2").id
    third = world.store.ask(talk, None, "other q1").id
    return talk, [third, second, path[-1].id]


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "left", "path"), [
    (["down", "enter"], 3, ["q1", "a1", "other q2"]),
    (["down", "f8"], 2, ["other q1"]),
    (["f8"], 2, ["q1", "a1", "other q2"]),
    (["down", "down", "f9"], 1, ["q1", "a1", "q2", "a2"]),
    (["a", "2", "f9"], 1, ["q1", "a1", "q2", "a2"]),
    (["escape"], 3, ["other q1"]),
])  # fmt: skip
def test_branches_are_looked_at_taken_away_and_kept_alone(world, keys, left, path):
    """/branches shows them all; what it takes away comes back together."""
    talk, leaves = three_branches(world)

    async def scene(pilot):
        await ready(pilot)
        await command(pilot, "/branches")
        await until(pilot, lambda: "3 branches" in text_of(pilot.app), "the dialog")
        await pilot.press(*keys)
        await until(pilot, lambda: pilot.app.screen is pilot.app.chat_screen, "the chat")
        assert texts(world, talk) == path
        assert len(world.store.branches(talk)) == left
        assert path[-1] in text_of(pilot.app)
        if left < 3:
            await command(pilot, "/undo")
            assert {branch.leaf for branch in world.store.branches(talk)} == set(leaves)

    play(world.app(session="t"), scene)


def test_one_branch_needs_no_list(world):
    """There is nothing to choose from, and a sentence says so."""
    world.talk("t", "q1", "a1")

    async def scene(pilot):
        await ready(pilot)
        await command(pilot, "/branches")
        assert "has one branch" in notices(pilot.app)

    play(world.app(session="t"), scene)


# Find


def count_of(pilot):
    return str(pilot.app.chat_screen.query_one(FindBar).count.content)


@pytest.mark.slow
def test_find_counts_marks_and_goes(world):
    """The nearest place above is shown first, enter and up go on and back, every place is marked."""
    world.talk("t", *(part for n in range(30) for part in (f"question {n}", f"**needle** number {n}\n\n" + "filler\n" * 8)))

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("ctrl+f")
        await pilot.press(*"NEEDLE")
        await until(pilot, lambda: count_of(pilot) == "30/30", "the count")
        assert "needle number 29" in text_of(pilot.app)
        await pilot.press("up")
        assert count_of(pilot) == "29/30"
        assert "needle number 28" in text_of(pilot.app)
        await pilot.press("enter", "enter")
        assert count_of(pilot) == "1/30"
        assert "needle number 0" in text_of(pilot.app)
        transcript = pilot.app.chat_screen.transcript
        strips = [transcript.render_line(y) for y in range(transcript.scrollable_content_region.height)]
        marked = [s.text for strip in strips for s in strip if s.style and s.style.reverse]
        assert marked == ["needle"]
        await pilot.press(*" number 17")
        await until(pilot, lambda: count_of(pilot) == "1/1", "one place")
        assert "needle number 17" in text_of(pilot.app)
        await pilot.press("x")
        assert count_of(pilot) == "not found"
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.chat_screen.query(FindBar), "no bar")
        assert pilot.app.chat_screen.focused is pilot.app.chat_screen.composer

    play(world.app(session="t"), scene)


def test_find_unfolds_thoughts(world):
    """Words that were only thought are found and shown."""
    world.talk("t", "q", "<think>\nthe hidden needle\n</think>\n\nThe answer.", "more", "end")

    async def scene(pilot):
        await ready(pilot)
        await command(pilot, "/find needle")
        await until(pilot, lambda: pilot.app.chat_screen.query(FindBar) and count_of(pilot) == "1/1", "the count")
        assert "the hidden needle" in text_of(pilot.app)

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_find_stays_where_it_is_while_an_answer_grows(world):
    """What is being written does not pull the view away from what was found."""
    world.talk("t", *(part for n in range(20) for part in (f"question {n}", f"needle {n}\n\n" + "filler\n" * 8)))

    async def scene(pilot):
        await ready(pilot)
        await command(pilot, "go on")
        await until(pilot, lambda: world.chat.turns, "a turn")
        await pilot.press("ctrl+f", *"needle 3", "enter")
        await until(pilot, lambda: "needle 3" in text_of(pilot.app), "the place")
        world.chat.turns[0].write("line\n" * 60, 60)
        await until(pilot, lambda: "generating 60 tok" in text_of(pilot.app), "text")
        assert "needle 3" in text_of(pilot.app)

    play(world.app(session="t"), scene)


# ---- what comes back in another conversation ----


@pytest.mark.slow
@pytest.mark.parametrize("way", ["/undo", "message", "list"])
def test_undo_goes_to_the_conversation_as_any_key_does(world, way):
    """What was taken away elsewhere comes back there; the draft of the one that is left stays its own, the list marks the other."""
    one = world.talk("one", "q1", "a1", "q2", "a2")
    two = world.talk("two", "another question", "another answer", age=20)
    world.store.set_draft(one, "draft of one")

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press("alt+up", "alt+up", "d")
        screen.open(two)
        await pilot.pause()
        pane = {"message": screen.transcript, "list": screen.sessions}.get(way, screen.composer)
        screen.composer.insert("draft of two")
        if way == "/undo":
            screen.undo_delete()
        else:
            await pilot.press(*(["alt+up"] if way == "message" else ["ctrl+b", "ctrl+b"]), "u")
        await until(pilot, lambda: screen.desk.key == one, "the conversation")
        await pilot.pause()
        assert texts(world, one) == ["q1", "a1", "q2", "a2"]
        assert chosen(pilot) == "q2"
        assert screen.composer.text == "draft of one"
        assert "another question" not in screen.composer.past
        assert screen.sessions.opened == one
        assert screen.focused is pane
        screen.store_draft()
        assert (world.store.get(one).draft, world.store.get(two).draft) == ("draft of one", "draft of two")

    play(world.app(session="one"), scene, size=(130, 30))


@pytest.mark.slow
def test_undo_elsewhere_waits_for_the_answer_there(world):
    """While an answer is written in the conversation where something was taken away, undo shows it and says why not."""
    one = world.talk("one", "q1", "a1", "q2", "a2")
    two = world.talk("two", "another question", "another answer", age=20)

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press("alt+up", "alt+up", "d", "escape")
        await command(pilot, "go on")
        await until(pilot, lambda: world.chat.turns, "a turn")
        screen.open(two)
        await command(pilot, "/undo")
        assert "still being written" in notices(pilot.app)
        assert screen.desk.key == one
        world.chat.turns[0].end()
        await settled(pilot)
        assert texts(world, one)[:3] == ["q1", "a1", "go on"]
        await command(pilot, "/undo")
        assert texts(world, one) == ["q1", "a1", "q2", "a2"]

    play(world.app(session="one"), scene)


def test_undo_does_not_wait_for_an_answer_elsewhere(world):
    """An answer that is written in the open conversation keeps nothing from coming back in another one."""
    one = world.talk("one", "q1", "a1", "q2", "a2")
    two = world.talk("two", "another question", "another answer", age=20)

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press("alt+up", "alt+up", "d")
        screen.open(two)
        await command(pilot, "go on")
        await until(pilot, lambda: world.chat.turns, "a turn")
        await command(pilot, "/undo")
        assert screen.desk.key == one
        assert texts(world, one) == ["q1", "a1", "q2", "a2"]

    play(world.app(session="one"), scene)
