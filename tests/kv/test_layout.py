"""Layouts: sizes, offsets and grouping of every mix of layer kinds."""

import math

from hypothesis import given
from hypothesis import strategies as st

from localkv.kv.layout import DTYPE_BYTES, Kind, Layer, Layout, Rows, State

ROWS = st.builds(Rows, st.integers(1, 4), st.sampled_from([8, 16, 64]), st.sampled_from(["BF16", "F32"]))
CONV, SSM = State("conv", (4, 3), "BF16"), State("ssm", (2, 8, 4), "F32")
STATES = st.sampled_from([(CONV,), (SSM,), (CONV, SSM)])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any mix of full, sliding, recurrent, combined and empty layers."""
    layers = []
    for index in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(list(Kind)))
        rows = kind in (Kind.FULL, Kind.SLIDING, Kind.BOTH)
        states = draw(STATES) if kind in (Kind.RECURRENT, Kind.BOTH) else ()
        keys, values = (draw(ROWS), draw(ROWS)) if rows else (None, None)
        window = draw(st.integers(2, 40)) if kind is Kind.SLIDING else None
        layers.append(Layer(index, keys, values, window, states))
    return Layout(tuple(layers), draw(st.sampled_from([16, 32])))


@given(layouts(), st.integers(0, 100))
def test_tensors_stand_one_after_the_other(layout, position):
    """A record's payload has no hole and no overlap, and its length is what its tensors add up to."""
    for segments, total in (
        (layout.block_segments(), layout.block_bytes),
        (layout.checkpoint_segments(position), layout.checkpoint_bytes(position)),
    ):
        offset = 0
        for segment in segments:
            assert segment.offset == offset
            assert segment.n_bytes == math.prod(segment.shape) * DTYPE_BYTES[segment.dtype] > 0
            offset += segment.n_bytes
        assert offset == total
        assert len({segment.name for segment in segments}) == len(segments)


@given(layouts(), st.integers(0, 400))
def test_no_checkpoint_is_larger_than_its_size_class(layout, position):
    """Every checkpoint fits the places that are made for checkpoints, and the largest one fills them."""
    assert layout.checkpoint_bytes(position) <= layout.max_checkpoint_bytes
    widest = max([slab.window or 1 for slab in layout.slabs], default=1)
    fullest = (widest // layout.block_tokens + 2) * layout.block_tokens - 1
    assert layout.checkpoint_bytes(fullest) == layout.max_checkpoint_bytes


@given(layouts())
def test_slabs_gather_equal_rows(layout):
    """Each K and V belongs to exactly one slab, of its own window, heads, dim and dtype; full slabs come first."""
    entries = [entry for slab in layout.slabs for entry in slab.entries]
    wanted = [(layer.index, part) for layer in layout.layers if layer.keys for part in ("k", "v")]
    assert sorted(entries) == sorted(wanted)
    for slab in layout.slabs:
        for index, part in slab.entries:
            layer = layout.layers[index]
            rows = layer.keys if part == "k" else layer.values
            assert (slab.window, slab.heads, slab.dim, slab.dtype) == (layer.window, rows.heads, rows.dim, rows.dtype)
    keys = [(slab.window, slab.heads, slab.dim, slab.dtype) for slab in layout.slabs]
    assert len(set(keys)) == len(keys)
    assert layout.slabs == layout.full_slabs + layout.sliding_slabs


def test_a_plain_model_costs_what_the_formula_says():
    """2 x layers x kv heads x head dim x bytes per token, all of it in one slab; any block edge is a place to resume."""
    layout = Layout(tuple(Layer(i, Rows(3, 64, "BF16"), Rows(3, 64, "BF16")) for i in range(30)), 256)
    assert layout.token_bytes == 2 * 30 * 3 * 64 * 2
    assert layout.block_bytes == 256 * layout.token_bytes
    assert [len(slab.entries) for slab in layout.slabs] == [60]
    assert layout.only_full
    assert layout.checkpoint_segments(512) == ()


def test_each_kind_keeps_what_a_resume_needs():
    """A checkpoint holds the tail of full layers, the last W-1 tokens of sliding ones, and every recurrent state."""
    rows = Rows(2, 8, "F32")
    layout = Layout(
        (
            Layer(0, rows, rows),
            Layer(1, rows, rows, window=8),
            Layer(2, states=(State("ssm", (4, 4), "F32"),)),
            Layer(3, rows, rows, states=(State("conv", (6,), "BF16"),)),
            Layer(4),
        ),
        16,
    )
    assert [layer.kind for layer in layout.layers] == [Kind.FULL, Kind.SLIDING, Kind.RECURRENT, Kind.BOTH, Kind.NONE]
    assert not layout.only_full
    assert {s.name: s.shape for s in layout.checkpoint_segments(21)} == {
        "layers.0.k": (2, 5, 8), "layers.0.v": (2, 5, 8), "layers.3.k": (2, 5, 8), "layers.3.v": (2, 5, 8),
        "layers.1.k": (2, 7, 8), "layers.1.v": (2, 7, 8), "layers.2.ssm": (4, 4), "layers.3.conv": (6,),
    }  # fmt: skip
    assert {s.name for s in layout.block_segments()} == {"layers.0.k", "layers.0.v", "layers.3.k", "layers.3.v"}
    assert {s.shape[1] for s in layout.checkpoint_segments(3) if s.name.startswith("layers.1")} == {3}
    assert [layout.tail_start(position) for position in (0, 15, 16, 21)] == [0, 0, 16, 16]
