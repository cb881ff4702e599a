"""Fixed places for records in two size classes, carved from arenas: the book of a pool, in host or device memory.

An arena is carved into places of one class. One without a used place is carved anew when the other class needs room: no
fragmentation by construction. What is left of it are places that are *bound*: free, in arenas that are partly used, and so of use to
their own class alone. Where the classes are of similar size (models with full attention only), either may use a place of the other. Places
that were given back last are given out first.

Memory is anything that can be cut: a memoryview in host memory, a range of byte numbers on a device. Knows nothing of what lies in
places. Thread: any.
Invariants (`check`): in each class free + used = all places, no place twice.
"""

import sys
import threading
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from localkv.kv.record import ALIGN, RecordKind

M = TypeVar("M", memoryview, range)


@dataclass(frozen=True, slots=True, eq=False)
class Place(Generic[M]):
    """Room for one record. Its owner gives it back once, and keeps no view beyond that."""

    kind: RecordKind
    """Its size class."""
    index: int
    """Unique among all places that ever were in this pool."""
    arena: int
    """Position of its arena; -1 for a place without bytes."""
    memory: M

    def view(self, n_bytes: int) -> M:
        """The first `n_bytes` of it."""
        assert n_bytes <= len(self.memory), "a record is never larger than its size class"
        return self.memory[:n_bytes]


@dataclass(slots=True)
class Arena(Generic[M]):
    """One piece of memory and the places carved from it."""

    memory: M
    kind: RecordKind = "block"
    places: list[Place[M]] = field(default_factory=list)
    n_used: int = 0


