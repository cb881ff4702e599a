"""The slot: state copied out and into another slot goes on bit for bit, for every kind of layer, and costs what it should."""

import pytest
import torch
from transformers import DynamicCache

from localkv.commands.bench import tiny
from localkv.commands.bench.player import token_ids
from localkv.engine.live import Live
from localkv.engine.slot import Slot
from localkv.kv.kinds import read_layout

BLOCK = 16
CPU = torch.device("cpu")
KINDS = ("llama", "mistral", "gemma3n_text", "deepseek_v3", "qwen3_next", "falcon_h1", "mamba2", "lfm2")


class Bench:
    """A tiny model, its layout, and lives over slots of it."""

    def __init__(self, name: str, dtype: torch.dtype = torch.float32) -> None:
        self.model = tiny.build_model(name, dtype)
        cache = self.own_cache()
        with torch.inference_mode():
            self.model(torch.zeros((1, 2), dtype=torch.long), cache=cache, use_cache=True)
        self.layout = read_layout(cache, BLOCK)

    def own_cache(self) -> DynamicCache:
        return DynamicCache(config=self.model.config.get_text_config(decoder=True))

    def live(self, context: int = 256) -> Live:
        live = Live(self.model, Slot(self.layout, context, CPU), self.layout, CPU, "root", "print")
        live.reset()
        return live

    def read(self, live: Live, ids: list[int]) -> torch.Tensor:
        """Feed `ids` in chunks that end at block edges."""
        logits = None
        while ids:
            n = BLOCK - live.position % BLOCK
            logits, ids = live.feed(ids[:n]), ids[n:]
        assert logits is not None
        return logits

    def records(self, live: Live) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Copies of all full blocks and of the state at the live position."""
        blocks = []
        for i in range(live.position // BLOCK):
            blocks.append(torch.empty(self.layout.block_bytes, dtype=torch.uint8))
            live.slot.save_block(i, blocks[-1])
        state = torch.empty(self.layout.checkpoint_bytes(live.position), dtype=torch.uint8)
        live.slot.save_checkpoint(live.position, state)
        return blocks, state

    def restored(self, live: Live, ids: list[int], blocks: list[torch.Tensor], state: torch.Tensor) -> Live:
        for i, block in enumerate(blocks):
            live.slot.load_block(i, block)
        live.slot.load_checkpoint(len(ids), state)
        live.adopt(ids, ["name"] * len(blocks))
        return live


def answer(live: Live, token: int, n: int = 20) -> torch.Tensor:
    """The logits of `n` greedy steps."""
    out = []
    for _ in range(n):
        out.append(live.feed([token]))
        token = int(out[-1].argmax())
    return torch.stack(out)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_slot_computes_what_transformers_own_cache_computes(name, dtype):
    """Fed in the same chunks, slot and DynamicCache give the same bits: the slot adds no arithmetic of its own."""
    bench = Bench(name, dtype)
    live, cache, ids = bench.live(), bench.own_cache(), token_ids(100, 1)
    with torch.inference_mode():
        for start in range(0, 100, BLOCK):
            part = ids[start : start + BLOCK]
            found = live.feed(part)
            expected = bench.model(torch.tensor([part]), cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
            assert torch.equal(found, expected)


@pytest.mark.parametrize("name", KINDS)
def test_a_fresh_slot_of_another_size_goes_on_bit_for_bit(name):
    """Records carry the whole state: neither the slot they came from nor its length matters."""
    bench, ids = Bench(name), token_ids(100, 2)
    live = bench.live()
    token = int(bench.read(live, ids).argmax())
    other = bench.restored(bench.live(512), ids, *bench.records(live))
    assert torch.equal(answer(other, token), answer(live, token))


@pytest.mark.parametrize("name", KINDS)
def test_what_lay_in_the_slot_before_does_not_matter(name):
    """A used slot, and one full of garbage, take a conversation in as a fresh one does; a prefill from zero does too."""
    bench, ids = Bench(name), token_ids(100, 3)
    live = bench.live()
    token = int(bench.read(live, ids).argmax())
    records = bench.records(live)
    expected = answer(live, token)
    assert torch.equal(answer(bench.restored(live, ids, *records), token), expected)
    for region in (*live.slot.regions.slabs, *live.slot.regions.states):
        region.fill_(7.0)
    live.reset()
    assert int(bench.read(live, ids).argmax()) == token
    assert torch.equal(answer(live, token), expected)


@pytest.mark.parametrize("name", ["qwen3_next", "falcon_h1", "mamba2", "lfm2"])
def test_a_restored_state_is_used(name):
    """The flags of recurrent layers are set with the states: a chunk after the restore must not start from nothing."""
    bench, ids, more = Bench(name), token_ids(40, 4), token_ids(10, 5)
    live = bench.live()
    bench.read(live, ids)
    records = bench.records(live)
    expected = live.feed(more)
    other = bench.restored(bench.live(), ids, *records)
    for layer in other.slot.cache.layers:
        assert all(getattr(layer, "has_previous_state", {0: True}).values())
    assert torch.equal(other.feed(more), expected)


@pytest.mark.parametrize("name", ["llama", "mistral", "falcon_h1"])
def test_a_new_slot_holds_zeros(name):
    """Uninitialised memory may hold NaN, and NaN in a masked tail poisons softmax."""
    slot = Bench(name).live().slot
    assert all(not region.any() for region in (*slot.regions.slabs, *slot.regions.states))


def test_nan_behind_the_end_is_never_seen():
    """Only rows up to the position are handed out, so nothing that lies behind them can reach the logits."""
    bench, ids = Bench("llama"), token_ids(40, 6)
    live = bench.live()
    expected = bench.read(live, ids)
    for slab in live.slot.regions.slabs:
        slab[:, :, 20:].fill_(float("nan"))
    live.reset()
    assert torch.equal(bench.read(live, ids), expected)


@pytest.mark.parametrize("name", KINDS)
def test_addresses_never_change(name):
    """Regions stay where they are through prefill, decode and restore: captured graphs rely on it, and no token allocates."""
    bench, ids = Bench(name), token_ids(50, 7)
    live = bench.live()
    before = [region.data_ptr() for region in (*live.slot.regions.slabs, *live.slot.regions.states)]
    bench.read(live, ids)
    answer(live, 5)
    records = bench.records(live)
    bench.restored(live, live.ids, *records)
    answer(live, 5)
    assert [region.data_ptr() for region in (*live.slot.regions.slabs, *live.slot.regions.states)] == before
    held = [tensor for layer in live.slot.cache.layers for tensor in getattr(layer, "recurrent_states", {}).values()]
    assert {tensor.data_ptr() for tensor in held if tensor is not None} <= set(before)


@pytest.mark.parametrize("name", ["mistral", "gemma3_text", "gpt_oss", "llama4_text"])
def test_sliding_memory(name):
    """At 8 windows of tokens a sliding layer takes no more than its window and one chunk."""
    bench = Bench(name)
    n_tokens = 8 * tiny.WINDOW
    live = bench.live(2 * n_tokens)
    bench.read(live, token_ids(n_tokens, 8))
    a_row = sum(slab.token_bytes for slab in bench.layout.sliding_slabs)
    assert live.slot.sliding_bytes == pytest.approx(a_row * (tiny.WINDOW + BLOCK), rel=0.10)
    expected = bench.layout.token_bytes * n_tokens + a_row * (tiny.WINDOW + BLOCK)
    assert live.used_bytes == pytest.approx(expected, rel=0.10)


def test_an_untouched_context_takes_no_memory():
    """On CPU a slot for a very long context costs address space only."""
    bench = Bench("llama")
    live = bench.live(4_000_000)
    assert live.slot.n_bytes > 3 << 30
    assert live.used_bytes == 0
    bench.read(live, token_ids(40, 9))
    assert live.used_bytes == 40 * bench.layout.token_bytes
