"""The slot: the workspace in device memory where the model runs, and copies between it and record payloads.

Knows the layout and torch; knows nothing of names, tiers or conversations. Thread: the engine's, which alone touches the
slot. Payloads are one-dimensional uint8 tensors. One in host memory belongs to the caller, who must neither reuse nor read it
before the mark that each copy returns is reached. One on the device itself (`resident`) is copied in the order of the model's work:
it may be given to something else at once.

On CPU the regions are anonymous memory of the full context: pages that no token has touched cost nothing. On a device a payload
crosses the bus in one piece into a staging buffer and is scattered there by one kernel per slab; with several buffers as many
copies are under way at once, and the model waits for none that it does not need.
"""

import math
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers.cache_utils import Cache

from localkv.engine.copier import Copier, Mark, copier_for
from localkv.engine.memory import trim
from localkv.engine.shortage import CANDIDATES, is_shortage, let_go
from localkv.errors import OutOfMemory
from localkv.kv.kinds import TORCH_DTYPES, Regions, SlidingRows, build_layers, set_position, sliding_capacity
from localkv.kv.layout import DTYPE_BYTES, Layout, Slab

IN_FLIGHT = 3
"""Staging buffers, and so copies under way at once: two overlap copying and scattering, a third hides a slow start."""


@dataclass(slots=True)
class Stage:
    """A buffer on the device that payloads pass through."""

    buffer: torch.Tensor
    free: Mark
    """From here on it may be filled anew."""


