"""The slot: the workspace in device memory where the model runs, and copies between it and record payloads.

Knows the layout and torch; knows nothing of names, tiers or conversations. Thread: the engine's, which alone touches the
slot. Payloads are one-dimensional uint8 tensors in host memory; the caller owns them and must keep them alive during the call.
After any method returns, its bytes may be read or reused: device copies are waited for.

On CPU the regions are anonymous memory of the full context: pages that no token has touched cost nothing. On CUDA a payload
crosses the bus in one piece into a bounce buffer and is scattered there by one kernel per slab.
"""

import math
import mmap
from collections.abc import Iterator

import torch
from transformers.cache_utils import Cache

from localkv.kv.kinds import TORCH_DTYPES, Regions, SlidingRows, build_layers, set_position, sliding_capacity
from localkv.kv.layout import DTYPE_BYTES, Layout, Slab


class Slot:
    """State of one conversation at a time, for at most `context_tokens` tokens."""

    def __init__(self, layout: Layout, context_tokens: int, device: torch.device) -> None:
        self.layout = layout
        # Whole blocks: the last block may then be copied in and out like any other.
        self.context_tokens = math.ceil(context_tokens / layout.block_tokens) * layout.block_tokens
        self.device = device
        self.regions = self._allocate()
        self._layers = build_layers(layout, self.regions)
        self.cache = Cache(layers=self._layers)
        self._bounce = self._bounce_buffer()
        self._n_full = len(layout.full_slabs)

    @property
    def n_bytes(self) -> int:
        """Address space of the regions. On CPU only touched pages take memory."""
        return sum(t.numel() * t.element_size() for t in (*self.regions.slabs, *self.regions.states))

    @property
    def sliding_bytes(self) -> int:
        """Of these, sliding regions."""
        return sum(t.numel() * t.element_size() for t in self.regions.slabs[self._n_full :])

    def reset(self) -> None:
        """Start at token 0. Rows stay as they are: nothing attends to them."""
        for state in self.regions.states:
            state.zero_()
        set_position(self._layers, 0)

    def move_to(self, position: int) -> None:
        """All state up to `position` has been copied in, or, with full attention alone, was there before; go on from there."""
        set_position(self._layers, position)

    def load_block(self, index: int, payload: torch.Tensor) -> None:
        """Copy block `index` in."""
        start = index * self.layout.block_tokens
        self._load_rows(self._stage(payload), start, self.layout.block_tokens)
        self._wait()

    def load_checkpoint(self, position: int, payload: torch.Tensor) -> None:
        """Copy the checkpoint at `position` in and go on from there. The blocks before it must be there."""
        staged = self._stage(payload)
        start = self.layout.tail_start(position)
        offset = self._load_rows(staged, start, position - start)
        for slab, region in self._sliding():
            kept = min(position, (slab.window or 1) - 1)
            n_bytes = slab.token_bytes * kept
            shape = (region.shape[0], region.shape[1], kept, region.shape[3])
            region[:, :, :kept].copy_(staged[offset : offset + n_bytes].view(region.dtype).view(shape))
            offset += n_bytes
        for state in self.regions.states:
            n_bytes = state.numel() * state.element_size()
            state.copy_(staged[offset : offset + n_bytes].view(state.dtype).view(state.shape))
            offset += n_bytes
        set_position(self._layers, position)
        self._wait()

    def save_block(self, index: int, payload: torch.Tensor) -> None:
        """Copy block `index` out. All its tokens must have been fed."""
        start = index * self.layout.block_tokens
        staged = self._staging_for(payload)
        self._save_rows(staged, start, self.layout.block_tokens)
        self._deliver(staged, payload)

    def save_checkpoint(self, position: int, payload: torch.Tensor) -> None:
        """Copy the state at `position`, the slot's present position, out."""
        staged = self._staging_for(payload)
        start = self.layout.tail_start(position)
        offset = self._save_rows(staged, start, position - start)
        for (slab, region), first in zip(self._sliding(), self._window_starts(), strict=True):
            kept = min(position, (slab.window or 1) - 1)
            n_bytes = slab.token_bytes * kept
            shape = (region.shape[0], region.shape[1], kept, region.shape[3])
            staged[offset : offset + n_bytes].view(region.dtype).view(shape).copy_(region[:, :, first : first + kept])
            offset += n_bytes
        for state in self.regions.states:
            n_bytes = state.numel() * state.element_size()
            staged[offset : offset + n_bytes].view(state.dtype).view(state.shape).copy_(state)
            offset += n_bytes
        self._deliver(staged, payload)

    def _load_rows(self, staged: torch.Tensor, start: int, n_tokens: int) -> int:
        offset = 0
        for slab, region in zip(self.layout.full_slabs, self.regions.slabs, strict=False):
            n_bytes = slab.token_bytes * n_tokens
            shape = (region.shape[0], region.shape[1], n_tokens, region.shape[3])
            if n_tokens:
                region[:, :, start : start + n_tokens].copy_(staged[offset : offset + n_bytes].view(region.dtype).view(shape))
            offset += n_bytes
        return offset

    def _save_rows(self, staged: torch.Tensor, start: int, n_tokens: int) -> int:
        offset = 0
        for slab, region in zip(self.layout.full_slabs, self.regions.slabs, strict=False):
            n_bytes = slab.token_bytes * n_tokens
            shape = (region.shape[0], region.shape[1], n_tokens, region.shape[3])
            if n_tokens:
                staged[offset : offset + n_bytes].view(region.dtype).view(shape).copy_(region[:, :, start : start + n_tokens])
            offset += n_bytes
        return offset

    def _sliding(self) -> Iterator[tuple[Slab, torch.Tensor]]:
        return zip(self.layout.sliding_slabs, self.regions.slabs[self._n_full :], strict=True)

    def _window_starts(self) -> list[int]:
        """Where the window begins in each sliding region; all layers of a slab move in step."""
        by_layer = {i: layer.rows for i, layer in enumerate(self._layers) if hasattr(layer, "rows")}
        starts = []
        for slab in self.layout.sliding_slabs:
            rows = by_layer[slab.entries[0][0]]
            assert isinstance(rows, SlidingRows)
            starts.append(rows.window_start())
        return starts

    def _allocate(self) -> Regions:
        slabs = []
        for slab in self.layout.slabs:
            cap = self.context_tokens if slab.window is None else sliding_capacity(slab, self.layout.block_tokens)
            slabs.append(_zeros((len(slab.entries), slab.heads, cap, slab.dim), slab.dtype, self.device))
        states = [_zeros((1, *state.shape), state.dtype, self.device) for _, state in self.layout.states]
        return Regions(tuple(slabs), tuple(states))

    def _bounce_buffer(self) -> torch.Tensor | None:
        if self.device.type == "cpu":
            return None
        size = max(self.layout.block_bytes, self.layout.max_checkpoint_bytes, 1)
        return torch.zeros(size, dtype=torch.uint8, device=self.device)

    def _stage(self, payload: torch.Tensor) -> torch.Tensor:
        """`payload` where the device can read it fast: on CPU itself, else the bounce buffer after one copy."""
        if self._bounce is None:
            return payload
        staged = self._bounce[: payload.numel()]
        staged.copy_(payload, non_blocking=True)
        return staged

    def _staging_for(self, payload: torch.Tensor) -> torch.Tensor:
        return payload if self._bounce is None else self._bounce[: payload.numel()]

    def _deliver(self, staged: torch.Tensor, payload: torch.Tensor) -> None:
        if staged is not payload:
            payload.copy_(staged, non_blocking=True)
        self._wait()

    def _wait(self) -> None:
        # The bytes are hashed, written or reused by other threads next: an unfinished copy would be read as garbage.
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        elif self.device.type == "mps":
            torch.mps.synchronize()


def _zeros(shape: tuple[int, ...], dtype: str, device: torch.device) -> torch.Tensor:
    """Zeros that take memory only when touched, where the platform can: torch.zeros would commit a CPU region at once."""
    n_bytes = math.prod(shape) * DTYPE_BYTES[dtype]
    if device.type != "cpu" or n_bytes == 0:
        return torch.zeros(shape, dtype=TORCH_DTYPES[dtype], device=device)
    region = mmap.mmap(-1, n_bytes)
    return torch.frombuffer(region, dtype=TORCH_DTYPES[dtype]).view(shape)