class Places(Generic[M]):
    """All places of one pool. `limit_bytes` 0 gives no place at all; `nothing` is memory of no bytes."""

    def __init__(self, block_bytes: int, checkpoint_bytes: int, limit_bytes: int, nothing: M) -> None:
        self.place_bytes: dict[RecordKind, int] = {"block": aligned(block_bytes), "checkpoint": aligned(checkpoint_bytes)}
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        """Bytes of places that are given out."""
        self.committed_bytes = 0
        """Bytes of all arenas."""
        self._nothing: M = nothing
        self._lock = threading.Lock()
        self._arenas: list[Arena[M]] = []
        self._free: dict[RecordKind, list[Place[M]]] = {"block": [], "checkpoint": []}
        self._used: dict[int, Place[M]] = {}
        self._next_index = 0

    # ---- what is where ----

    @property
    def n_places(self) -> int:
        """How many there are, as the arenas are carved now."""
        with self._lock:
            return sum(len(arena.places) for arena in self._arenas)

    @property
    def bound_bytes(self) -> int:
        """Bytes of free places in arenas that are partly used: they serve their own class alone."""
        with self._lock:
            free = self._free["block"] + self._free["checkpoint"]
            return sum(len(place.memory) for place in free if self._arenas[place.arena].n_used)

    def n_free(self, kind: RecordKind) -> int:
        """How many more times `reserve(kind)` would give a place: what is free, idle or lent, and growth up to the limit."""
        size = self.place_bytes[kind]
        if not size:
            return sys.maxsize if self.limit_bytes else 0
        with self._lock:
            idle = sum(len(arena.memory) // size for arena in self._arenas if arena.kind != kind and not arena.n_used)
            lent = [self._arenas[place.arena].n_used > 0 for place in self._free[_other(kind)] if self.may_borrow(kind)]
            return len(self._free[kind]) + idle + sum(lent) + self._n_to_grow(kind)

    def n_used(self, arena: int) -> int:
        """How many places of that arena are given out."""
        with self._lock:
            return self._arenas[arena].n_used

    def could_hold(self, arena: int, kind: RecordKind) -> bool:
        """Whether that arena, once it is empty, has room for a place of `kind`: the last one of a pool may be a remnant."""
        with self._lock:
            return len(self._arenas[arena].memory) >= self.place_bytes[kind]

    # ---- places ----

    def reserve(self, kind: RecordKind, n_bytes: int) -> Place[M] | None:
        """A place of at least `n_bytes`; None if the pool is full."""
        assert n_bytes <= self.place_bytes[kind], "a record is never larger than its size class"
        place = self._take(kind)
        while place is None and self._grow(kind):
            place = self._take(kind)
        if place is None and self.may_borrow(kind):
            place = self._take(_other(kind))
        return place

    def release(self, place: Place[M]) -> None:
        """Give `place` back."""
        with self._lock:
            assert self._used.pop(place.index, None) is place, "a place is given back once"
            if place.arena >= 0:
                self._arenas[place.arena].n_used -= 1
                self.used_bytes -= len(place.memory)
                self._free[place.kind].append(place)

    def may_borrow(self, kind: RecordKind) -> bool:
        """True if places of the other class hold records of `kind` without wasting more than half."""
        return self.place_bytes[kind] <= self.place_bytes[_other(kind)] <= 2 * self.place_bytes[kind]

    def _take(self, kind: RecordKind) -> Place[M] | None:
        with self._lock:
            if not self.place_bytes[kind]:
                if not self.limit_bytes:
                    return None
                place = Place(kind, self._number(), -1, self._nothing)
            elif self._free[kind]:
                place = self._free[kind].pop()
                self._arenas[place.arena].n_used += 1
                self.used_bytes += len(place.memory)
            else:
                return None
            self._used[place.index] = place
            return place

    # ---- arenas ----

    def _n_to_grow(self, kind: RecordKind) -> int:  # noqa: ARG002 - for pools that grow
        """How many places of `kind` may still be made of new memory."""
        return 0

    def _grow(self, kind: RecordKind) -> bool:
        """Add free places of `kind`; False if there can be no more."""
        with self._lock:
            return bool(self._free[kind]) or self._take_over(kind)

    def _add(self, memory: M, kind: RecordKind) -> None:
        """A new arena. The lock is held."""
        self._arenas.append(Arena(memory))
        self.committed_bytes += len(memory)
        self._carve(len(self._arenas) - 1, kind)

    def _take_over(self, kind: RecordKind) -> bool:
        """Carve an idle arena of the other class anew. The lock is held."""
        size = self.place_bytes[kind]
        for position, arena in enumerate(self._arenas):
            if arena.kind != kind and not arena.n_used and len(arena.memory) >= size:
                gone = {place.index for place in arena.places}
                self._free[arena.kind] = [place for place in self._free[arena.kind] if place.index not in gone]
                self._carve(position, kind)
                return True
        return False

    def _carve(self, position: int, kind: RecordKind) -> None:
        arena, size = self._arenas[position], self.place_bytes[kind]
        whole = arena.memory
        arena.kind = kind
        arena.places = [
            Place(kind, self._number(), position, whole[start : start + size])
            for start in range(0, len(whole) - size + 1, size)
        ]
        self._free[kind] += reversed(arena.places)

    def _number(self) -> int:
        self._next_index += 1
        return self._next_index

    def check(self) -> None:
        """Assert the invariants."""
        with self._lock:
            used = [place for place in self._used.values() if place.arena >= 0]
            free = self._free["block"] + self._free["checkpoint"]
            places = [place for arena in self._arenas for place in arena.places]
            assert sorted(place.index for place in used + free) == sorted(place.index for place in places)
            assert all(place.kind == self._arenas[place.arena].kind for place in used + free)
            assert all(place.kind == kind for kind, some in self._free.items() for place in some)
            assert [sum(place.arena == i for place in used) for i in range(len(self._arenas))] == [
                arena.n_used for arena in self._arenas
            ]
            assert self.used_bytes == sum(len(place.memory) for place in used)
            assert self.committed_bytes == sum(len(arena.memory) for arena in self._arenas) <= self.limit_bytes


def aligned(n_bytes: int) -> int:
    """`n_bytes` rounded up to whole pages."""
    return -(-n_bytes // ALIGN) * ALIGN


def _other(kind: RecordKind) -> RecordKind:
    return "checkpoint" if kind == "block" else "block"
