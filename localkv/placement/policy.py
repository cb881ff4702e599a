"""Who must go when a tier is full: pure functions over frozen values, here plain least-recently-used with holds.

Torch-free. Children go before parents: a chain is broken at its end, so that its longest prefix survives. All records of a chain are
marked as used together, so among equals the one that lies furthest from the start goes first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resident:
    """A record that could leave a tier. `key` says who it is, to the caller."""

    key: tuple[str, str]
    """(identity, name)."""
    used: float
    position: int
    n_bytes: int
    held: bool


def eviction_order(residents: Iterable[Resident]) -> list[Resident]:
    """All that may go, first to go first. What is held is not among them."""
    free = (resident for resident in residents if not resident.held)
    return sorted(free, key=lambda resident: (resident.used, -resident.position))


def victims(residents: Iterable[Resident], excess_bytes: int) -> list[Resident]:
    """The first in order whose bytes add up to `excess_bytes`; fewer bytes if all that may go is not enough."""
    return list(_until(eviction_order(residents), excess_bytes))


def _until(order: list[Resident], excess_bytes: int) -> Iterator[Resident]:
    freed = 0
    for resident in order:
        if freed >= excess_bytes:
            return
        yield resident
        freed += resident.n_bytes


GIB = 1 << 30


def ssd_budget(setting_bytes: int | None, disk_bytes: int, free_bytes: int, stored_bytes: int) -> int:
    """How many bytes the store may take: the setting, or (None) min(20 GiB, 10 % of the disk, free space less 10 GiB).

    `stored_bytes` are the store's own already: they count as free, or the budget would shrink as it fills.
    """
    if setting_bytes is not None:
        return setting_bytes
    free_without_us = free_bytes + stored_bytes
    return max(0, min(20 * GIB, disk_bytes // 10, free_without_us - 10 * GIB))
