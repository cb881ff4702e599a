"""What a model's state looks like: per layer which rows and states, and where each lies in a record.

Knows shapes and dtypes as numbers and names; never imports torch. Pure.

Tensor legend, used everywhere: L layers, H kv heads, T tokens, D head dim (K and V may differ, per layer), S tokens per
block, W sliding window, G entries of a slab. Order is transformers' own: [H, T, D].

A *slab* gathers the K and V rows of all layers that share (windowed or not, H, D, dtype): in the slot it is one tensor
[G, H, CAP, D], in a record the same entries stand one after the other, so that moving a record is one strided copy per
slab and not one per layer and part (60 small copies cost more than the bytes of a small model).

    block       = for each full slab:      [G, H, S, D]
    checkpoint  = for each full slab:      [G, H, t, D]   t = position % S, the tokens since the last block edge
                  for each sliding slab:   [G, H, w, D]   w = min(position, W - 1)
                  for each recurrent state: its fixed shape
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

DTYPE_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
"""safetensors' names of the dtypes that may occur in a state, and their sizes."""

FORMAT_VERSION = 1
"""Of names, headers and payload order. Part of every identity."""


class Kind(StrEnum):
    """What a layer keeps between tokens."""

    FULL = "full"
    SLIDING = "sliding"
    RECURRENT = "recurrent"
    BOTH = "both"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Rows:
    """One part (K or V) of a layer's attention: a row [H, D] per token."""

    heads: int
    dim: int
    dtype: str

    @property
    def token_bytes(self) -> int:
        return self.heads * self.dim * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent or convolution state of fixed shape, batch dimension left out."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps. `window` is W of a sliding layer, None where all tokens are kept."""

    index: int
    keys: Rows | None = None
    values: Rows | None = None
    window: int | None = None
    states: tuple[State, ...] = ()

    @property
    def kind(self) -> Kind:
        """What the layer keeps, as one word."""
        if self.keys is None:
            return Kind.RECURRENT if self.states else Kind.NONE
        if self.states:
            return Kind.BOTH
        return Kind.FULL if self.window is None else Kind.SLIDING


@dataclass(frozen=True, slots=True)
class Slab:
    """Rows of equal shape, gathered over layers. `entries` are (layer, "k" | "v") in payload order."""

    window: int | None
    heads: int
    dim: int
    dtype: str
    entries: tuple[tuple[int, str], ...]

    @property
    def token_bytes(self) -> int:
        """Bytes that one token takes in all entries."""
        return len(self.entries) * self.heads * self.dim * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Segment:
    """One tensor of a record: its name, dtype, shape, and where its bytes lie in the payload."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class Layout:
    """The state of one model, for one block length."""

    layers: tuple[Layer, ...]
    block_tokens: int

    @cached_property
    def slabs(self) -> tuple[Slab, ...]:
        """All slabs, full ones first, in the order of their first layer."""
        groups: dict[tuple[int | None, int, int, str], list[tuple[int, str]]] = {}
        for layer in self.layers:
            for part, rows in (("k", layer.keys), ("v", layer.values)):
                if rows is not None:
                    key = (layer.window, rows.heads, rows.dim, rows.dtype)
                    groups.setdefault(key, []).append((layer.index, part))
        slabs = [Slab(window, heads, dim, dtype, tuple(entries)) for (window, heads, dim, dtype), entries in groups.items()]
        return tuple(sorted(slabs, key=lambda slab: slab.window is not None))

    @cached_property
    def full_slabs(self) -> tuple[Slab, ...]:
        return tuple(slab for slab in self.slabs if slab.window is None)

    @cached_property
    def sliding_slabs(self) -> tuple[Slab, ...]:
        return tuple(slab for slab in self.slabs if slab.window is not None)

    @cached_property
    def states(self) -> tuple[tuple[int, State], ...]:
        """(layer, state) of every recurrent state, in payload order."""
        return tuple((layer.index, state) for layer in self.layers for state in layer.states)

    @property
    def only_full(self) -> bool:
        """True if any block edge is a place to resume: nothing but full attention keeps state."""
        return not self.sliding_slabs and not self.states

    @cached_property
    def token_bytes(self) -> int:
        """Bytes that one more token adds to the full-attention part."""
        return sum(slab.token_bytes for slab in self.full_slabs)

    @property
    def block_bytes(self) -> int:
        """Payload of a block; 0 for models that keep no full-attention rows."""
        return self.token_bytes * self.block_tokens

    def checkpoint_bytes(self, position: int) -> int:
        """Payload of the checkpoint at `position`."""
        return sum(segment.n_bytes for segment in self.checkpoint_segments(position))

    @cached_property
    def max_checkpoint_bytes(self) -> int:
        """The largest checkpoint: a whole tail less one token, full windows, all states."""
        tail = self.token_bytes * (self.block_tokens - 1)
        windows = sum(slab.token_bytes * ((slab.window or 1) - 1) for slab in self.sliding_slabs)
        return tail + windows + sum(state.n_bytes for _, state in self.states)

    def tail_start(self, position: int) -> int:
        """The last block edge at or before `position`."""
        return position - position % self.block_tokens

    @cached_property
    def _block_segments(self) -> tuple[Segment, ...]:
        """Kept, because every read of a block compares with them."""
        return tuple(_number(_rows(self.full_slabs, self.block_tokens)))

    def block_segments(self) -> tuple[Segment, ...]:
        """The tensors of a block, in payload order."""
        return self._block_segments

    def checkpoint_segments(self, position: int) -> tuple[Segment, ...]:
        """The tensors of the checkpoint at `position`, in payload order. Empty tensors are left out."""
        return tuple(_number(self._checkpoint_shapes(position)))

    def _checkpoint_shapes(self, position: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        tail = position % self.block_tokens
        if tail:
            yield from _rows(self.full_slabs, tail)
        for slab in self.sliding_slabs:
            kept = min(position, (slab.window or 1) - 1)
            if kept:
                yield from _rows((slab,), kept)
        for layer, state in self.states:
            yield f"layers.{layer}.{state.name}", state.dtype, state.shape


def _rows(slabs: tuple[Slab, ...], n_tokens: int) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for slab in slabs:
        for layer, part in slab.entries:
            yield f"layers.{layer}.{part}", slab.dtype, (slab.heads, n_tokens, slab.dim)


def _number(shapes: Iterator[tuple[str, str, tuple[int, ...]]]) -> Iterator[Segment]:
    """Give each tensor its place: one after the other, no holes, as safetensors asks for."""
    offset = 0
    for name, dtype, shape in shapes:
        n_bytes = math.prod(shape) * DTYPE_BYTES[dtype]
        yield Segment(name, dtype, shape, offset, n_bytes)
        offset += n_bytes
