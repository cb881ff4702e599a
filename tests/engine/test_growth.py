"""A slot that begins small and grows between turns: the same answers as with a large one, or a sentence where memory ends."""

import weakref

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from localkv.engine import slot as slots
from localkv.engine.slot import Slot
from localkv.errors import ContextFull, OutOfMemory
from localkv.kv.layout import Layer, Layout, Rows
from localkv.opened import grown
from tests.engine.tiny_engine import CONFIG, ask, make, runtime_of

SMALL = msgspec.structs.replace(CONFIG, engine=msgspec.structs.replace(CONFIG.engine, slot_tokens=64))
TEXT = "a question of some forty letters, then a stop"


def talk(runtime, n_turns, n_tokens=12):
    """The answers of a growing conversation, each turn in its own slot state or restored."""
    found, lines, head = [], (), None
    for _ in range(n_turns):
        done, lines = ask(runtime, TEXT, lines=lines, head=head, n_tokens=n_tokens)
        found.append(done)
        head = done.head
    return found


@pytest.mark.parametrize("simulate", ["none", "late"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "qwen3_next", "mamba2"])
def test_growing_changes_no_answer(kind, simulate, fast_dir):
    """Six turns from 64 tokens on: every id as in a slot of full size, every turn exact, and each growth has its line in the log."""
    folder = make(kind, fast_dir / "model")
    with runtime_of(folder, fast_dir / "large") as runtime:
        expected = talk(runtime, 6)
    small = msgspec.structs.replace(SMALL, engine=msgspec.structs.replace(SMALL.engine, simulate=simulate))
    with runtime_of(folder, fast_dir / "small", small) as runtime:
        assert runtime.opened.room_tokens == 64
        answers = talk(runtime, 6)
        grew = [event.fields for event in runtime._events.recent if event.kind == "slot.grow"]
        assert runtime.opened.room_tokens >= answers[-1].numbers.prompt_tokens + 12
        runtime.opened.keeper.check()
    assert [done.ids for done in answers] == [done.ids for done in expected]
    assert all(done.numbers.exact for done in answers)
    assert len(grew) >= 2
    assert [fields["before"] for fields in grew[1:]] == [fields["tokens"] for fields in grew[:-1]]


def test_without_memory_the_slot_stays_and_the_answer_is_shorter(fast_dir, monkeypatch):
    """An answer ends where the slot ends, a prompt that does not fit is refused in a sentence, and with memory all goes on."""
    with runtime_of(make("llama", fast_dir / "model"), fast_dir / "home", SMALL) as runtime:
        zeros, refused = slots._zeros, []

        def short(shape, dtype, device):
            if shape[2:3] > (64,):
                refused.append(shape)
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return zeros(shape, dtype, device)

        monkeypatch.setattr(slots, "_zeros", short)
        done, lines = ask(runtime, TEXT, n_tokens=60)
        assert refused
        assert done.reason == "context_full"
        assert runtime.opened.room_tokens == 64
        assert [event.kind for event in runtime._events.recent].count("slot.stays") == 1
        with pytest.raises(ContextFull, match="64"):
            ask(runtime, TEXT * 3, lines=lines, head=done.head)
        monkeypatch.undo()
        again, _ = ask(runtime, TEXT, lines=lines, head=done.head, n_tokens=5)
        assert again.numbers.exact
        assert runtime.opened.room_tokens > 64


def test_a_growth_that_fails_half_way_holds_nothing_when_the_old_slot_is_taken_again(monkeypatch):
    """Of several regions the first was there already: it must be free, or there is no room for the slot of before either."""
    rows = Rows(2, 8, "BF16")
    slot = Slot(Layout((Layer(0, rows, rows), Layer(1, rows, rows, 24)), 16), 64, torch.device("cpu"))
    zeros, regions, alive = slots._zeros, [], []

    def short(shape, dtype, device):
        alive.append([region() is not None for region in regions])
        if len(regions) == 1:
            regions.append(lambda: None)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        region = zeros(shape, dtype, device)
        regions.append(weakref.ref(region))
        return region

    monkeypatch.setattr(slots, "_zeros", short)
    with pytest.raises(OutOfMemory):
        slot.resize(128)
    assert slot.context_tokens == 64
    assert alive[:3] == [[], [True], [False, False]], "the third is the first region that is taken again"


@given(st.integers(1, 1 << 17), st.integers(1, 1 << 18), st.integers(1, 1 << 17))
def test_the_next_size(now, needed, limit):
    """Never smaller than now, never beyond the limit unless it was, enough where the limit allows, and at least doubled."""
    now = min(now, limit)
    size = grown(now, needed, limit)
    assert now <= size <= limit
    assert size >= min(needed, limit) or size == now >= needed
    assert size in (now, limit) or size >= 2 * now
