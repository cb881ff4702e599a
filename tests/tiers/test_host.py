"""The RAM pool: places never overlap, never exceed the limit, and both classes get their share."""

import mmap
import random
import threading
from pathlib import Path

import psutil
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from localkv.errors import ConfigError
from localkv.tiers import host
from localkv.tiers.host import HostPool, available_memory, ram_budget

KINDS = st.sampled_from(["block", "checkpoint"])


class PoolAgainstDictionary(RuleBasedStateMachine):
    """A pool driven at random, against a dictionary of what each place must still hold."""

    held = Bundle("held")

    @initialize(
        block=st.sampled_from([4096, 5000, 12288]),
        checkpoint=st.sampled_from([100, 4096, 40000, 90000]),
        limit=st.sampled_from([4096, 50000, 65536, 200000, 400000]),
        arena=st.sampled_from([4096, 65536]),
    )
    def begin(self, block, checkpoint, limit, arena):
        self.pinned = {}
        self.sizes = {"block": block, "checkpoint": checkpoint}
        self.pool = HostPool(block, checkpoint, limit, self, arena_bytes=arena)
        self.model = {}

    def pin(self, address, size):
        assert address % mmap.PAGESIZE == size % mmap.PAGESIZE == 0
        assert all(address + size <= other or other + n <= address for other, n in self.pinned.items())
        self.pinned[address] = size
        return ""

    @rule(target=held, kind=KINDS, share=st.floats(0, 1), seed=st.integers(0, 255))
    def reserve(self, kind, share, seed):
        n_bytes = int(self.sizes[kind] * share)
        free = self.pool.n_free(kind)
        place = self.pool.reserve(kind, n_bytes)
        assert (place is not None) == (free > 0)
        if place is None:
            return None
        assert place.index not in self.model
        view = place.view(self.sizes[kind])
        view[:] = bytes([seed]) * len(view)
        self.model[place.index] = (place, seed, len(view))
        assert len(place.view(n_bytes)) == n_bytes
        return place.index

    @rule(index=consumes(held))
    def release(self, index):
        if index is not None:
            place, _, _ = self.model.pop(index)
            self.pool.release(place)

    @rule(kind=KINDS, n_bytes=st.sampled_from([0, 1, 50000, 10**9]))
    def warm(self, kind, n_bytes):
        before = self.pool.committed_bytes
        touched = self.pool.warm(n_bytes, kind)
        assert touched >= self.pool.committed_bytes - before

    @invariant()
    def agree(self):
        self.pool.check()
        assert self.pool.committed_bytes <= self.pool.limit_bytes
        assert self.pool.used_bytes == sum(len(place.memory) for place, _, _ in self.model.values())
        assert self.pool.pinned_bytes == self.pool.committed_bytes == sum(self.pinned.values())
        for place, seed, n_bytes in self.model.values():
            assert bytes(place.view(n_bytes)) == bytes([seed]) * n_bytes

    def unpin(self, address):
        del self.pinned[address]

    def teardown(self):
        if hasattr(self, "pool"):
            self.pool.close()
            assert not self.pinned
            assert not self.pool.pinned_bytes


PoolAgainstDictionary.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestPool = PoolAgainstDictionary.TestCase


def test_no_limit_no_place():
    """With a limit of nothing there is no RAM tier: no place, not even for records without bytes."""
    pool = HostPool(4096, 4096, 0)
    assert pool.reserve("block", 10) is None
    assert pool.n_free("checkpoint") == 0
    assert pool.warm(1 << 20) == 0
    assert HostPool(0, 4096, 0).reserve("block", 0) is None


def test_records_without_bytes_have_places():
    """A model without full-attention rows has empty blocks; they take no memory and are counted like others."""
    pool = HostPool(0, 4096, 4096)
    places = [pool.reserve("block", 0) for _ in range(100)]
    assert len({place.index for place in places}) == 100
    assert len(places[0].view(0)) == 0
    assert pool.committed_bytes == pool.used_bytes == 0
    for place in places:
        pool.release(place)
    pool.check()


def test_places_start_on_pages():
    """Every place is page aligned, as direct I/O and device registration ask for."""
    pool = HostPool(5000, 9000, 1 << 20)
    for kind in ("block", "checkpoint"):
        for _ in range(3):
            view = pool.reserve(kind, 5000).view(5000)
            address = host.ctypes.addressof(host.ctypes.c_char.from_buffer(view))
            assert address % 4096 == 0


def test_an_idle_arena_goes_to_the_class_that_needs_it():
    """A pool full of free blocks still has room for a checkpoint, and the other way round."""
    pool = HostPool(4096, 65536, 65536, arena_bytes=65536)
    blocks = [pool.reserve("block", 4096) for _ in range(16)]
    assert None not in blocks
    assert pool.reserve("checkpoint", 1) is None
    for block in blocks:
        pool.release(block)
    checkpoint = pool.reserve("checkpoint", 65536)
    assert checkpoint is not None
    assert pool.reserve("block", 1) is None
    pool.release(checkpoint)
    assert pool.reserve("block", 4096) is not None
    pool.check()


