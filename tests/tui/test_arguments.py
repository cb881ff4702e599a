"""What a command takes is offered after it: nobody has to know names by heart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.tui.arguments import argument_offers
from tests.tui.conftest import play, text_of, until

SOURCES = {
    "theme": lambda: [("nord-like", "nord-like", ""), ("ansi", "ansi", "in use"), ("localkv-light", "localkv-light", "")]
}


@given(st.text(alphabet="/theme noradilk-\n@", max_size=14))
def test_offers_go_on_from_the_command(text):
    """Only after a command that has names to offer; each offer keeps the command and has all that was written."""
    for offer in argument_offers(text, SOURCES):
        command, _, words = text.partition(" ")
        assert command == "/theme"
        assert offer.text.startswith("/theme ")
        assert all(word.casefold() in offer.text.casefold() for word in words.split())


def test_beginnings_come_before_what_is_inside():
    """ "l" means the one that begins with it; "li" two that have it; a whole name is done."""
    names = lambda text: [offer.shown for offer in argument_offers(text, SOURCES)]  # noqa: E731
    assert names("/theme ") == ["nord-like", "ansi", "localkv-light"]
    assert names("/theme l") == ["localkv-light"]
    assert names("/theme li") == ["nord-like", "localkv-light"]
    assert names("/theme ansi") == names("/theme") == names("/them ") == names("/theme zz") == []


@pytest.mark.slow
@pytest.mark.parametrize(("line", "shown", "after"), [
    ("/theme ", "in use", "/theme ansi"),
    ("/open l", "long ago", "/open long ago"),
    ("/set temp", "0 to 5; 0 takes the likeliest", "/set temperature"),
    ("/model org", "on this machine", "/model org/some-model"),
])  # fmt: skip
def test_names_are_offered_while_a_command_is_written(world, tmp_path, monkeypatch, line, shown, after):
    """Themes, conversations, settings with their values, models: tab takes the first."""
    (tmp_path / "hub" / "models--org--some-model").mkdir(parents=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    world.talk("long ago", "q", "a", age=1e6)
    world.talk("now", "q", "a")
    app = world.app(session="now")

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(app), "a ready engine")
        await pilot.press(*line)
        await until(pilot, lambda: shown in text_of(app), "the offers")
        await pilot.press("tab")
        assert app.chat_screen.composer.text == after

    play(app, scene)


@pytest.mark.slow
def test_a_name_that_is_chosen_is_done_by_the_next_enter(world):
    """The theme of the marked row, chosen with the keys alone."""
    app = world.app()

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(app), "a ready engine")
        await pilot.press(*"/the", "tab", "down", "up", *"nord", "tab", "enter")
        await until(pilot, lambda: app.theme == "nord-like", "the theme")

    play(app, scene)


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "title"), [
    (["enter"], "rust, the newer"),
    (["down", "enter", "enter"], "rust, the newer"),
    (["down", "down", "enter", "enter"], "rust, the older"),
    (["up", "enter", "enter"], "rust, the older"),
    (["tab", "enter"], "rust, the newer"),
])  # fmt: skip
def test_enter_does_what_is_written_unless_another_is_marked(world, keys, title):
    """ "/open rust" and enter opens the first at once, as without offers; up and down mark what enter then takes."""
    world.talk("rust, the older", "q", "a", age=300.0)
    world.talk("rust, the newer", "q", "a", age=200.0)
    world.talk("now", "q", "a")
    app = world.app(session="now")

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(app), "a ready engine")
        await pilot.press(*"/open rust", *keys)
        await until(pilot, lambda: title in text_of(app).splitlines()[0], title)

    play(app, scene)


@pytest.mark.slow
def test_a_value_is_never_taken_for_a_name(world):
    """ "/set temperature 0.2" is done as it is written."""
    app = world.app()

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(app), "a ready engine")
        await pilot.press(*"/set temperature 0.2", "enter")
        await until(pilot, lambda: app.chat_screen.desk.sampling.temperature == 0.2, "the value")

    play(app, scene)
