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
from localkv.messages import Forget, Typing, Want, Warm
from localkv.opened import grown
from tests.engine.tiny_engine import CONFIG, ask, make, runtime_of
from tests.test_ahead import work

pytestmark = pytest.mark.slow

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


def test_a_slot_whose_memory_somebody_else_has_taken_is_taken_again_when_there_is_some(fast_dir, monkeypatch):
    """Neither the larger slot nor the one of before can be had: the question is refused in a sentence, and the next one is answered."""
    with runtime_of(make("llama", fast_dir / "model"), fast_dir / "home", SMALL) as runtime:
        _, lines = ask(runtime, "hello", n_tokens=4)

        def nothing(*_):
            raise torch.OutOfMemoryError("CUDA out of memory.")

        monkeypatch.setattr(slots, "_zeros", nothing)
        for _ in range(2):
            with pytest.raises(OutOfMemory):
                ask(runtime, TEXT, n_tokens=60)
        monkeypatch.undo()
        done, _ = ask(runtime, TEXT, n_tokens=60)
        assert len(done.ids) > 0
        assert runtime.opened.room_tokens > 64
        assert ask(runtime, "and then?", lines=lines, n_tokens=4)[0].numbers.restored.total > 0


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


PASTE = "the swift ship sails past the old harbour wall and on to the sea " * 4


def pasted(runtime, *, typed, lose=False):
    """A long question after a short one; `typed`: it is read ahead; `lose`: the records of what was before are gone."""
    done, lines = ask(runtime, "hello", name="talk")
    ask(runtime, "x", name="other", n_tokens=2)
    if lose:
        names = tuple((runtime.opened.ground.identity, name) for name in runtime.opened.keeper._index.entries)
        runtime.forget(Forget(request=0, names=names))
    if typed:
        section = runtime.opened.loaded.section
        runtime.hint(Typing(request=0, conversation="talk", model=section, lines=lines, text=PASTE, head=done.head))
        work(runtime)
    before = runtime.snapshot()
    answer, _ = ask(runtime, PASTE, lines=lines, head=done.head, name="talk", n_tokens=60)
    return answer, before, runtime.snapshot()


@pytest.mark.parametrize("lose", [False, True])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_what_was_typed_survives_growth(kind, lose, fast_dir):
    """Enter on a paste that fills the slot: the same bits and accounts as without typing, and what was lost before is not read twice."""
    folder = make(kind, fast_dir / "model")
    small = msgspec.structs.replace(CONFIG, engine=msgspec.structs.replace(CONFIG.engine, slot_tokens=128))
    with runtime_of(folder, fast_dir / "still", small) as runtime:
        expected, _, _ = pasted(runtime, typed=False, lose=lose)
    with runtime_of(folder, fast_dir / "typed", small) as runtime:
        found, before, after = pasted(runtime, typed=True, lose=lose)
        assert [event.kind for event in runtime._events.recent].count("slot.grow") == 1
    numbers, wanted = found.numbers, expected.numbers
    assert (found.ids, found.head.name) == (expected.ids, expected.head.name)
    assert (numbers.exact, numbers.inexact_because, numbers.fallbacks) == (
        wanted.exact,
        wanted.inexact_because,
        wanted.fallbacks,
    )
    assert numbers.restored.total + numbers.prefilled_tokens == numbers.prompt_tokens
    assert after.restored_tokens - before.restored_tokens == wanted.restored.total, "what was typed is no hit"
    if kind == "llama" and lose:
        assert numbers.typed_tokens >= 80
        assert numbers.prefilled_tokens < wanted.prefilled_tokens - 80


def test_opening_grows_no_slot(fast_dir):
    """A conversation that is longer than the slot is not brought into it ahead: to grow it must be emptied, and nobody has asked yet."""
    folder = make("llama", fast_dir / "model")
    with runtime_of(folder, fast_dir / "home") as runtime:
        done, lines = ask(runtime, PASTE)
        assert done.head.tokens > 64
        assert not runtime.flush(30).problem
    with runtime_of(folder, fast_dir / "home", SMALL) as runtime:
        want = Want(conversation="talk", ids=b"".join(line.ids for line in lines), head=done.head)
        runtime.hint(Warm(request=0, model=runtime.opened.loaded.section, wants=(want,), why="open"))
        work(runtime)
        assert (runtime.opened.live.position, runtime.opened.room_tokens) == (0, 64)
        assert not [event for event in runtime._events.recent if event.kind.startswith(("ahead", "slot"))]
        again, _ = ask(runtime, TEXT, lines=lines, head=done.head)
        assert again.numbers.exact
