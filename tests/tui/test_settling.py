"""The dialogs for sampling and the system prompt: valid or a sentence, the price before the change, nothing else touched."""

import pytest
from textual.widgets import Input, Static

from localkv.commands.talk import changed_model
from localkv.config import ModelSection, SamplingSection
from localkv.tui.prompting import SystemPrompt
from localkv.tui.sampling import Sampling
from tests.tui.conftest import notices, play, rows_of, text_of, until


async def command(pilot, line, dialog):
    pilot.app.chat_screen.composer.insert(line)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(pilot.app.screen, dialog), "the dialog")


def told(pilot):
    return str(pilot.app.screen.query_one("#limit", Static).render())


@pytest.mark.slow
def test_settings_are_changed_in_a_dialog(world):
    """Any of the lines is written anew, stop strings too; Enter keeps them in this conversation alone."""
    world.talk("other", "q", "a")
    world.talk("first", "q", "a")

    async def scene(pilot):
        await command(pilot, "/set", Sampling)
        assert "0 to 5" in told(pilot)
        await pilot.press("home", "shift+end", *"0.1")
        await pilot.press(*["down"] * 7, *'"END" "\\n"', "enter")
        await until(pilot, lambda: pilot.app.screen is pilot.app.chat_screen, "the chat")
        expected = SamplingSection(temperature=0.1, stop=("END", "\n"))
        assert world.store.by_name("first").sampling == expected
        assert world.store.by_name("other").sampling == SamplingSection()

    play(world.app(session="first"), scene)


def test_a_wrong_value_is_said_and_nothing_is_kept(world):
    """The dialog stays open at the line that is wrong and says what it takes; esc leaves all as it was."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        await command(pilot, "/set", Sampling)
        await pilot.press("down", "down", "home", *"9", "up", "enter")
        await until(pilot, lambda: "up to 1" in told(pilot) and "top_p" in told(pilot), "the reason")
        assert pilot.app.focused is pilot.app.screen.query_one("#top_p", Input)
        await pilot.press("escape")
        assert world.store.by_name("first").sampling == SamplingSection()

    play(world.app(session="first"), scene, size=(60, 16))


def test_a_setting_without_a_dialog(world):
    """/set KEY VALUE does the same, and names the nearest key."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        for line in ("/set stop END", "/set tempature 1"):
            pilot.app.chat_screen.composer.insert(line)
            await pilot.press("enter")
            await pilot.pause()
        await until(pilot, lambda: 'nearest is "temperature"' in notices(pilot.app), "the nearest")
        assert world.store.by_name("first").sampling.stop == ("END",)

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_the_price_of_another_system_prompt_is_said_first(world):
    """Before anything changes the dialog says how many tokens are computed again and how long that takes."""
    conversation = world.talk("first", "q", "a")
    answer = world.store.path(conversation)[-1]
    world.store.set_ids(answer.id, b"\0" * 4 * 2_712)

    async def scene(pilot):
        await command(pilot, "/system", SystemPrompt)
        price = str(pilot.app.screen.query_one(".price", Static).render())
        assert "2,712 tokens are computed again: about 2.0 s" in price
        await pilot.press("escape")
        assert world.store.get(conversation).n_messages == 2
        await command(pilot, "/system", SystemPrompt)
        await pilot.press(*"Be brief.", "ctrl+j", *"Please.", "enter")
        await until(pilot, lambda: pilot.app.screen is pilot.app.chat_screen, "the chat")
        stored = world.store.get(conversation)
        assert stored.system == "Be brief.\nPlease."
        assert [message.text for message in world.store.path(conversation)] == ["Be brief.\nPlease.", "q", "a"]
        assert any("Be brief." in row for row in rows_of(pilot.app.chat_screen.transcript))

    play(world.app(session="first"), scene)


def test_a_new_conversation_begins_with_its_prompt_at_no_price(world):
    """Before the first question a prompt costs nothing, and the words given are in the dialog."""

    async def scene(pilot):
        await command(pilot, "/system Be brief.", SystemPrompt)
        await until(pilot, lambda: "costs nothing" in text_of(pilot.app), "the price")
        await pilot.press("enter")
        await until(pilot, lambda: "Be brief." in text_of(pilot.app), "the prompt")
        assert world.store.list() == []

    play(world.app(), scene)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["/system", "/system Be brief."])
def test_no_other_prompt_while_an_answer_hangs_on_this_one(world, line):
    """While an answer is written the prompt stays; the command says so and comes back."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        composer.insert("next")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        composer.insert(line)
        await pilot.press("enter")
        await until(pilot, lambda: "still being written" in notices(pilot.app), "the reason")
        assert composer.text == line

    play(world.app(session="first"), scene)


SET_UPS = [ModelSection(name="org/old", quant="4bit"), ModelSection(name="org/old", dtype="float32", trust_remote_code=True)]


@pytest.mark.slow
@pytest.mark.parametrize("model", SET_UPS)
@pytest.mark.parametrize("is_stored", [True, False])
def test_another_model_is_loaded_as_the_one_before(world, model, is_stored, tmp_path, monkeypatch):
    """/model changes which model answers and nothing else, as in plain mode: not how it is loaded, and a path means its file."""
    monkeypatch.chdir(tmp_path)
    conversation = world.talk("first", "q", "a")
    world.store.set_model(conversation, model)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        if not is_stored:
            screen.begin()
            screen.desk.set_model(model)
        screen.composer.load_text("/model ./other.gguf")
        await pilot.press("enter")
        await pilot.pause()
        assert screen.desk.model == changed_model(model, {"name": "./other.gguf"}, "/model")
        assert (screen.desk.model.quant, screen.desk.model.dtype) == (model.quant, model.dtype)
        assert screen.desk.model.name == str(tmp_path / "other.gguf")

    play(world.app(session="first"), scene)
