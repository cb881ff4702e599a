"""How fast this model reads tokens and takes records in, on this machine, now: measured in a scratch slot.

Knows the model and its layout; the live conversation is not touched. Thread: the engine's.

A chunk takes longer the more tokens lie before it. Both ends are measured without computing what lies between: a slot can be
told that it is at a position; its rows are zeros then, which costs what any rows cost.

The first forward after loading is slow whatever it computes: weights are touched, threads begin, kernels are chosen. `warm_up`
makes it in the live slot, while that is still blank, so that no turn has to.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from localkv.engine.live import Live
from localkv.engine.load import Loaded
from localkv.engine.prefill import Reading
from localkv.engine.slot import Slot
from localkv.errors import OutOfMemory
from localkv.kv.layout import Layout

DEPTHS = (4096, 2048, 1024, 512)
"""Tokens before the second measured chunk, where memory allows so many; longer contexts are extrapolated from there."""

COPY_BYTES = 64 << 20
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds for one token at the start, and how many more for each token before it, measured up to `depth`."""

    token_seconds: float
    deeper_seconds: float
    depth: int
    copy_rate: float
    """Bytes per second from RAM into the slot; 0 where there is no slot."""


@dataclass(frozen=True, slots=True)
class Stride:
    """What a forward takes by itself, and each token in it."""

    forward_seconds: float
    token_seconds: float


def measure_stride(loaded: Loaded, slot: Slot, n_tokens: int) -> Stride:
    """From single forwards of a model that is warm: of one token, and of the first `n_tokens` of a conversation."""

    def seconds(n: int) -> float:
        return _timed(lambda: _chunk(loaded, slot, 0, n), loaded.device)

    return stride_of(min(seconds(1), seconds(1)), seconds(n_tokens), n_tokens)


def stride_of(one: float, many: float, n_tokens: int) -> Stride:
    """What follows from the seconds of one token and of `n_tokens`.

    Where a device takes many for no more than one, a quarter is still put down to the tokens: for nothing they can't be had.
    """
    token = max(many - one, many / 4) / n_tokens
    return Stride(max(0.0, one - token), token)


def warm_up(live: Live, device: torch.device) -> float:
    """Seconds of a forward of one token through the live slot, which is blank before and after; 0 if there is no memory for it.

    The one before it, which comes after loading, isn't counted: 461 ms against 66 for the starter model on one thread [measured].
    """
    seconds = 0.0
    try:
        for _ in range(2):
            live.reset()
            seconds = _timed(lambda: live.feed([1]), device)
    except OutOfMemory:
        seconds = 0.0  # a turn can make do: it gives up what can be spared
    live.reset()
    return seconds


def measure_pace(loaded: Loaded, layout: Layout | None, reading: Reading, free_bytes: int, context_tokens: int) -> Pace:
    """The pace of this model; `free_bytes` of device memory may be taken meanwhile. `layout` None: it runs uncached.

    Nothing is measured beyond `context_tokens`: a model with learned positions has no more.
    """
    n_tokens = min(context_tokens, 1 if reading == "tokens" else layout.block_tokens if layout else 256)
    if layout is None:
        return Pace(_seconds_uncached(loaded, n_tokens) / n_tokens, 0.0, 0, 0.0)
    depth = min(depth_within(free_bytes, layout.token_bytes, n_tokens), context_tokens - n_tokens)
    slot = Slot(layout, depth + n_tokens, loaded.device)
    at_start = _seconds_at(loaded, slot, 0, n_tokens) / n_tokens
    deeper = _seconds_at(loaded, slot, depth, n_tokens) / n_tokens if depth else at_start
    slope = max(0.0, deeper - at_start) / depth if depth else 0.0
    return Pace(at_start, slope, depth, _copy_rate(slot, layout))


def depth_within(free_bytes: int, token_bytes: int, n_tokens: int) -> int:
    """The greatest of DEPTHS at which a slot for `n_tokens` more takes less than `free_bytes`; 0 if none does."""
    return next((depth for depth in DEPTHS if (depth + n_tokens) * token_bytes < free_bytes), 0)


def _seconds_at(loaded: Loaded, slot: Slot, position: int, n_tokens: int) -> float:
    """Seconds for `n_tokens` in one forward after `position` others."""
    return _best(lambda: _chunk(loaded, slot, position, n_tokens), loaded.device)


def _chunk(loaded: Loaded, slot: Slot, position: int, n_tokens: int) -> None:
    slot.reset()
    slot.move_to(position)
    _forward(loaded, n_tokens, cache=slot.cache, use_cache=True)


def _seconds_uncached(loaded: Loaded, n_tokens: int) -> float:
    return _best(
        lambda: _forward(loaded, n_tokens, cache=DynamicCache(config=loaded.text_config), use_cache=True), loaded.device
    )


def _forward(loaded: Loaded, n_tokens: int, **state: object) -> None:
    with torch.inference_mode():
        loaded.model(torch.ones((1, n_tokens), dtype=torch.long, device=loaded.device), logits_to_keep=1, **state)


def _copy_rate(slot: Slot, layout: Layout) -> float:
    """Bytes per second of the copy that a restore makes: of whole blocks, or of states where blocks are empty."""
    n_bytes = layout.block_bytes or layout.checkpoint_bytes(layout.block_tokens)
    payload = torch.zeros(max(n_bytes, 1), dtype=torch.uint8)
    times = max(1, COPY_BYTES // max(n_bytes, 1))

    def copy() -> None:
        for _ in range(times):
            if layout.block_bytes:
                slot.load_block(0, payload)
            else:
                slot.load_checkpoint(layout.block_tokens, payload)

    return times * n_bytes / _best(copy, slot.device)


def _best(work: Callable[[], None], device: torch.device) -> float:
    """Seconds of the fastest of ROUNDS: a busy machine makes things slower, never faster. The first one warms up."""
    work()
    return min(_timed(work, device) for _ in range(ROUNDS))


def _timed(work: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return max(time.perf_counter() - began, 1e-9)