def test_classes_of_similar_size_share_their_places():
    """With full attention only a checkpoint is a little smaller than a block: neither class can be starved by the other."""
    for first, second in (("block", "checkpoint"), ("checkpoint", "block")):
        pool = HostPool(4096, 4096, 64 * 4096)
        taken = [pool.reserve(first, 4096) for _ in range(64)]
        assert None not in taken
        assert pool.reserve(second, 4096) is None
        pool.release(taken[3])
        assert pool.n_free(second) == 1
        assert pool.reserve(second, 4096) is taken[3]
        pool.check()


def test_a_small_limit_is_shared():
    """A limit smaller than a usual arena still gives places to both classes, however greedy the first one is."""
    pool = HostPool(5000, 90000, 4 << 20)
    assert pool.reserve("block", 5000) is not None
    assert pool.reserve("checkpoint", 90000) is not None
    assert pool.reserve("block", 5000) is not None
    pool.check()


def test_the_warmest_place_goes_out_first():
    """The place that was given back last is given out next: its pages are there."""
    pool = HostPool(4096, 4096, 1 << 20)
    first, second = pool.reserve("block", 1), pool.reserve("block", 1)
    pool.release(first)
    assert pool.reserve("block", 1) is first
    pool.release(second)
    pool.release(first)
    assert [pool.reserve("block", 1), pool.reserve("block", 1)] == [first, second]


def test_giving_back_twice_is_a_bug():
    """A place given back twice would be given out twice."""
    pool = HostPool(4096, 4096, 1 << 20)
    place = pool.reserve("block", 1)
    pool.release(place)
    with pytest.raises(AssertionError):
        pool.release(place)


def test_memory_that_the_system_refuses_counts_as_full(monkeypatch):
    """When the system gives no more memory the pool is full at what it has, and says so."""
    pool = HostPool(4096, 4096, 1 << 20, arena_bytes=8192)
    first = pool.reserve("block", 1)

    def refuse(n_bytes):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(host, "_map", refuse)
    assert pool.reserve("block", 1) is not None
    assert pool.reserve("block", 1) is None
    assert pool.n_free("block") == 0
    assert pool.limit_bytes == pool.committed_bytes == 8192
    pool.release(first)
    assert pool.reserve("block", 1) is first


class Device:
    """Registers so many arenas and no more."""

    def __init__(self, n_arenas):
        self.n_arenas = n_arenas
        self.asked, self.pinned = 0, set()

    def pin(self, address, _size):
        self.asked += 1
        if len(self.pinned) == self.n_arenas:
            return "no more"
        self.pinned.add(address)
        return ""

    def unpin(self, address):
        self.pinned.remove(address)


def test_a_refused_pin_is_told_once():
    """Arenas that the device does not register work all the same; the refusal has a reason, and is not asked for again."""
    device, told = Device(2), []
    pool = HostPool(4096, 4096, 1 << 20, device, arena_bytes=8192, refusal=told.append)
    least = pool.limit_bytes // host.MIN_ARENAS
    places = [pool.reserve("block", 4096) for _ in range(pool.n_free("block"))]
    assert None not in places
    assert (told, device.asked) == (["no more"], 3)
    assert 2 * least >= pool.pinned_bytes > 0
    assert pool.committed_bytes == pool.limit_bytes
    pool.close()
    assert (pool.pinned_bytes, device.pinned) == (0, set())


def test_no_more_is_pinned_than_allowed():
    """Memory beyond the cap stays pageable, with a sentence, and the device is not asked for it."""
    device, told = Device(1000), []
    pool = HostPool(4096, 4096, 1 << 20, device, arena_bytes=8192, pin_bytes=20_000, refusal=told.append)
    assert pool.warm(1 << 19) >= 1 << 19
    assert 0 < pool.pinned_bytes <= 20_000
    assert len(told) == 1
    assert device.asked == len(device.pinned)


@pytest.mark.parametrize("can_populate", [True, False])
def test_warming_brings_pages_in(monkeypatch, can_populate):
    """Warm memory is resident before anyone writes to it, and what places hold is left alone."""
    if not can_populate:
        monkeypatch.setattr(host, "_populate", lambda memory: False)
    pool = HostPool(1 << 20, 4096, 64 << 20, arena_bytes=1 << 20)
    place = pool.reserve("block", 4)
    place.view(4)[:] = b"kept"
    before = psutil.Process().memory_info().rss
    assert pool.warm(32 << 20) >= 32 << 20
    assert psutil.Process().memory_info().rss - before >= 24 << 20
    assert bytes(place.view(4)) == b"kept"
    assert pool.n_free("block") == 63
    assert pool.warm(32 << 20) == 0
    pool.check()


