"""A device that copies late: with every wait in place the slot's bytes are right in any order; without any one of them they are not."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localkv.engine.copier import DirectCopier
from localkv.engine.late import POISON, LateCopier, Step
from localkv.engine.slot import IN_FLIGHT, Slot
from localkv.kv.layout import Layer, Layout, Rows, State

ROWS = Rows(2, 4, "BF16")
LAYOUT = Layout(
    (Layer(0, ROWS, ROWS), Layer(1, ROWS, ROWS, 24), Layer(2, None, None, None, (State("conv0", (4, 3), "F32"),))), 16
)
N_BLOCKS = 6
CPU = torch.device("cpu")


class Careless(LateCopier):
    """Leaves out one kind of wait."""

    def __init__(self, seed: int, wait: str) -> None:
        super().__init__(seed)
        self._wait = wait

    def copy_in(self, host, device, after):
        return super().copy_in(host, device, self._nothing_to_wait_for() if self._wait == "in waits for compute" else after)

    def copy_out(self, device, host, after):
        return super().copy_out(device, host, self._nothing_to_wait_for() if self._wait == "out waits for compute" else after)

    def compute_waits(self, mark):
        if not (self._wait == "compute waits for in" and mark in self._in) and not (
            self._wait == "compute waits for out" and mark in self._out
        ):
            super().compute_waits(mark)

    def _nothing_to_wait_for(self):
        return Step(self, lambda: None, (), True)


WAITS = ("compute waits for in", "in waits for compute", "compute waits for out", "out waits for compute")


def life(slot: Slot, seed: int, *, careless_with: str = "") -> list[bytes]:
    """What a random life of copies and forwards reads on the host; `careless_with` names a host's wait that is left out."""
    order, seen = random.Random(seed), []
    for _ in range(30):
        block = order.randrange(N_BLOCKS)
        what = order.choice(["load", "save", "forward", "state"])
        if what == "load":
            memory = torch.tensor([order.randrange(120) for _ in range(LAYOUT.block_bytes)], dtype=torch.uint8)
            mark = slot.load_block(block, memory)
            if careless_with != "load":
                mark.wait()
            memory.fill_(121)
        elif what == "forward":
            slot.catch_up()
            for region in (*slot.regions.slabs, *slot.regions.states):
                region.copy_(region.roll(1, -1))
        else:
            n_bytes = LAYOUT.block_bytes if what == "save" else LAYOUT.checkpoint_bytes(40)
            memory = torch.zeros(n_bytes, dtype=torch.uint8)
            mark = slot.save_block(block, memory) if what == "save" else slot.save_checkpoint(40, memory)
            if careless_with != what:
                mark.wait()
            seen.append(memory.numpy().tobytes())
    return seen


def busy_life(slot: Slot, seed: int) -> list[bytes]:
    """The same with several copies under way: nothing is waited for until the end, and host memory is not used twice."""
    order, memories = random.Random(seed), []
    for step in range(40):
        block = order.randrange(N_BLOCKS)
        memory = torch.full((LAYOUT.block_bytes,), step, dtype=torch.uint8)
        if step < N_BLOCKS or order.random() < 0.4:
            slot.load_block(block, memory)
        else:
            slot.save_block(block, memory)
        memories.append(memory)
    slot.copier.settle()
    return [memory.numpy().tobytes() for memory in memories]


def slot_with(copier) -> Slot:
    slot = Slot(LAYOUT, N_BLOCKS * LAYOUT.block_tokens, CPU, copier)
    slot.load_checkpoint(40, torch.arange(LAYOUT.checkpoint_bytes(40)).to(torch.uint8)).wait()
    return slot


def direct_slot() -> Slot:
    return slot_with(DirectCopier(staged=False))


@pytest.mark.parametrize("a_life", [life, busy_life])
@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 30))
def test_late_copies_change_no_byte(a_life, seed):
    """In whatever order copies land, the host reads what it would have read if each had been made at once."""
    assert a_life(slot_with(LateCopier(seed)), seed) == a_life(direct_slot(), seed)


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_is_missing_is_caught(wait):
    """Each wait between streams, left out, gives wrong bytes in a few lives: the simulation is no kinder than a device."""
    wrong = [seed for seed in range(20) if busy_life(slot_with(Careless(seed, wait)), seed) != busy_life(direct_slot(), seed)]
    assert wrong


@pytest.mark.parametrize("what", ["load", "save", "state"])
def test_a_host_that_does_not_wait_is_caught(what):
    """Host memory that is read, or used again, before the mark gives wrong bytes."""
    lives = range(10)
    wrong = [
        seed for seed in lives if life(slot_with(LateCopier(seed)), seed, careless_with=what) != life(direct_slot(), seed)
    ]
    assert wrong


def test_what_has_not_landed_is_poison():
    """A host that reads too early sees NaN in every float format, and not by luck what it expects."""
    copier = LateCopier(0)
    device, host = torch.ones(64, dtype=torch.uint8), torch.ones(64, dtype=torch.uint8)
    blocker = copier.mark()
    landed = copier.copy_out(device, host, copier.copy_in(host.clone(), device, blocker))
    assert set(host.tolist()) == {POISON}
    assert all(host.view(dtype).isnan().all() for dtype in (torch.bfloat16, torch.float16, torch.float32))
    landed.wait()
    assert set(host.tolist()) == {1}


def test_a_mark_is_reached_if_it_is_asked_often_enough():
    """Polling ends: time passes with every question."""
    copier = LateCopier(3)
    host = torch.zeros(8, dtype=torch.uint8)
    marks = [copier.copy_out(torch.ones(8, dtype=torch.uint8), host, copier.mark()) for _ in range(5)]
    asked = 0
    while not all(mark.reached() for mark in marks):
        asked += 1
        assert asked < 100
    assert set(host.tolist()) == {1}


def test_streams_keep_their_own_order():
    """Two copies into the same memory land in the order in which they were asked for, however late."""
    for seed in range(20):
        copier, device = LateCopier(seed), torch.zeros(8, dtype=torch.uint8)
        for value in (1, 2, 3):
            last = copier.copy_in(torch.full((8,), value, dtype=torch.uint8), device, copier.mark())
        last.wait()
        assert set(device.tolist()) == {3}


def test_several_copies_are_under_way_at_once():
    """A slot sends as many records as it has stages before the first must have left."""
    slot = slot_with(LateCopier(1))
    memories = [torch.zeros(LAYOUT.block_bytes, dtype=torch.uint8) for _ in range(IN_FLIGHT)]
    marks = [slot.save_block(i, memory) for i, memory in enumerate(memories)]
    assert len({id(mark) for mark in marks}) == IN_FLIGHT
    assert not all(mark.done for mark in marks)
