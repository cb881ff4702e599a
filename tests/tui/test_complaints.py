"""What people complain of in other chat programs, about what they read: each is a test named after what does not happen here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import AppBlur, AppFocus

from localkv.tui.messages import Painter
from localkv.tui.rows import selected
from localkv.tui.theme import palette, read_theme
from tests.tui.conftest import play, rows_of, text_of, until
from tests.tui.samples import MARKDOWN, THEMES
from tests.tui.test_speed import long_talk


def texts(world, conversation):
    return [message.text for message in world.store.path(conversation)]


async def ready(pilot):
    await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")


async def settled(pilot):
    await until(pilot, lambda: not pilot.app.chat_screen._ticking._active.is_set(), "rest")


async def send(pilot, world, text):
    turns = len(world.chat.turns)
    pilot.app.chat_screen.composer.insert(text)
    await pilot.press("enter")
    await until(pilot, lambda: len(world.chat.turns) > turns, "a turn")
    return world.chat.turns[-1]


@pytest.mark.slow
def test_stopping_does_not_throw_the_partial_answer_away(world):
    """What was written before Esc is on screen and in the store, marked, and there after the program is started again."""

    async def stop(pilot):
        await ready(pilot)
        turn = await send(pilot, world, "Count to a thousand")
        turn.write("one two three")
        await until(pilot, lambda: "one two three" in text_of(pilot.app), "text")
        await pilot.press("escape")
        await until(pilot, lambda: "Stopped. F5 goes on." in text_of(pilot.app), "the mark")
        await settled(pilot)

    async def again(pilot):
        await ready(pilot)
        assert "one two three" in text_of(pilot.app)
        assert "Stopped. F5 goes on." in text_of(pilot.app)

    play(world.app(), stop)
    [talk] = world.store.list()
    play(world.app(session=talk.name), again)


@pytest.mark.slow
def test_editing_an_early_message_erases_nothing(world):
    """Everything that was said after it is still in the store, and one key away on screen."""
    talk = world.talk("t", "q1", "a1", "q2", "a2", "q3", "a3")
    before = {message.id for message in world.store.path(talk)}

    async def scene(pilot):
        await ready(pilot)
        await pilot.press(*["alt+up"] * 6, "e")
        pilot.app.chat_screen.composer.load_text("another q1")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].end()
        await settled(pilot)
        assert texts(world, talk) == ["another q1", ""]
        await pilot.press("alt+up", "alt+up", "left")
        assert {message.id for message in world.store.path(talk)} == before
        await until(pilot, lambda: "q3" in text_of(pilot.app), "what followed")

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_dead_branches_do_not_pile_up(world):
    """A version that nobody wants is taken away: it is not counted any more, and it comes back if it was wanted."""
    talk = world.talk("t", "q1", "a1")
    question = world.store.path(talk)[0].id
    for n in range(3):
        world.store.begin_answer(talk, question)
        world.store.finish_answer(
            world.store.get(talk).leaf, text=f"try {n}", ids=b"", state="complete", head=None, numbers=None
        )

    async def scene(pilot):
        await ready(pilot)
        assert "< 4/4 >" in text_of(pilot.app)
        await pilot.press("alt+up", "d")
        await until(pilot, lambda: "< 3/3 >" in text_of(pilot.app), "one less")
        assert "try 1" in text_of(pilot.app)
        await pilot.press("u")
        await until(pilot, lambda: "< 4/4 >" in text_of(pilot.app), "all again")

    play(world.app(session="t"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["d", "delete", "backspace", "u", "e", "r", "c", "f", "b", "y", "left", "right"])
def test_no_single_key_destroys_a_message(world, key):
    """Whatever one presses on a message: all that was said is still there, or comes back with u."""
    talk = world.talk("t", "q1", "a1", "q2", "a2")
    before = texts(world, talk)

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "alt+up", "alt+up", key)
        for turn in world.chat.turns:
            turn.end()
        await settled(pilot)
        if texts(world, talk) == before[:1]:
            await pilot.press("u")
        leaves = [branch.leaf for branch in world.store.branches(talk)]
        assert before in [[m.text for m in world.store.path(talk, leaf)] for leaf in leaves]

    play(world.app(session="t"), scene)


def test_a_reopened_conversation_is_not_on_another_branch(world):
    """The branch that was looked at is the one that is there next time."""
    talk = world.talk("t", "q1", "a1", "q2", "a2")
    world.store.ask(talk, None, "q1 in other words")

    async def look(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "left")
        await until(pilot, lambda: "a2" in text_of(pilot.app), "the first branch")

    async def again(pilot):
        await ready(pilot)
        assert "a2" in text_of(pilot.app)
        assert "< 1/2 >" in text_of(pilot.app)

    play(world.app(session="t"), look)
    play(world.app(session="t"), again)


@pytest.mark.slow
def test_reading_above_is_not_yanked_by_anything(world):
    """An answer that grows, gets code, ends and is replaced by the stored one moves no row that is read above it."""
    world.talk("t", *(f"row {n}\n" * 7 for n in range(30)))

    async def scene(pilot):
        await ready(pilot)
        transcript = pilot.app.chat_screen.transcript
        turn = await send(pilot, world, "go on")
        turn.write("growing\n\n")
        await until(pilot, lambda: "growing" in text_of(pilot.app), "text")
        for _ in range(3):
            await pilot.press("pageup")
        read = rows_of(transcript)
        for n in range(5):
            turn.write(f"```python\ny = {n}\n```\n\n- a\n- b\n\n", 9)
            await until(pilot, lambda n=n: f"generating {9 * n + 10} tok" in text_of(pilot.app), "more text")
            assert rows_of(transcript) == read
        assert "more below" in text_of(pilot.app)
        turn.end()
        await settled(pilot)
        assert rows_of(transcript) == read

    play(world.app(session="t"), scene)


def test_code_can_be_copied_without_the_rest(world):
    """One key, and the clipboard has the code as it was written: no numbers, no border, no padding."""
    code = "def f(x):\n\treturn {\n\t\t'a': x,\n\t}"
    world.talk("t", "q", f"Like this:\n\n```python\n{code}\n```\n\nDone.")

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up", "b")
        assert pilot.app.clipboard == code

    play(world.app(session="t"), scene)


WORDS = st.sampled_from(["word", "another", "漢字", "a", "longer-word-than-most", "שלום", "e\u0301", "👩\u200d💻"])


@given(st.lists(st.lists(WORDS, min_size=1, max_size=20), min_size=1, max_size=4), st.integers(12, 70))
def test_copied_text_has_no_newlines_of_the_screen(paragraphs, width):
    """However narrow the screen: what is copied of a message are its paragraphs, each one line."""
    written = [" ".join(words) for words in paragraphs]
    rows = MARKDOWN.rows("\n\n".join(written), width)
    assert selected((row, 0, -1) for row in rows) == "\n\n".join(written)


@pytest.mark.slow
def test_a_long_conversation_does_not_freeze_the_window(world, monkeypatch):
    """Leaving the window and coming back renders no message of 2,000; another theme only those in view."""
    talk = long_talk(world, "long", 2_000)
    painted = []
    real = Painter.rows
    monkeypatch.setattr(Painter, "rows", lambda self, entry, width: (painted.append(entry.id), real(self, entry, width))[1])

    async def scene(pilot):
        screen = pilot.app.chat_screen
        screen.open(talk)
        await until(pilot, lambda: len(screen.transcript.entries) == 2_000, "all messages")
        await ready(pilot)
        painted.clear()
        for event in (AppBlur, AppFocus):
            pilot.app.post_message(event())
            await pilot.pause()
        assert painted == []
        screen.restyle(palette(read_theme(THEMES / "localkv-light.toml")))
        await pilot.pause()
        assert 0 < len(set(painted)) < 20

    play(world.app(), scene, size=(120, 36))


@pytest.mark.slow
def test_reading_inside_a_growing_answer_is_not_yanked(world):
    """Scrolled up within the answer that is being written, and it fills the whole view: its rows stand still."""

    async def scene(pilot):
        await ready(pilot)
        transcript = pilot.app.chat_screen.transcript
        turn = await send(pilot, world, "write a lot")
        turn.write("".join(f"row {n}\n" for n in range(120)))
        await until(pilot, lambda: "row 119" in text_of(pilot.app), "text")
        await pilot.press("pageup", "pageup")
        read = rows_of(transcript)
        assert not transcript.following
        for n in range(4):
            turn.write(f"more {n}\n" * 30)
            await until(pilot, lambda n=n: f"generating {n + 2} tok" in text_of(pilot.app), "more text")
            assert rows_of(transcript) == read
        turn.end()
        await settled(pilot)
        assert rows_of(transcript) == read

    play(world.app(), scene)
