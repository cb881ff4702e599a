"""The RAM tier: fixed places for records in anonymous memory, and how much RAM it may take.

Two size classes, blocks and checkpoints, share one limit. Memory comes in arenas; an arena is carved into places of one
class, and an arena without a used place is carved anew when the other class needs room: no fragmentation by
construction. Where the classes are of similar size (models with full attention only), either may use a place of the other.
Places that were given back last are given out first, because their pages are warm.

Knows nothing of records' meaning, torch or CUDA: `pin` is a hook that may register an arena with a device. Thread: any;
growing takes a lock of its own, so that `reserve` waits for `warm` only if it needs a new arena itself.
Invariants (`check`): in each class free + used = all places, no place twice; committed bytes never exceed the limit.
"""

import contextlib
import ctypes
import mmap
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from localkv.kv.record import ALIGN, RecordKind
from localkv.units import parse_bytes

ARENA_BYTES = 64 << 20
"""Arenas are about so large: growth is rare, and one arena is ready in some 20 ms."""

MIN_ARENAS = 16
"""Smaller where the limit is small, so that no class can take it all at once."""

AUTO_SHARE = 0.25
MAX_SHARE = 0.8
"""Of the memory available at start: what "auto" takes, and what a setting may take at most."""

_MADV_POPULATE_WRITE = 23
"""Linux 5.14: faults pages in and keeps what they hold."""

Pin = Callable[[int, int], bool]
"""Registers (address, size) with a device; False if it refused."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Room for one record. Its owner gives it back once, and keeps no view beyond that."""

    kind: RecordKind
    """Its size class."""
    index: int
    """Unique among all places that ever were in this pool."""
    arena: int
    """Position of its arena; -1 for a place without bytes."""
    memory: memoryview

    def view(self, n_bytes: int) -> memoryview:
        """The first `n_bytes` of it."""
        assert n_bytes <= len(self.memory), "a record is never larger than its size class"
        return self.memory[:n_bytes]


@dataclass(slots=True)
class Arena:
    """One anonymous mapping and the places carved from it."""

    memory: mmap.mmap
    pinned: bool
    warm: bool
    kind: RecordKind = "block"
    places: list[Place] = field(default_factory=list)
    n_used: int = 0


