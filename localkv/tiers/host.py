"""The RAM tier: fixed places for records in anonymous memory, and how much RAM it may take.

Two size classes, blocks and checkpoints, share one limit (places.py). Memory comes in arenas, one after the other, so that a pool
of many gigabytes costs nothing before it is used; `warm` makes them ahead, when there is time.

With a `pinner` each new arena is registered with a device, as far as `pin_bytes` allows. When the system refuses, the pool goes on
with ordinary memory, which a device copies from at about half the speed, asks no more, and says why (`refusal`).

Knows nothing of records' meaning, torch or CUDA. Thread: any; growing takes a lock of its own, so that `reserve` waits for `warm`
only if it needs a new arena itself.
Invariants (`check`): in each class free + used = all places, no place twice; committed bytes never exceed the limit.
"""

import contextlib
import ctypes
import mmap
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from localkv.kv.record import RecordKind
from localkv.tiers import places
from localkv.units import parse_bytes

ARENA_BYTES = 64 << 20
"""Arenas are about so large: growth is rare, and one arena is ready in some 20 ms."""

MIN_ARENAS = 16
"""Smaller where the limit is small, so that no class can take it all at once."""

AUTO_SHARE = 0.25
MAX_SHARE = 0.8
"""Of the memory available at start: what "auto" takes, and what a setting may take at most."""

RESERVE_BYTES = 128 << 20
"""Of the memory available at the moment: never taken by growing, whatever the limit allows."""

PIN_SHARE = 0.5
"""Of all RAM: pinned memory can't be swapped out, and a system that has pinned too much of it stops."""

_MADV_POPULATE_WRITE = 23
"""Linux 5.14: faults pages in and keeps what they hold."""

Place = places.Place[memoryview]


class Pinner(Protocol):
    """A device that memory can be registered with."""

    def pin(self, address: int, n_bytes: int) -> str:
        """Register it; why not, if that is refused."""
        ...

    def unpin(self, address: int) -> None:
        """Take it back."""
        ...


@dataclass(slots=True)
class Mapping:
    """The memory of one arena."""

    memory: mmap.mmap
    pinned: bool
    warm: bool
    touched: bool
    """It may have pages of its own: it was warmed or used."""