def test_threads_share_the_pool():
    """Several threads that reserve, write and give back while another warms never see each other's bytes."""
    pool = HostPool(4096, 8192, 40 * 4096, arena_bytes=16384)
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        held = []
        for _ in range(400):
            place = pool.reserve(rng.choice(["block", "checkpoint"]), 4096)
            if place is not None:
                place.view(4096)[:] = bytes([seed]) * 4096
                held.append(place)
            if held and (place is None or rng.random() < 0.5):
                back = held.pop(rng.randrange(len(held)))
                if bytes(back.view(4096)) != bytes([seed]) * 4096:
                    wrong.append(back.index)
                pool.release(back)
        for place in held:
            pool.release(place)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    threads.append(threading.Thread(target=lambda: [pool.warm(8192) for _ in range(50)]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.used_bytes == 0
    pool.check()


def test_the_budget_is_a_share_of_what_is_there(monkeypatch):
    """ "auto" is a quarter of the available memory; a size is taken as said, up to 80 % of it; nonsense is refused."""
    monkeypatch.setattr(host, "available_memory", lambda: 100 << 30)
    assert ram_budget("auto") == 25 << 30
    assert ram_budget("8 GiB") == 8 << 30
    assert ram_budget("0") == 0
    assert ram_budget("99 GiB") == 80 << 30
    with pytest.raises(ConfigError):
        ram_budget("much")


def test_available_memory_is_a_plausible_number():
    """What this machine says lies between nothing and all of its memory."""
    assert 0 <= available_memory() <= psutil.virtual_memory().total


def group(directory, names, limit, usage, cache):
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, usage), strict=True):
        (directory / name).write_text(f"{value}\n")
    (directory / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\ntotal_inactive_file {cache}\n")


def test_container_limits_count(tmp_path):
    """A memory limit of any control group above the process bounds what is available, in both versions of them."""
    v2 = ("memory.max", "memory.current")
    membership = tmp_path / "cgroup"
    membership.write_text("0::/user.slice/app.scope\n")
    group(tmp_path / "v2/user.slice", v2, 1000, 400, 100)
    group(tmp_path / "v2/user.slice/app.scope", v2, "max", 300, 0)
    assert host._cgroup_rooms(membership, tmp_path / "v2") == [700]
    group(tmp_path / "v2/user.slice/app.scope", v2, 300, 500, 0)
    assert sorted(host._cgroup_rooms(membership, tmp_path / "v2")) == [0, 700]

    membership.write_text("4:cpu,cpuacct:/x\n3:memory:/docker/abc\n1:name=systemd:/\n0::/\n")
    group(tmp_path / "v1/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes"), 5000, 1000, 0)
    assert host._cgroup_rooms(membership, tmp_path / "v1") == [4000]
    assert host._cgroup_rooms(tmp_path / "absent", tmp_path) == []


def test_giving_back_costs_no_record_and_frees_pages():
    """Only arenas that hold nothing go back, their memory with them; places stay and read as zeros until they are filled again."""
    pool = HostPool(1 << 20, 4096, 64 << 20, arena_bytes=4 << 20)
    places = [pool.reserve("block", 1 << 20) for _ in range(12)]
    for place in places:
        place.view(1 << 20)[:] = b"\x07" * (1 << 20)
    kept = places[0]
    for place in places[1:]:
        pool.release(place)
    n_used = pool.n_used(kept.arena)
    before = _resident_bytes()
    freed = pool.give_back()
    assert freed == 8 << 20
    assert n_used == 1
    assert bytes(kept.view(1 << 20)) == b"\x07" * (1 << 20)
    if before:
        assert before - _resident_bytes() > 6 << 20
    assert pool.give_back() == 0, "nothing is given back twice"
    again = [pool.reserve("block", 1 << 20) for _ in range(11)]
    assert None not in again
    pool.check()


def _resident_bytes():
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def test_memory_is_asked_for_before_it_is_taken():
    """A limit set when there was plenty is no licence: where other programs have taken the rest, records are evicted instead."""
    free = [host.RESERVE_BYTES + (4 << 20)]
    pool = HostPool(1 << 20, 4096, 64 << 20, arena_bytes=4 << 20, available=lambda: free[0] - pool.committed_bytes)
    places = [pool.reserve("block", 1 << 20) for _ in range(5)]
    assert [place is None for place in places] == [False] * 4 + [True]
    pool.warm(8 << 20)
    assert pool.committed_bytes == 4 << 20
    free[0] += 4 << 20
    assert pool.reserve("block", 1 << 20) is not None, "it grows again as soon as there is memory again"
    assert pool.limit_bytes == 64 << 20
    pool.check()
