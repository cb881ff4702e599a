"""Who must go when a tier is full, and who may come in: pure functions over frozen values.

Torch-free. The dearest stay:

    value = P(reuse) x (seconds that the next best source takes - seconds that this tier takes) / bytes

where the next best source is the tier below if it has the record too, else computing it again. P(reuse) decays with a half-life
(warmth.py). All that differs between two records is compared as one number, a point in time (`Resident.score`), so an order does
not change by time passing alone.

Children go before their parents, always: a record is at least as dear as the dearest that needs it, so chains are broken at their
ends and their longest prefix survives. What is held, open, kept by the person or just written goes last, in this order.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from localkv.kv.layout import Layout
from localkv.placement.rates import Rates
from localkv.placement.warmth import HalfLives
from localkv.tiers.catalogue import Row

GIB = 1 << 30

FRESH_SECONDS = 60.0
"""So long a record counts as just written."""


class Rank(IntEnum):
    """What comes before all value; the lowest rank goes first."""

    ORDINARY = 0
    FRESH = 1
    """Just written."""
    KEPT = 2
    """The person wants this conversation resident."""
    OPEN = 3
    """Of the conversation in the slot."""
    HELD = 4
    """A turn is about to use it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of placement."""

    high: float = 0.90
    """A tier that is fuller than this share of its limit is trimmed..."""
    low: float = 0.80
    """...to this share."""
    half_lives: HalfLives = field(default_factory=HalfLives)

    def excess(self, used_bytes: int, limit_bytes: int) -> int:
        """How many bytes should leave a tier now; 0 below the high mark."""
        if used_bytes <= self.high * limit_bytes:
            return 0
        return max(0, math.ceil(used_bytes - self.low * limit_bytes))


@dataclass(frozen=True, slots=True)
class Resident:
    """A record that could leave a tier. `key` says who it is, to the caller."""

    key: tuple[str, str]
    """(identity, name)."""
    parent: str
    warmth: float
    position: int
    n_bytes: int
    seconds_per_byte: float
    """What having it in this tier saves at its next use, for each of its bytes."""
    rank: Rank = Rank.ORDINARY
    is_end: bool = False
    """A checkpoint: nothing builds on it. One at a block's edge has the position of the block that it needs."""

    def score(self, half_life: float) -> float:
        """log2 of the value, in units of half-lives and as a point in time: the higher, the dearer."""
        if self.seconds_per_byte <= 0:
            return -math.inf
        return self.warmth + half_life * math.log2(self.seconds_per_byte)


Order = tuple[int, float]
"""Rank and score: what residents and newcomers are compared by."""


def eviction_order(residents: Iterable[Resident], half_life: float) -> list[Resident]:
    """All of them, first to go first. A record never comes before one that needs it."""
    return [resident for _, resident in _ordered(residents, half_life)]


def victims(
    residents: Iterable[Resident], excess_bytes: int, half_life: float, newcomer: Order | None = None
) -> list[Resident]:
    """The first in order whose bytes add up to `excess_bytes`; fewer bytes if all that may go is not enough.

    Held ones stay. With `newcomer` only those go that are less dear than it.
    """
    chosen: list[Resident] = []
    freed = 0
    for order, resident in _ordered(residents, half_life):
        if freed >= excess_bytes or order[0] >= Rank.HELD or (newcomer is not None and order >= newcomer):
            break
        chosen.append(resident)
        freed += resident.n_bytes
    return chosen


def with_all_that_need_it(order: Sequence[Resident], wanted: Callable[[Resident], bool]) -> list[Resident]:
    """The first in `order` that `wanted` accepts, after all that build on it; empty if there is none."""
    last = next((i for i, resident in enumerate(order) if wanted(resident)), None)
    if last is None:
        return []
    chosen, names = [order[last]], {order[last].key[1]}
    for resident in reversed(order[:last]):
        if resident.parent in names:
            chosen.append(resident)
            names.add(resident.key[1])
    return chosen[::-1]


