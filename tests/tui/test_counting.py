"""How long a message is while it is written: counted from the conversation's own tokens, and said before it is too long."""

import pytest
from textual.events import Paste

from localkv.chat.tree import Message
from localkv.tui.counting import characters_per_token, count_label
from tests.tui.conftest import play, until


def message(text, n_ids):
    return Message("m", "c", None, "user", text, b"\0" * 4 * n_ids, "complete", 0.0)


def test_characters_per_token_are_the_conversation_s_own():
    """A conversation in Chinese has other tokens than one in English; too few tokens say nothing."""
    assert characters_per_token([message("漢" * 100, 80)]) == 1.25
    assert characters_per_token([message("word " * 100, 100), message("x", 0)]) == 5.0
    assert characters_per_token([message("word", 1)]) == 4.0
    assert characters_per_token([]) == 4.0


def test_what_is_said():
    """Nothing of a short text, a count of a long one, and how much is too much."""
    assert count_label(100, 4.0, None) == ("", False)
    assert count_label(8_000, 4.0, 32_000) == ("~2,000 tok", False)
    assert count_label(8_000, 4.0, 500) == ("~2,000 tok, ~1,500 too many", True)
    assert count_label(40, 4.0, 0) == ("~10 tok, ~10 too many", True)


def test_no_message_is_sent_without_a_hint_that_it_is_too_long(world):
    """While typing and pasting the count is live; over the context it says by how much, before anything is sent."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        count = pilot.app.chat_screen.count
        await until(pilot, lambda: pilot.app.chat_screen.stage.engine.ready, "a model")
        await pilot.press(*"short")
        assert not count.has_class("-shown")
        pilot.app.post_message(Paste("0123456789\n" * 400))
        await until(pilot, lambda: str(count.render()) == "~1,101 tok", "the count")
        pilot.app.post_message(Paste("0123456789\n" * 40_000))
        await until(pilot, lambda: "too many" in str(count.render()), "the warning")
        assert count.has_class("-over")
        pilot.app.chat_screen.composer.clear()
        await until(pilot, lambda: not count.has_class("-shown"), "nothing")

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_the_screen_is_laid_out_only_for_another_count(world, monkeypatch):
    """A key that changes nothing about the count leaves it alone: setting it would lay out the whole screen."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        count, composer = pilot.app.chat_screen.count, pilot.app.chat_screen.composer
        said = []
        update = count.update
        monkeypatch.setattr(count, "update", lambda label: (said.append(label), update(label)))
        await pilot.press(*"short")
        assert said == []
        pilot.app.post_message(Paste("0123456789\n" * 400))
        await until(pilot, lambda: "tok" in str(count.render()), "the count")
        n = len(said)
        await pilot.press(*"eight or")
        assert 1 <= len(said[n:]) <= 2, "four characters are a token"
        composer.clear()
        await until(pilot, lambda: not count.has_class("-shown"), "nothing")
        assert said[-1] == ""

    play(world.app(session="first"), scene)