class Slot:
    """State of one conversation at a time, for at most `context_tokens` tokens."""

    def __init__(self, layout: Layout, context_tokens: int, device: torch.device, copier: Copier | None = None) -> None:
        self.layout = layout
        self.device = device
        self.context_tokens = 0
        self._layers: list[Any] = []
        self._take(context_tokens)
        self.copier = copier or copier_for(device)
        self._stages = self._make_stages()
        self._n_full = len(layout.full_slabs)

    @property
    def n_bytes(self) -> int:
        """Address space of the regions. On CPU only touched pages take memory."""
        return sum(t.numel() * t.element_size() for t in (*self.regions.slabs, *self.regions.states))

    @property
    def sliding_bytes(self) -> int:
        """Of these, sliding regions."""
        return sum(t.numel() * t.element_size() for t in self.regions.slabs[self._n_full :])

    @property
    def staging_bytes(self) -> int:
        """Device memory of the staging buffers."""
        return sum(stage.buffer.numel() for stage in self._stages)

    def resize(self, context_tokens: int) -> None:
        """Room for `context_tokens` from now on, at other addresses; what was in it is gone, and it is at token 0.

        The old memory goes before the new one is taken: both would not fit. Raises OutOfMemory, and then has the size of before; if
        somebody else has taken even that, it has room for nothing.
        """
        self.copier.settle()
        before = self.context_tokens
        self.regions, self.cache = Regions((), ()), Cache(layers=[])
        self._layers.clear()
        trim(self.device)
        lack = self._try_to_take(context_tokens)
        if lack is None:
            return
        if self._try_to_take(before) is not None:
            self.context_tokens = 0  # the next `resize` finds nothing to free, and tries anew
        raise OutOfMemory(context_tokens, 0) from lack

    def _try_to_take(self, context_tokens: int) -> BaseException | None:
        """The error that says that there is no memory for it, if there is none."""
        try:
            self._take(context_tokens)
        except CANDIDATES as error:
            if not is_shortage(error):
                raise
            let_go(error)
            return error
        return None

    def _take(self, context_tokens: int) -> None:
        # Whole blocks: the last block may then be copied in and out like any other.
        self.context_tokens = math.ceil(context_tokens / self.layout.block_tokens) * self.layout.block_tokens
        self.regions = self._allocate()
        self._layers = build_layers(self.layout, self.regions)
        self.cache = Cache(layers=self._layers)

    def reset(self) -> None:
        """Start at token 0. Rows stay as they are: nothing attends to them."""
        for state in self.regions.states:
            self.copier.compute(partial(_zero, state))
        set_position(self._layers, 0)

    def move_to(self, position: int) -> None:
        """All state up to `position` has been copied in, or, with full attention alone, was there before; go on from there."""
        set_position(self._layers, position)

    def catch_up(self) -> None:
        """The model is about to run."""
        self.copier.catch_up()

    # ---- copies ----

    def load_block(self, index: int, payload: torch.Tensor, *, resident: bool = False) -> Mark:
        """Copy block `index` in."""
        start = index * self.layout.block_tokens
        return self._bring(payload, lambda staged: _ignore(self._load_rows(staged, start, self.layout.block_tokens)), resident)

    def load_checkpoint(self, position: int, payload: torch.Tensor, *, resident: bool = False) -> Mark:
        """Copy the checkpoint at `position` in and go on from there. The blocks before it must be there."""
        set_position(self._layers, position)
        return self._bring(payload, lambda staged: self._load_state(staged, position), resident)

    def save_block(self, index: int, payload: torch.Tensor, *, resident: bool = False) -> Mark:
        """Copy block `index` out. All its tokens must have been fed."""
        start = index * self.layout.block_tokens
        return self._send(payload, lambda staged: _ignore(self._save_rows(staged, start, self.layout.block_tokens)), resident)

    def save_checkpoint(self, position: int, payload: torch.Tensor, *, resident: bool = False) -> Mark:
        """Copy the state at `position`, the slot's present position, out."""
        starts = self._window_starts()  # as they are now: the copy may be made later
        return self._send(payload, lambda staged: self._save_state(staged, position, starts), resident)

    def _bring(self, payload: torch.Tensor, scatter: Callable[[torch.Tensor], None], resident: bool) -> Mark:
        copier = self.copier
        if resident or not self._stages:
            copier.compute(lambda: scatter(payload))
            return copier.mark()
        stage = self._next_stage()
        staged = stage.buffer[: payload.numel()]
        landed = copier.copy_in(payload, staged, after=stage.free)
        copier.compute_waits(landed)
        copier.compute(lambda: scatter(staged))
        stage.free = copier.mark()
        return landed

    def _send(self, payload: torch.Tensor, gather: Callable[[torch.Tensor], None], resident: bool) -> Mark:
        copier = self.copier
        if resident or not self._stages:
            copier.compute(lambda: gather(payload))
            return copier.mark()
        stage = self._next_stage()
        staged = stage.buffer[: payload.numel()]
        copier.compute_waits(stage.free)
        copier.compute(lambda: gather(staged))
        stage.free = copier.copy_out(staged, payload, after=copier.mark())
        return stage.free

    def _next_stage(self) -> Stage:
        """The one that was used longest ago: the likeliest to be free."""
        self._stages.append(self._stages.pop(0))
        return self._stages[-1]

    # ---- within the device ----

    def _load_state(self, staged: torch.Tensor, position: int) -> None:
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

    def _save_state(self, staged: torch.Tensor, position: int, window_starts: list[int]) -> None:
        start = self.layout.tail_start(position)
        offset = self._save_rows(staged, start, position - start)
        for (slab, region), first in zip(self._sliding(), window_starts, strict=True):
            kept = min(position, (slab.window or 1) - 1)
            n_bytes = slab.token_bytes * kept
            shape = (region.shape[0], region.shape[1], kept, region.shape[3])
            staged[offset : offset + n_bytes].view(region.dtype).view(shape).copy_(region[:, :, first : first + kept])
            offset += n_bytes
        for state in self.regions.states:
            n_bytes = state.numel() * state.element_size()
            staged[offset : offset + n_bytes].view(state.dtype).view(state.shape).copy_(state)
            offset += n_bytes

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

    def _make_stages(self) -> list[Stage]:
        if not self.copier.staged:
            return []
        size = max(self.layout.block_bytes, self.layout.max_checkpoint_bytes, 1)
        free = self.copier.mark()
        return [Stage(torch.zeros(size, dtype=torch.uint8, device=self.device), free) for _ in range(IN_FLIGHT)]


def _zero(tensor: torch.Tensor) -> None:
    tensor.zero_()


def _ignore(_: object) -> None:
    """How many bytes a block has is known."""


def _zeros(shape: tuple[int, ...], dtype: str, device: torch.device) -> torch.Tensor:
    """Zeros that take memory only when touched, where the platform can: torch.zeros would commit a CPU region at once."""
    n_bytes = math.prod(shape) * DTYPE_BYTES[dtype]
    if device.type != "cpu" or n_bytes == 0:
        return torch.zeros(shape, dtype=TORCH_DTYPES[dtype], device=device)
    region = mmap.mmap(-1, n_bytes)
    return torch.frombuffer(region, dtype=TORCH_DTYPES[dtype]).view(shape)