def whole_arena(
    order: Sequence[Resident], arena_of: Callable[[Resident], int], n_used: Callable[[int], int]
) -> list[Resident]:
    """All residents of the arena that can be emptied at the least loss, by those in `order` alone: it then serves the other class.

    `arena_of` is negative for a place without bytes; `n_used` counts the used places of an arena.
    """
    by_arena: dict[int, list[Resident]] = {}
    for resident in order:
        if (arena := arena_of(resident)) >= 0:
            by_arena.setdefault(arena, []).append(resident)
    whole = [residents for arena, residents in by_arena.items() if len(residents) == n_used(arena)]
    rank = {resident.key: i for i, resident in enumerate(order)}
    return min(whole, key=lambda residents: rank[residents[-1].key], default=[])


def admits(newcomer: Order, chosen: Sequence[Resident], need_bytes: int, half_life: float) -> bool:
    """Whether a record worth `newcomer` may displace `chosen`: they free enough, and none of them is dearer."""
    return sum(resident.n_bytes for resident in chosen) >= need_bytes and all(
        (resident.rank, resident.score(half_life)) < newcomer for resident in chosen
    )


def _ordered(residents: Iterable[Resident], half_life: float) -> list[tuple[Order, Resident]]:
    """With the order by which each goes: its own, or that of the dearest record that needs it."""
    deepest_first = sorted(residents, key=lambda resident: (-resident.position, not resident.is_end))
    needed: dict[str, Order] = {}
    found: list[tuple[Order, Resident]] = []
    for resident in deepest_first:
        order: Order = (resident.rank, resident.score(half_life))
        child = needed.get(resident.key[1])
        order = order if child is None else (max(order[0], child[0]), max(order[1], child[1]))
        at_parent = needed.get(resident.parent, order)
        needed[resident.parent] = (max(order[0], at_parent[0]), max(order[1], at_parent[1]))
        found.append((order, resident))
    found.sort(key=lambda pair: pair[0])  # stable: among equals the deepest stays first
    return found


def saved_by_ram(row: Row, layout: Layout, rates: Rates, *, on_ssd: bool) -> float:
    """Seconds per byte that a record's place in RAM saves: reading it from SSD, or computing it again."""
    if on_ssd:
        return 1 / rates.read
    return _recompute_seconds_per_byte(row, layout, rates) - 1 / rates.copy


def saved_by_vram(rates: Rates, *, in_ram: bool) -> float:
    """Seconds per byte that a record's place on the device saves: the bus, or the SSD and then the bus, which overlap."""
    return 1 / rates.copy if in_ram else max(1 / rates.read, 1 / rates.copy)


def saved_by_ssd(row: Row, layout: Layout, rates: Rates) -> float:
    """Seconds per byte that a record's file saves: computing it again, less reading it."""
    return _recompute_seconds_per_byte(row, layout, rates) - 1 / rates.read


def _recompute_seconds_per_byte(row: Row, layout: Layout, rates: Rates) -> float:
    """A checkpoint that alone is a place to resume stands for its whole chain, in tokens and in bytes."""
    if not row.n_bytes:
        return 0.0
    if row.kind == "block":
        tokens, n_bytes = (layout.block_tokens if layout.only_full else 0), row.n_bytes
    elif layout.only_full:
        tokens, n_bytes = row.position - layout.tail_start(row.position), row.n_bytes
    else:
        tokens, n_bytes = row.position, row.n_bytes + row.position * layout.token_bytes
    return rates.computing(tokens) / n_bytes


def ssd_budget(setting_bytes: int | None, disk_bytes: int, free_bytes: int, stored_bytes: int) -> int:
    """How many bytes the store may take: the setting, or (None) min(20 GiB, 10 % of the disk, free space less 10 GiB).

    `stored_bytes` are the store's own already: they count as free, or the budget would shrink as it fills.
    """
    if setting_bytes is not None:
        return setting_bytes
    free_without_us = free_bytes + stored_bytes
    return max(0, min(20 * GIB, disk_bytes // 10, free_without_us - 10 * GIB))
