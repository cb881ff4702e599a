"""Exports that people read: the path that is looked at, unchanged; JSON is tested with the imports."""

import json

import msgspec
import pytest

from localkv.chat.export import ExportedConversation, to_json, to_markdown, to_text
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from tests.tui.fakes import NUMBERS


@pytest.fixture
def talk(home):
    """A store with one conversation of two versions; the store and the conversation."""
    store = ConversationStore.open(home.database, home.backups, clock=lambda: 1_750_000_000.0)
    one = store.create("x", model=ModelSection(name="m"), sampling=SamplingSection(), title="Two & two", system="Be brief.")
    question = store.ask(one.id, one.leaf, "# 2+2?\n\n<b>")
    for text, state in (("5", "complete"), ("4, I th", "stopped")):
        answer = store.begin_answer(one.id, question.id)
        store.finish_answer(answer.id, text=text, ids=b"1234", state=state, head=None, numbers=NUMBERS)
    store.set_tags(one.id, ["maths"])
    yield store, store.get(one.id)
    store.close()


def test_markdown_and_text(talk):
    """Who said what, and what was cut; what was written is not changed, other versions are left out."""
    store, one = talk
    path = store.path(one.id)
    told = to_markdown(one, path)
    assert told.startswith(
        "# Two & two\n\nmodel m · 2025-06-15 · #maths\n\n## System\n\nBe brief.\n\n## You\n\n# 2+2?\n\n<b>\n"
    )
    assert told.endswith("## Answer (stopped)\n\n4, I th\n")
    assert "5" not in told.split("## You")[1]
    assert to_text(one, path).startswith("Two & two\n=========\n\nSystem:\n\nBe brief.\n")


def test_export_without_timings_and_settings_is_prevented(talk):
    """JSON has every version with what the turn counted, the model and how it samples; ids of tokens are not in it."""
    store, one = talk
    text = to_json(one, store.messages(one.id))
    document = json.loads(text)
    assert (document["format"], document["version"], document["model"]["name"]) == ("localkv-conversation", 1, "m")
    answers = [each for each in document["messages"] if each["role"] == "assistant"]
    assert [each["text"] for each in answers] == ["5", "4, I th"]
    assert answers[0]["numbers"]["restored"]["ram"] == 12_288
    assert answers[0]["numbers"]["ttft_ms"] == 340.0
    assert "ids" not in answers[0]
    assert document["sampling"]["temperature"] == 0.7


def test_the_documented_keys_are_those_that_are_written(talk):
    """The format in the module's docstring names every key."""
    from localkv.chat import export

    store, one = talk
    document = json.loads(to_json(one, store.messages(one.id)))
    for key in [*document, *document["messages"][0]]:
        assert f'"{key}"' in export.__doc__, key
    assert msgspec.json.decode(to_json(one, store.messages(one.id)), type=ExportedConversation).name == "x"
