"""The estimate of a real, tiny model: measured beside the live conversation, which stays as it is."""

import dataclasses
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.bench import tiny
from localkv.commands.plan import cost_of
from localkv.engine import live as live_module
from localkv.engine import pace
from localkv.engine.pace import DEPTHS, depth_within, stride_of
from localkv.engine.slot import Slot
from localkv.errors import OutOfMemory
from localkv.estimate import _spare_memory, measure_reading
from localkv.figures import Card
from tests.engine.tiny_engine import ask, make, runtime_of

pytestmark = pytest.mark.slow

TEXT = " ".join(f"the quick brown fox number {i} jumps over the lazy dog" for i in range(3))


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "falcon_h1", "mamba2", "jamba"])
def test_an_estimate_of_each_kind(name, tmp_path):
    """Bytes are those of the layout, rates are numbers, and the conversation in the slot goes on exactly."""
    with runtime_of(make(name, tmp_path / name), tmp_path / "home") as runtime:
        done, lines = ask(runtime, TEXT)
        said = []
        found = runtime.estimate(said.append)
        layout = runtime.opened.loaded.layout
        again, _ = ask(runtime, "and then", head=done.head, lines=lines)
    assert again.numbers.restored.slot == done.head.tokens
    assert again.numbers.exact
    assert said
    assert found.full_token_bytes == layout.token_bytes
    assert {each.window for each in found.sliding} == {slab.window for slab in layout.sliding_slabs}
    assert found.copy_rate > 0
    assert found.read_rate > 0
    assert found.token_seconds > 0
    assert found.deeper_seconds >= 0
    n = 8 * tiny.WINDOW + 5
    cost = cost_of(found, n)
    stored = layout.checkpoint_bytes(n) + layout.block_bytes * (n // 16)
    assert cost.total_bytes == stored


@pytest.mark.parametrize("context_tokens", [10, 16, 100])
def test_nothing_is_measured_beyond_the_context(context_tokens, tmp_path, monkeypatch):
    """A model with learned positions has none beyond: on a card asking for one ends the process."""
    with runtime_of(make("llama", tmp_path / "llama"), tmp_path / "home") as runtime:
        loaded, ends, move_to = runtime.opened.loaded, [], Slot.move_to

        def moved(slot, position):
            ends.append(position)
            move_to(slot, position)

        monkeypatch.setattr(Slot, "move_to", moved)
        found = pace.measure_pace(loaded, loaded.layout, "chunks", 1 << 40, context_tokens)
    assert found.depth == max(0, context_tokens - 16)
    assert max(ends) + min(16, context_tokens) <= context_tokens


def test_scratch_files_go(tmp_path):
    """Measuring the disk leaves nothing behind, and a place that cannot be written is no rate and no error."""
    rate, _ = measure_reading(tmp_path)
    assert rate > 0
    assert list(tmp_path.iterdir()) == []
    assert measure_reading(tmp_path / "missing") == (0.0, False)


FORWARD, TOKEN = 0.05, 0.002
"""Seconds that the slow model takes for a forward and for each token in it, beside its own."""


@pytest.fixture
def slow(monkeypatch):
    """Models that take FORWARD and TOKEN, and 0.5 s more for the first forward after each load."""
    real = live_module.Live.feed
    loaded = set()

    def feed(live, ids):
        time.sleep(FORWARD + TOKEN * len(ids) + (0.0 if live._model in loaded else 0.5))
        loaded.add(live._model)
        return real(live, ids)

    def forward(loaded, n_tokens, **state):
        time.sleep(FORWARD + TOKEN * n_tokens)
        return real_forward(loaded, n_tokens, **state)

    real_forward = pace._forward
    monkeypatch.setattr(live_module.Live, "feed", feed)
    monkeypatch.setattr(pace, "_forward", forward)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("name", ["llama", "jamba"])
def test_the_first_forecast_is_honest(name, tmp_path):
    """The first turn of an engine, and the first one after the model was let go, say what they will take: no guess, no cold start."""
    folder = make(name, tmp_path / "model")
    with runtime_of(folder, tmp_path / "home") as runtime:
        section = runtime.opened.loaded.section
        for again in range(2):
            assert runtime.opened.live.position == 0
            numbers = ask(runtime, "one question", name=f"talk {again}")[0].numbers
            n_tokens = numbers.prefilled_tokens
            forwards = 1 if name == "jamba" else -(-n_tokens // runtime.opened.block_tokens)
            law = FORWARD * forwards + TOKEN * n_tokens
            assert numbers.predicted_prefill_seconds > 0.7 * law
            assert numbers.predicted_prefill_seconds == pytest.approx(numbers.prefill_seconds, rel=0.6)
            runtime.unload()
            runtime.prepare(section, lambda *_: None)


@pytest.mark.parametrize("one", [0.001, 0.3])
@pytest.mark.parametrize("times", [0.5, 1.0, 1.2, 3.0, 200.0])
def test_a_stride_says_what_both_forwards_took(one, times):
    """Together they make up what was measured; where many cost no more than one, tokens still cost something."""
    many = one * times
    stride = stride_of(one, many, 256)
    assert stride.token_seconds >= many / 4 / 256
    assert 0 <= stride.forward_seconds <= one
    assert stride.forward_seconds + 256 * stride.token_seconds <= max(one, many) + many / 4


def test_without_memory_to_warm_up_a_model_opens(tmp_path, monkeypatch):
    """What the first forward lacks a turn may find: the chat begins, with the pace that the self-test measured."""
    real = live_module.Live.feed

    def short(live, ids):
        if len(ids) == 1 and not live.position:
            raise OutOfMemory(1, 0)
        return real(live, ids)

    monkeypatch.setattr(live_module.Live, "feed", short)
    with runtime_of(make("llama", tmp_path / "model"), tmp_path / "home") as runtime:
        assert ask(runtime, "hello")[0].numbers.predicted_prefill_seconds > 0


@given(st.integers(0, 1 << 36), st.integers(0, 1 << 20), st.integers(1, 1 << 10))
def test_the_scratch_slot_fits_what_is_free(free_bytes, token_bytes, n_tokens):
    """As deep as memory allows, and never deeper: beside a full card a measurement of depth is left out, not the card overrun."""
    depth = depth_within(free_bytes, token_bytes, n_tokens)
    assert depth == 0 or (depth + n_tokens) * token_bytes < free_bytes
    assert all((deeper + n_tokens) * token_bytes >= free_bytes for deeper in DEPTHS if deeper > depth)


def test_on_a_card_the_scratch_slot_takes_half_of_what_the_card_has_left(tmp_path, monkeypatch):
    """Free RAM says nothing about a card whose memory slot and pool have taken."""
    asked = []
    with runtime_of(make("llama", tmp_path / "model"), tmp_path / "home") as runtime:
        opened = dataclasses.replace(
            runtime.opened, loaded=dataclasses.replace(runtime.opened.loaded, device=torch.device("cuda"))
        )
        monkeypatch.setattr(
            "localkv.opened.card_of", lambda device: asked.append(device) or Card(total_bytes=24 << 30, used_bytes=23 << 30)
        )
        assert _spare_memory(opened) == 1 << 29
        assert _spare_memory(runtime.opened) > 0
    assert asked == [torch.device("cuda")]


def test_pages_of_the_pool_are_touched_between_turns_only(tmp_path):
    """Beside a forward that would take a core from it: opening and a turn leave it undone, idling does it step by step."""
    with runtime_of(make("llama", tmp_path / "model"), tmp_path / "home") as runtime:
        pool, steps = runtime.opened.pool, 0
        assert not pool._mappings
        ask(runtime, "a question")
        assert not any(mapping.warm for mapping in pool._mappings)
        while runtime.idle():
            steps += 1
        assert steps > 0
        assert all(mapping.warm for mapping in pool._mappings)
        assert not runtime.idle()
        assert "warm" not in {thread.name for thread in threading.enumerate()}