class HostPool(places.Places[memoryview]):
    """All places of the RAM tier. `limit_bytes` is lowered to what is committed if the system refuses more memory."""

    def __init__(
        self,
        block_bytes: int,
        checkpoint_bytes: int,
        limit_bytes: int,
        pinner: Pinner | None = None,
        *,
        arena_bytes: int = ARENA_BYTES,
        available: Callable[[], int] | None = None,
        pin_bytes: int = sys.maxsize,
        refusal: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`available` says how much memory there is now: an arena is made only if RESERVE_BYTES are left beside it."""
        super().__init__(block_bytes, checkpoint_bytes, limit_bytes, memoryview(b""))
        self._available = available
        self._pinner = pinner
        self._refused = False
        self._pin_bytes = pin_bytes
        self._refusal = refusal
        self._least_arena_bytes = min(arena_bytes, limit_bytes // MIN_ARENAS)
        self._growing = threading.Lock()
        self._mappings: list[Mapping] = []

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the arenas that are registered with a device."""
        return sum(len(mapping.memory) for mapping in list(self._mappings) if mapping.pinned)

    def close(self) -> None:
        """Take back what is registered with a device; the memory goes when its last view does. No copy may be under way."""
        with self._growing:
            pinner, self._pinner = self._pinner, None
            for mapping in self._mappings:
                if mapping.pinned and pinner is not None:
                    pinner.unpin(_address(mapping.memory))
                    mapping.pinned = False

    def give_back(self) -> int:
        """Let the system have the pages of arenas that hold nothing; returns the bytes. They are taken again when they are used.

        Addresses stay, so places do. Pages that a device has registered can't go.
        """
        n_bytes = 0
        with self._lock:
            for arena, mapping in zip(self._arenas, self._mappings, strict=True):
                if not arena.n_used and not mapping.pinned and mapping.touched and hasattr(mmap, "MADV_DONTNEED"):
                    mapping.memory.madvise(mmap.MADV_DONTNEED)
                    mapping.warm, mapping.touched = True, False  # warming would take them again at once
                    n_bytes += len(mapping.memory)
        return n_bytes

    def _take(self, kind: RecordKind) -> Place | None:
        place = super()._take(kind)
        if place is not None and place.arena >= 0:
            self._mappings[place.arena].touched = True
        return place

    # ---- growth ----

    def warm(self, n_bytes: int, kind: RecordKind = "block") -> int:
        """Make arenas ahead, their pages touched, until `n_bytes` of places of `kind` are free; returns the bytes touched.

        Copying into untouched pages takes 8 times as long [measured]. Holds no lock that a `reserve` from free places needs.
        """
        touched = 0
        while step := self.warm_one(n_bytes, kind):
            touched += step
        return touched

    def warm_one(self, n_bytes: int, kind: RecordKind = "block") -> int:
        """One step of `warm`, an arena: the bytes touched; 0 if nothing is left to do."""
        for mapping in list(self._mappings):
            if not mapping.warm:  # `reserve` made it in a hurry; touching keeps what it holds, where the system can
                mapping.warm = mapping.touched = True
                if _populate(mapping.memory):
                    return len(mapping.memory)
        if len(self._free[kind]) * self.place_bytes[kind] >= n_bytes:
            return 0
        with self._growing:
            step = self._step(kind)
            made = self._map_arena(step, touch=True) if step else None
            if made is None:
                return 0
            self._take_in(made, kind)
            return step

    def _grow(self, kind: RecordKind) -> bool:
        """Add free places of `kind`; False if neither the limit nor an idle arena of the other class gives any."""
        with self._growing:
            with self._lock:
                if self._free[kind]:
                    return True
            step = self._step(kind)
            made = self._map_arena(step, touch=False) if step else None
            if made is not None:
                self._take_in(made, kind)
                return True
        return super()._grow(kind)

    def _n_to_grow(self, kind: RecordKind) -> int:
        size, step = self.place_bytes[kind], self._arena_bytes(kind)
        whole, rest = divmod(max(0, self.limit_bytes - self.committed_bytes), step)
        return whole * (step // size) + rest // size

    def _step(self, kind: RecordKind) -> int:
        """The size of the next arena for `kind`; 0 if the limit allows not even one place."""
        size = self.place_bytes[kind]
        room = self.limit_bytes - self.committed_bytes
        return min(self._arena_bytes(kind), room - room % size) if size and room >= size else 0

    def _arena_bytes(self, kind: RecordKind) -> int:
        """A whole number of places, and room for at least one of the other class."""
        size = self.place_bytes[kind]
        return -(-max(self._least_arena_bytes, *self.place_bytes.values()) // size) * size

    def _map_arena(self, n_bytes: int, *, touch: bool) -> Mapping | None:
        if self._available is not None and self._available() < n_bytes + RESERVE_BYTES:
            return None  # other programs have it now; the limit stands for when they give it back
        try:
            memory = _map(n_bytes)
        except OSError:
            self.limit_bytes = self.committed_bytes
            return None
        if touch and not _populate(memory):
            memoryview(memory)[:: mmap.PAGESIZE] = bytes(-(-n_bytes // mmap.PAGESIZE))
        pinned = self._pin(memory)
        return Mapping(memory, pinned, warm=touch or pinned, touched=touch or pinned)

    def _pin(self, memory: mmap.mmap) -> bool:
        """Register it, unless that was refused before: the limit is the system's, and each try costs milliseconds."""
        if self._pinner is None or self._refused:
            return False
        n_bytes, pinned = len(memory), self.pinned_bytes
        why = (
            f"{pinned >> 20} MiB are pinned already, and more than half of the RAM is not"
            if pinned + n_bytes > self._pin_bytes
            else self._pinner.pin(_address(memory), n_bytes)
        )
        if why:
            self._refused = True
            self._refusal(why)
        return not why

    def _take_in(self, mapping: Mapping, kind: RecordKind) -> None:
        with self._lock:
            self._mappings.append(mapping)
            self._add(memoryview(mapping.memory), kind)


def available_memory() -> int:
    """Bytes of RAM that this process may still take: what the system has, and what its control groups allow."""
    groups = _cgroup_rooms(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return max(0, min([int(psutil.virtual_memory().available), *groups]))


def swap_memory() -> int:
    """Bytes that the system could still swap out to disk: slow, but not the end of a process."""
    return int(psutil.swap_memory().free)


def pin_budget() -> int:
    """How many bytes may be pinned."""
    return int(psutil.virtual_memory().total * PIN_SHARE)


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
