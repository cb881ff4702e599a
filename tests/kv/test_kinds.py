"""Cache layers: what they return is what transformers' own layers return, and a restored one goes on as if it had never stopped."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache
from transformers.cache_utils import DynamicIndexedLayer, DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

from localkv.commands.bench import tiny
from localkv.errors import ModelError
from localkv.kv.kinds import FullRows, SlidingRows, UnknownKind, read_layout
from localkv.kv.layout import Kind

WINDOW = 8
CHUNK = 6


def rows(n: int, start: int = 0) -> torch.Tensor:
    """[1, 2 heads, n, 3]: every row says which token it is of."""
    return torch.arange(start, start + n, dtype=torch.float32).view(1, 1, n, 1).expand(1, 2, n, 3).contiguous()


def sliding(cap: int = WINDOW - 1 + CHUNK) -> SlidingRows:
    return SlidingRows(torch.zeros(1, 2, cap, 3), torch.zeros(1, 2, cap, 3), WINDOW)


def layout_of(name: str, **changes):
    model = tiny.build_model(name, **changes)
    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    with torch.inference_mode():
        model(torch.zeros((1, 2), dtype=torch.long), cache=cache, use_cache=True)
    return read_layout(cache, 16)


@given(st.lists(st.integers(1, 3 * WINDOW), min_size=1, max_size=12))
def test_sliding_rows_return_what_transformers_returns(chunks):
    """Whatever the chunks, also longer than the region: rows, mask sizes and length are those of transformers' own layer."""
    ours, theirs, start = sliding(), DynamicSlidingWindowLayer(sliding_window=WINDOW), 0
    for n in chunks:
        assert ours.mask_sizes(n) == theirs.get_mask_sizes(n)
        found = ours.append(rows(n, start), -rows(n, start))
        expected = theirs.update(rows(n, start), -rows(n, start))
        assert all(map(torch.equal, found, expected))
        start += n
        assert ours.length == theirs.get_seq_length() == start


@given(st.lists(st.integers(1, CHUNK), min_size=1, max_size=12), st.lists(st.integers(1, CHUNK), min_size=1, max_size=6))
def test_a_restored_window_goes_on_as_if_it_had_never_stopped(before, after):
    """The position is restored beside the rows: filled through `update`, the counter would say W - 1 and no one would complain."""
    whole, restored = sliding(), sliding()
    start = 0
    for n in before:
        whole.append(rows(n, start), -rows(n, start))
        start += n
    kept, first = min(start, WINDOW - 1), whole.window_start()
    restored.keys[:, :, :kept] = whole.keys[:, :, first : first + kept]
    restored.values[:, :, :kept] = whole.values[:, :, first : first + kept]
    restored.restore(start)
    assert restored.length == start
    for n in after:
        assert restored.mask_sizes(n) == whole.mask_sizes(n)
        found, expected = (each.append(rows(n, start), -rows(n, start)) for each in (restored, whole))
        assert all(map(torch.equal, found, expected))
        start += n


def test_the_counter_trap_is_real():
    """transformers' own layer, restored by `update`, forgets its position: the reason why localkv sets the counter."""
    whole, again = (DynamicSlidingWindowLayer(sliding_window=WINDOW) for _ in range(2))
    whole.update(rows(30), rows(30))
    again.update(whole.keys, whole.values)
    assert whole.get_seq_length() == 30
    assert again.get_seq_length() == WINDOW - 1


def test_full_rows_are_written_in_place():
    """No token re-allocates the region, and what is returned are views of it."""
    region = torch.zeros(1, 2, 32, 3)
    full = FullRows(region, torch.zeros(1, 2, 32, 3))
    for start in range(5):
        keys, _ = full.append(rows(1, start), rows(1, start))
        assert keys.data_ptr() == region.data_ptr()
    assert torch.equal(region[:, :, :5], rows(5))
    assert torch.equal(region[:, :, 5:], torch.zeros(1, 2, 27, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("llama", "FFFF"),
        ("mistral", "SSSS"),
        ("gemma3_text", "SFSF"),
        ("gemma3n_text", "SFNN"),
        ("gemma4_text", "SFNN"),
        ("llama4_text", "SSSF"),
        ("qwen3_next", "RRRF"),
        ("lfm2", "RFRF"),
        ("falcon_h1", "BBBB"),
        ("mamba2", "RRR"),
        ("nemotron_h", "RFRN"),
    ],
)
def test_kinds_are_read_from_a_probe(name, kinds):
    """Every kind of layer is recognised, shared and stateless layers too, from what the model stored and not from its config."""
    letters = {Kind.FULL: "F", Kind.SLIDING: "S", Kind.RECURRENT: "R", Kind.BOTH: "B", Kind.NONE: "N"}
    assert "".join(letters[layer.kind] for layer in layout_of(name).layers) == kinds


def test_heads_and_dims_may_differ_between_layers():
    """Gemma 4 has other head dims in its full layers, and its config refuses to say: shapes come from the probe."""
    layout = layout_of("gemma4_text")
    assert [layer.keys.dim for layer in layout.layers if layer.keys] == [16, 32]
    assert layout.sliding_slabs[0].window == tiny.WINDOW


def test_keys_and_values_may_differ():
    """DeepSeek's values are narrower than its keys: two slabs."""
    layout = layout_of("deepseek_v3")
    assert [(slab.dim, [part for _, part in slab.entries]) for slab in layout.slabs] == [(16, ["k", "k"]), (8, ["v", "v"])]


def test_an_unknown_kind_is_refused_by_name():
    """A layer that keeps more than its base class would be restored in part: it must be refused, however it is derived."""

    class Compressed(DynamicLayer):
        _layer_type = None

    cache = DynamicCache()
    cache.layers = [DynamicLayer(), DynamicIndexedLayer()]
    cache.layers[0].update(rows(2), rows(2))
    with pytest.raises(UnknownKind, match="layer 1 keeps its state in a DynamicIndexedLayer") as caught:
        read_layout(cache, 16)
    assert isinstance(caught.value, ModelError)
    assert caught.value.kind == "DynamicIndexedLayer"
    Compressed._layer_type = "compressed"
    cache.layers = [Compressed()]
    with pytest.raises(UnknownKind, match="Compressed"):
        read_layout(cache, 16)


def test_the_flag_trap_is_real():
    """Without `has_previous_state` transformers takes a restored state for a fresh one and does not use it."""
    first, second = torch.ones(1, 4, 3), torch.full((1, 4, 2), 2.0)
    told, untold = LinearAttentionLayer(), LinearAttentionLayer()
    for layer in (told, untold):
        layer.update_conv_state(first, conv_kernel_size=3)
    untold.has_previous_state[0] = False
    assert told.update_conv_state(second).shape[-1] == 5
    assert untold.update_conv_state(second).shape[-1] == 3
