"""Cache layers that write in place into a slot, one adapter per kind of state, over transformers' own layer classes.

Knows transformers' cache interface and torch; knows nothing of records, tiers or conversations. Thread: the engine's.
Attention rows and recurrent states are two separate adapters; a layer that keeps both composes them, so a new kind is one more
adapter. transformers calls `update`, `get_mask_sizes` and `get_seq_length`; localkv sets lengths when it restores.

    kind       transformers' layer        what a resume at token n needs
    full       DynamicLayer               all rows 0..n
    sliding    DynamicSlidingWindowLayer  the last W - 1 rows, and n itself: positions and masks come from the counter
    recurrent  LinearAttentionLayer       one state exactly at n, and its flags: without `has_previous_state` the next update
                                          takes the restored state for a fresh prefill and nothing complains
    both       LinearAttentionAnd...      both of the above
    none       DummyLayer                 nothing

A sliding region holds W - 1 rows plus one chunk. Rows are appended; when the region is full the last W - 1 move to its
front. What `update` returns are exactly the rows that transformers' own layer returns.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

from localkv.errors import ModelError
from localkv.kv.layout import Layer, Layout, Rows, Slab, State

TORCH_DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


class UnknownKind(ModelError):
    """A layer keeps state of a kind that has no adapter; the model runs uncached."""

    def __init__(self, layer: int, kind: str) -> None:
        super().__init__(f"layer {layer} keeps its state in a {kind}, which cannot be cached; the model runs without a cache")
        self.layer = layer
        self.kind = kind


def read_layout(cache: Cache, block_tokens: int) -> Layout:
    """The Layout of the model that just filled `cache`, transformers' own DynamicCache, in a probe forward.

    Shapes come from what was really stored and not from the config: heads and dims differ between layers of one model and
    some configs refuse to name them. Raises UnknownKind.
    """
    return Layout(tuple(_read_layer(i, layer) for i, layer in enumerate(cache.layers)), block_tokens)


def _read_layer(index: int, layer: Any) -> Layer:
    if isinstance(layer, DummyLayer):
        return Layer(index)
    known = isinstance(layer, DynamicLayer | LinearAttentionLayer) and not isinstance(layer, DynamicIndexedLayer)
    if not known or getattr(layer, "_layer_type", None) is not None:
        raise UnknownKind(index, type(layer).__name__)
    states = _read_states(layer) if isinstance(layer, LinearAttentionCacheLayerMixin) else ()
    if not isinstance(layer, DynamicLayer) or not layer.is_initialized:
        return Layer(index, states=states)
    window = layer.sliding_window if isinstance(layer, DynamicSlidingWindowLayer) else None
    assert layer.keys is not None
    assert layer.values is not None
    return Layer(index, _read_rows(layer.keys), _read_rows(layer.values), window, states)


def _read_rows(tensor: torch.Tensor) -> Rows:
    return Rows(tensor.shape[1], tensor.shape[3], _DTYPE_NAMES[tensor.dtype])


def _read_states(layer: Any) -> tuple[State, ...]:
    states = []
    for part, tensors in (("conv", layer.conv_states), ("recurrent", layer.recurrent_states)):
        for i, tensor in tensors.items():
            if tensor is not None:
                states.append(State(f"{part}{i}", tuple(tensor.shape[1:]), _DTYPE_NAMES[tensor.dtype]))
    return tuple(states)


class FullRows:
    """Rows of all tokens, in place: `keys` [1, H, MAX, Dk] and `values` [1, H, MAX, Dv] are views of the slot."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values = keys, values
        self.length = 0

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the rows of new tokens; returns all rows to attend to."""
        end = self.length + keys.shape[2]
        self.keys[:, :, self.length : end].copy_(keys)
        self.values[:, :, self.length : end].copy_(values)
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def mask_sizes(self, n_queries: int) -> tuple[int, int]:
        """(rows that `append` will return, position of the first of them)."""
        return self.length + n_queries, 0

    def restore(self, position: int) -> None:
        """The rows 0..position have been copied in; go on from there."""
        self.length = position


class SlidingRows(FullRows):
    """The last W - 1 rows and the newest chunk. `held` rows lie at the front of the region."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, window: int) -> None:
        super().__init__(keys, values)
        self.window = window
        self.held = 0

    def append(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the rows of new tokens; returns the kept W - 1 rows and the new ones."""
        n_new = keys.shape[2]
        kept = min(self.held, self.window - 1)
        self.length += n_new
        if kept + n_new > self.keys.shape[2]:
            return self._append_long(kept, keys, values)
        if self.held + n_new > self.keys.shape[2]:
            self._move_to_front(kept)
        first, end = self.held - kept, self.held + n_new
        self.keys[:, :, self.held : end].copy_(keys)
        self.values[:, :, self.held : end].copy_(values)
        self.held = end
        return self.keys[:, :, first:end], self.values[:, :, first:end]

    def _append_long(self, kept: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A chunk longer than the region: attended to beside it, and only its last W - 1 rows are stored."""
        seen = []
        for region, new in ((self.keys, keys), (self.values, values)):
            rows = torch.cat((region[:, :, self.held - kept : self.held], new), dim=2)
            stored = min(rows.shape[2], self.window - 1)
            region[:, :, :stored].copy_(rows[:, :, rows.shape[2] - stored :])
            seen.append(rows)
        self.held = min(seen[0].shape[2], self.window - 1)
        return seen[0], seen[1]

    def _move_to_front(self, kept: int) -> None:
        # The source and target may overlap: copy through a clone.
        for region in (self.keys, self.values):
            region[:, :, :kept].copy_(region[:, :, self.held - kept : self.held].clone())
        self.held = kept

    def mask_sizes(self, n_queries: int) -> tuple[int, int]:
        """(rows that `append` will return, position of the first of them)."""
        kept = min(self.length, self.window - 1)
        return kept + n_queries, self.length - kept

    def window_start(self) -> int:
        """The index in the region of the first of the last min(length, W - 1) rows."""
        return self.held - min(self.length, self.window - 1)

    def restore(self, position: int) -> None:
        """The last min(position, W - 1) rows have been copied to the front of the region; go on from `position`."""
        self.length = position
        self.held = min(position, self.window - 1)


class _RowsLayer(CacheLayerMixin):
    """What transformers sees of rows: its cache-layer interface over a FullRows or SlidingRows."""

    is_compileable = False
    is_croppable = False  # localkv never calls crop: it sets lengths

    def __init__(self, rows: FullRows) -> None:
        CacheLayerMixin.__init__(self)
        self.rows = rows
        self.is_sliding = isinstance(rows, SlidingRows)
        self.keys, self.values = rows.keys, rows.values
        self.device, self.dtype = rows.keys.device, rows.keys.dtype
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the region exists from the start."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by the attention module."""
        return self.rows.append(key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Called when masks are built."""
        return self.rows.mask_sizes(query_length)

    def get_seq_length(self) -> int:
        """Called when positions are computed."""
        return self.rows.length

    def get_max_length(self) -> int:
        """-1: a slot does not announce its size, so that transformers treats it as a dynamic cache."""
        return -1


class _StatesLayer(LinearAttentionLayer):
    """transformers' recurrent layer over state tensors that exist from the start and keep their address."""

    def __init__(self, states: Sequence[tuple[State, torch.Tensor]]) -> None:
        numbered = [(*_split_name(state.name), tensor) for state, tensor in states]
        LinearAttentionLayer.__init__(self, number_of_states=1 + max(i for _, i, _ in numbered))
        for part, i, tensor in numbered:
            if part == "conv":
                self.conv_states[i] = tensor
                self.is_conv_states_initialized[i] = True
                self.conv_kernel_size[i] = tensor.shape[-1]
            else:
                self.recurrent_states[i] = tensor
                self.is_recurrent_states_initialized[i] = True
            # transformers declares both as None and sets them later, as is done here
            self.device, self.dtype = tensor.device, tensor.dtype  # type: ignore[assignment]

    def restore_states(self, position: int) -> None:
        """The states at `position` have been copied in (0: zeroed); set the flags that say so."""
        for i in self.has_previous_state:
            self.has_previous_state[i] = position > 0


def _split_name(name: str) -> tuple[str, int]:
    """("conv", 0) of "conv0"."""
    match = re.fullmatch(r"(conv|recurrent)(\d+)", name)
    assert match is not None, name
    return match[1], int(match[2])


class _BothLayer(_StatesLayer, _RowsLayer):  # type: ignore[misc, override]  # transformers' two families declare these apart
    """Rows and states in one layer."""

    def __init__(self, rows: FullRows, states: Sequence[tuple[State, torch.Tensor]]) -> None:
        _RowsLayer.__init__(self, rows)
        keys, values = self.keys, self.values
        _StatesLayer.__init__(self, states)
        self.keys, self.values = keys, values

    def lazy_initialization(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing to do: regions and states exist from the start."""


@dataclass(frozen=True)
class Regions:
    """The memory of a slot: one tensor [G, H, CAP, D] per slab, one [1, ...] per recurrent state, all zero-filled.

    Zero-filled because NaN in a masked tail poisons softmax; finite garbage there is harmless.
    """

    slabs: tuple[torch.Tensor, ...]
    states: tuple[torch.Tensor, ...]


def sliding_capacity(slab: Slab, chunk: int) -> int:
    """Rows of a sliding region: W - 1 and one chunk."""
    return (slab.window or 1) - 1 + chunk


def build_layers(layout: Layout, regions: Regions) -> list[Any]:
    """transformers cache layers, one per model layer, over `regions`."""
    views: dict[tuple[int, str], torch.Tensor] = {}
    for slab, tensor in zip(layout.slabs, regions.slabs, strict=True):
        for g, entry in enumerate(slab.entries):
            views[entry] = tensor[g : g + 1]
    states: dict[int, list[tuple[State, torch.Tensor]]] = {}
    for (index, state), tensor in zip(layout.states, regions.states, strict=True):
        states.setdefault(index, []).append((state, tensor))
    return [_build_layer(layer, views, states.get(layer.index, [])) for layer in layout.layers]


def _build_layer(layer: Layer, views: dict[tuple[int, str], torch.Tensor], states: list[tuple[State, torch.Tensor]]) -> Any:
    if layer.keys is None:
        return _StatesLayer(states) if states else DummyLayer()
    keys, values = views[layer.index, "k"], views[layer.index, "v"]
    rows = FullRows(keys, values) if layer.window is None else SlidingRows(keys, values, layer.window)
    return _BothLayer(rows, states) if states else _RowsLayer(rows)


def set_position(layers: Sequence[Any], position: int) -> None:
    """Tell every layer that its state is now that at `position`."""
    for layer in layers:
        if isinstance(layer, _RowsLayer):
            layer.rows.restore(position)
        if isinstance(layer, _StatesLayer):
            layer.restore_states(position)
