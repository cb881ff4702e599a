"""The pool on the device: fixed places for records in one piece of device memory, by the numbers of their bytes.

Keeps the book and has no memory itself (engine/arena.py). All arenas are there from the start and of one size, chosen so that
either class fills one nearly; which class has it is decided when it is first used, and again whenever it is empty.

How much device memory the pool gets beside the slot is decided here, too (`share`). Torch-free and pure but for the book.
Thread: the control thread.
Invariant (`check`): as of any pool.
"""

from dataclasses import dataclass

from localkv.kv.layout import Layout
from localkv.kv.record import RecordKind
from localkv.tiers import places
from localkv.units import parse_bytes

ARENA_BYTES = 64 << 20
MIN_ARENAS = 16
"""Arenas are about so large; smaller where the pool is small, so that no class takes it all."""

AUTO_SHARE = 0.25
"""Of the memory beside the weights, where the slot could use all of it."""

AUTO_MAX_BYTES = 8 << 30

SIMULATED_BYTES = 256 << 20
"""What "auto" means for a pool that is only simulated."""

Place = places.Place[range]


class DevicePool(places.Places[range]):
    """All places on the device, within `limit_bytes`; 0: there is no such pool."""

    def __init__(self, block_bytes: int, checkpoint_bytes: int, limit_bytes: int, *, arena_bytes: int = ARENA_BYTES) -> None:
        super().__init__(block_bytes, checkpoint_bytes, limit_bytes, range(0))
        sizes = self.place_bytes
        size = arena_size(sizes["block"], sizes["checkpoint"], min(arena_bytes, limit_bytes // MIN_ARENAS))
        kind: RecordKind = "block" if sizes["block"] else "checkpoint"
        for start in range(0, limit_bytes - size + 1, size) if size else ():
            self._add(range(start, start + size), kind)

    def close(self) -> None:
        """There is no pool any more. All places have been given back."""
        with self._lock:
            assert not self._used, "what is in use cannot be given up"
            self.limit_bytes = self.committed_bytes = 0
            self._arenas, self._free = [], {"block": [], "checkpoint": []}


def arena_size(block_bytes: int, checkpoint_bytes: int, least_bytes: int) -> int:
    """The size of arenas: a multiple of the one class, at least `least_bytes`, that wastes least of the other; 0 if both are 0."""
    small, large = sorted((block_bytes, checkpoint_bytes))
    if not small:
        return -(-max(least_bytes, large) // large) * large if large else 0
    first = -(-max(least_bytes, large) // small)
    last = max(first, 2 * max(least_bytes, large) // small)
    return min((n * small for n in range(first, last + 1)), key=lambda size: (size % large) / size)


@dataclass(frozen=True, slots=True)
class Shares:
    """Who gets how much device memory."""

    context_tokens: int
    """What the slot holds."""
    pool_bytes: int


def share(layout: Layout, free_bytes: int, context_tokens: int, setting: str, stages: int) -> Shares:
    """`free_bytes` of device memory among slot, staging and pool; `context_tokens` is as many as the slot could use.

    "auto" gives the pool a quarter, or all that the slot can't use, and at most 8 GiB. Raises ConfigError for text that is no size.
    """
    block = max(layout.block_bytes, layout.max_checkpoint_bytes)
    room = max(0, free_bytes - stages * block - _fixed_bytes(layout))
    slot = context_tokens * layout.token_bytes
    auto = min(AUTO_MAX_BYTES, max(int(room * AUTO_SHARE), room - slot))
    wanted = auto if setting == "auto" else parse_bytes(setting)
    pool = min(wanted, max(0, room - layout.block_bytes))
    if not layout.token_bytes:
        return Shares(context_tokens, pool)
    return Shares(max(layout.block_tokens, min(context_tokens, (room - pool) // layout.token_bytes)), pool)


def _fixed_bytes(layout: Layout) -> int:
    """What a slot takes however long it is: windows with a chunk more, and states."""
    windows = sum(slab.token_bytes * ((slab.window or 1) - 1 + layout.block_tokens) for slab in layout.sliding_slabs)
    return windows + sum(state.n_bytes for _, state in layout.states)