class HostPool:
    """All places of the RAM tier. `limit_bytes` 0 gives no place at all."""

    def __init__(
        self,
        block_bytes: int,
        checkpoint_bytes: int,
        limit_bytes: int,
        pin: Pin | None = None,
        *,
        arena_bytes: int = ARENA_BYTES,
    ) -> None:
        self.place_bytes: dict[RecordKind, int] = {"block": _aligned(block_bytes), "checkpoint": _aligned(checkpoint_bytes)}
        self.limit_bytes = limit_bytes
        """Lowered to what is committed if the system refuses more memory."""
        self.used_bytes = 0
        """Bytes of places that are given out."""
        self.committed_bytes = 0
        """Bytes of all arenas."""
        self._pin = pin
        self._least_arena_bytes = min(arena_bytes, limit_bytes // MIN_ARENAS)
        self._lock = threading.Lock()
        self._growing = threading.Lock()
        self._arenas: list[Arena] = []
        self._free: dict[RecordKind, list[Place]] = {"block": [], "checkpoint": []}
        self._used: dict[int, Place] = {}
        self._next_index = 0

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the arenas that the hook `pin` has registered."""
        with self._lock:
            return sum(len(arena.memory) for arena in self._arenas if arena.pinned)

    def n_free(self, kind: RecordKind) -> int:
        """How many more times `reserve(kind)` would give a place: what is free, idle or lent, and growth up to the limit."""
        size = self.place_bytes[kind]
        if not size:
            return sys.maxsize if self.limit_bytes else 0
        with self._lock:
            idle = sum(len(arena.memory) // size for arena in self._arenas if arena.kind != kind and not arena.n_used)
            lent = [self._arenas[place.arena].n_used > 0 for place in self._free[_other(kind)] if self._may_borrow(kind)]
            step = self._arena_bytes(kind)
            whole, rest = divmod(max(0, self.limit_bytes - self.committed_bytes), step)
            return len(self._free[kind]) + idle + sum(lent) + whole * (step // size) + rest // size

    def n_used(self, arena: int) -> int:
        """How many places of that arena are given out."""
        with self._lock:
            return self._arenas[arena].n_used

    # ---- places ----

    def reserve(self, kind: RecordKind, n_bytes: int) -> Place | None:
        """A place of at least `n_bytes`; None if the pool is full."""
        assert n_bytes <= self.place_bytes[kind], "a record is never larger than its size class"
        place = self._take(kind)
        while place is None and self._grow(kind):
            place = self._take(kind)
        if place is None and self._may_borrow(kind):
            place = self._take(_other(kind))
        return place

    def _may_borrow(self, kind: RecordKind) -> bool:
        """True if places of the other class hold records of `kind` without wasting more than half."""
        return self.place_bytes[kind] <= self.place_bytes[_other(kind)] <= 2 * self.place_bytes[kind]

    def release(self, place: Place) -> None:
        """Give `place` back."""
        with self._lock:
            assert self._used.pop(place.index, None) is place, "a place is given back once"
            if place.arena >= 0:
                self._arenas[place.arena].n_used -= 1
                self.used_bytes -= len(place.memory)
                self._free[place.kind].append(place)

    def _take(self, kind: RecordKind) -> Place | None:
        with self._lock:
            if not self.place_bytes[kind]:
                if not self.limit_bytes:
                    return None
                place = Place(kind, self._number(), -1, memoryview(b""))
            elif self._free[kind]:
                place = self._free[kind].pop()
                self._arenas[place.arena].n_used += 1
                self.used_bytes += len(place.memory)
            else:
                return None
            self._used[place.index] = place
            return place

    # ---- growth ----

    def warm(self, n_bytes: int, kind: RecordKind = "block") -> int:
        """Make arenas ahead, their pages touched, until `n_bytes` of places of `kind` are free; returns the bytes touched.

        For a background thread: copying into untouched pages takes 8 times as long [measured]. Holds no lock that a
        `reserve` from free places needs.
        """
        touched = self._warm_existing()
        while len(self._free[kind]) * self.place_bytes[kind] < n_bytes:
            with self._growing:
                step = self._step(kind)
                arena = self._new_arena(step, touch=True) if step else None
                if arena is None:
                    break
                touched += step
                with self._lock:
                    self._add(arena, kind)
        return touched

    def _warm_existing(self) -> int:
        """Touch the arenas that `reserve` made in a hurry, where that keeps what they hold."""
        touched = 0
        for arena in list(self._arenas):
            if not arena.warm:
                arena.warm = True
                touched += len(arena.memory) if _populate(arena.memory) else 0
        return touched

    def _grow(self, kind: RecordKind) -> bool:
        """Add free places of `kind`; False if neither the limit nor an idle arena of the other class gives any."""
        with self._growing:
            with self._lock:
                if self._free[kind]:
                    return True
            step = self._step(kind)
            arena = self._new_arena(step, touch=False) if step else None
            with self._lock:
                if arena is not None:
                    self._add(arena, kind)
                    return True
                return self._take_over(kind)

    def _step(self, kind: RecordKind) -> int:
        """The size of the next arena for `kind`; 0 if the limit allows not even one place."""
        size = self.place_bytes[kind]
        room = self.limit_bytes - self.committed_bytes
        return min(self._arena_bytes(kind), room - room % size) if size and room >= size else 0

    def _arena_bytes(self, kind: RecordKind) -> int:
        """A whole number of places, and room for at least one of the other class."""
        size = self.place_bytes[kind]
        return -(-max(self._least_arena_bytes, *self.place_bytes.values()) // size) * size

    def _new_arena(self, n_bytes: int, *, touch: bool) -> Arena | None:
        try:
            memory = _map(n_bytes)
        except OSError:
            self.limit_bytes = self.committed_bytes
            return None
        if touch and not _populate(memory):
            memoryview(memory)[:: mmap.PAGESIZE] = bytes(-(-n_bytes // mmap.PAGESIZE))
        pinned = self._pin is not None and self._pin(_address(memory), n_bytes)
        return Arena(memory, pinned, warm=touch or pinned)

    def _add(self, arena: Arena, kind: RecordKind) -> None:
        self._arenas.append(arena)
        self.committed_bytes += len(arena.memory)
        self._carve(len(self._arenas) - 1, kind)

    def _take_over(self, kind: RecordKind) -> bool:
        """Carve an idle arena of the other class anew."""
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
        whole = memoryview(arena.memory)
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


def available_memory() -> int:
    """Bytes of RAM that this process may still take: what the system has, and what its control groups allow."""
    groups = _cgroup_rooms(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return max(0, min([int(psutil.virtual_memory().available), *groups]))


def ram_budget(setting: str) -> int:
    """What `memory.ram_pool` means in bytes here and now. Raises ConfigError for text that is not a size."""
    available = available_memory()
    if setting == "auto":
        return int(available * AUTO_SHARE)
    return min(parse_bytes(setting), int(available * MAX_SHARE))


def _cgroup_rooms(membership: Path, mounted: Path) -> list[int]:
    """Per control group above this process that has a memory limit: the limit less what is used and can't be reclaimed."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    rooms = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names, root = ("memory.max", "memory.current", "inactive_file"), mounted
        elif "memory" in controllers.split(","):
            names, root = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"), mounted / "memory"
        else:
            continue
        group = root / path.lstrip("/")
        # Inside a container the path is the host's and absent here; the container's own group is then the root.
        while True:
            room = _room(group, *names)
            rooms += [room] if room is not None else []
            if group == root or root not in group.parents:
                break
            group = group.parent
    return rooms


def _room(group: Path, limit_name: str, usage_name: str, cache_name: str) -> int | None:
    try:
        limit = (group / limit_name).read_text().strip()
        usage = int((group / usage_name).read_text())
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    if not limit.isdigit():
        return None  # "max"
    return max(0, int(limit) - usage + int(fields.get(cache_name, 0)))


def _other(kind: RecordKind) -> RecordKind:
    return "checkpoint" if kind == "block" else "block"


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGN) * ALIGN


def _map(n_bytes: int) -> mmap.mmap:
    """Anonymous, private memory; on Linux in huge pages where the system gives them (fewer faults)."""
    if sys.platform == "win32":
        return mmap.mmap(-1, n_bytes)
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without huge pages: slower first touch, nothing else
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _populate(memory: mmap.mmap) -> bool:
    """Fault all pages in; False where the system can't. Through ctypes, which releases the GIL: mmap.madvise does not."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.madvise(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(len(memory)), _MADV_POPULATE_WRITE) == 0)
