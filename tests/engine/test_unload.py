"""Letting the model go and coming back: the conversation goes on exactly, and memory is free in between."""

import threading

import msgspec
import pytest
import torch

from localkv.messages import Submit
from tests.engine.tiny_engine import ask, make, runtime_of, tiny_sampling

QUESTION = "a question of more than one block of tokens, and then some"


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "qwen3_next"])
def test_a_conversation_goes_on_exactly_after_unloading(kind, fast_dir):
    """The second turn after an unload draws the same ids as one that never left, from restored state alone, and says exact."""
    folder = make(kind, fast_dir / "model")
    with runtime_of(folder, fast_dir / "stayed") as runtime:
        first, lines = ask(runtime, QUESTION)
        stayed, _ = ask(runtime, "and then?", lines=lines, head=first.head)
    with runtime_of(folder, fast_dir / "left") as runtime:
        section = runtime.opened.loaded.section
        first, lines = ask(runtime, QUESTION)
        counted = runtime.snapshot()
        unloaded = runtime.unload()
        assert unloaded.model
        assert unloaded.problem == ""
        assert runtime.opened is None
        resting = runtime.snapshot([first.head])
        assert resting.model == ""
        assert resting.ssd.swaps_in >= unloaded.records + counted.ssd.swaps_in > 0, "what was saved stays counted"
        assert [event.kind for event in runtime._events.recent].count("model.unload") == 1
        runtime.prepare(section, lambda *_: None)
        came_back, _ = ask(runtime, "and then?", lines=lines, head=first.head)
        after = runtime.snapshot()
        assert (after.turns, after.ssd.swaps_in >= resting.ssd.swaps_in) == (2, True), "all counts go on"
        assert after.written_bytes >= resting.written_bytes > 0
    assert came_back.ids == stayed.ids
    assert came_back.numbers.exact
    assert came_back.numbers.restored.ssd == first.head.tokens


def test_unloading_frees_the_weights(fast_dir):
    """No reference is left to the model: a hundred megabytes of weights are gone from the process."""
    folder = make("llama", fast_dir / "model", hidden_size=1024, intermediate_size=2048, num_hidden_layers=4)
    with runtime_of(folder, fast_dir / "home") as runtime:
        weights = runtime.opened.loaded.weights_bytes
        assert weights > 90 << 20
        ask(runtime, "hello")
        assert runtime.unload().freed_bytes > weights * 0.7
        assert runtime.unload().model == "", "there is nothing to unload twice"
        assert not [each for each in _tensors() if each.numel() * each.element_size() > 4 << 20]


def _tensors():
    import gc

    return [each for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter)]


def test_what_would_be_lost_keeps_an_idle_model_here(fast_dir):
    """State that is in memory alone, a private conversation's: an idle engine keeps it; a person who asks is told what is lost."""
    with runtime_of(make("llama", fast_dir / "model"), fast_dir / "home") as runtime:
        section, replies = runtime.opened.loaded.section, []
        first, lines = ask(runtime, QUESTION)
        question = msgspec.structs.replace(lines[0], text=QUESTION + " in private", ids=b"")
        submit = Submit(
            request=1, conversation="secret", model=section, lines=(question,), sampling=tiny_sampling(4), private=True
        )
        runtime.turn(submit, replies.append, threading.Event())
        stays = runtime.unload(idle=True)
        assert (stays.model, runtime.opened is not None) == ("", True)
        assert "private" in stays.problem
        assert runtime._events.recent[-1].kind == "model.stays"
        gone = runtime.unload()
        assert gone.model
        assert "private" in gone.problem
