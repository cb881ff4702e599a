"""The way out of the slot: records are copied and named beside the model's work, in order, and nothing is lost or leaked on the way."""

import contextlib

import pytest
import torch

from localkv.admission import Admission
from localkv.engine.copier import DirectCopier
from localkv.engine.late import LateCopier
from localkv.engine.live import Live
from localkv.engine.slot import IN_FLIGHT, Slot
from localkv.events import EventLog
from localkv.kv.layout import Layer, Layout, Rows, State
from localkv.kv.record import describe, pack_ids, root_name
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Ground
from localkv.tiers.host import HostPool
from localkv.tiers.transfer import Transfers

SIZE = 16
ROWS = Rows(2, 8, "BF16")
FULL = Layout((Layer(0, ROWS, ROWS), Layer(1, ROWS, ROWS)), SIZE)
HYBRID = Layout((Layer(0, ROWS, ROWS), Layer(1, None, None, None, (State("conv0", (4, 3), "F32"),))), SIZE)
STATES = Layout((Layer(0, None, None, None, (State("conv0", (4, 3), "F32"),)),), SIZE)
CPU = torch.device("cpu")


class Way:
    """A slot without a model, and its way out; `feed` writes what a forward would."""

    def __init__(self, layout, copier, places=64):
        self.layout = layout
        slot = Slot(layout, 64 * SIZE, CPU, copier)
        self.keeper = Keeper(
            Ground(layout, "id", "print"),
            HostPool(layout.block_bytes, layout.max_checkpoint_bytes, places * 4096),
            None, Transfers(1), SsdLimits(0, 0), EventLog(None, keep=1000),
        )  # fmt: skip
        self.live = Live(None, slot, layout, CPU, root_name("id"), "print")
        self.live.reset()
        self.admission = Admission(self.live, self.keeper)

    def feed(self, n):
        self.live.workspace.catch_up()
        for slab in self.live.slot.regions.slabs:
            for i in range(self.live.position, self.live.position + n):
                slab[:, :, i].fill_(float(i))
        for state in self.live.slot.regions.states:
            state.fill_(float(self.live.position + n))
        self.live.ids.extend(range(self.live.position, self.live.position + n))
        self.live.end = ""
        self.live.workspace.move_to(self.live.position)

    def known(self):
        return self.keeper._box.ask(lambda: {name: entry.row for name, entry in self.keeper._index.entries.items()})

    def close(self):
        self.admission.close()
        self.keeper.check()
        self.keeper.close()


@pytest.fixture
def way():
    """Makes Ways and closes them."""
    with contextlib.ExitStack() as stack:

        def make(*args, **kwargs):
            made = Way(*args, **kwargs)
            stack.callback(made.close)
            return made

        yield make


def truth(layout, n_blocks, position):
    """The names of `n_blocks` blocks and of the state at `position`, made from the bytes that they must have."""
    parent, names = root_name("id"), []
    for i in range(n_blocks):
        rows = torch.arange(i * SIZE, (i + 1) * SIZE).to(torch.bfloat16)
        payload = b"".join(
            rows.view(1, 1, SIZE, 1)
            .expand(len(slab.entries), slab.heads, SIZE, slab.dim)
            .contiguous()
            .view(torch.uint8)
            .numpy()
            .tobytes()
            for slab in layout.full_slabs
        )
        ids = pack_ids(range(i * SIZE, (i + 1) * SIZE))
        names.append(describe("block", parent, ids, (i + 1) * SIZE, "print", payload).name)
        parent = names[-1]
    return names


@pytest.mark.parametrize("layout", [FULL, HYBRID, STATES], ids=["full", "hybrid", "states"])
def test_names_are_those_of_the_bytes(way, layout):
    """However late the copies land, each record is named by its own bytes and its parent's name, and the keeper has all of them."""
    for seed in range(10):
        late, direct = way(layout, LateCopier(seed)), way(layout, DirectCopier(staged=False))
        for one in (late, direct):
            for n in (SIZE, 3, 40, 5 * SIZE, 1, 7):
                one.feed(n)
                one.admission.full_blocks(checkpoint_every=2)
            one.head = one.admission.keep_state()
        assert late.live.names == direct.live.names == truth(layout, late.live.position // SIZE, late.live.position)
        assert late.head == direct.head
        assert set(late.known()) == set(direct.known()) >= {late.head.name}


def test_the_model_waits_for_no_copy(way):
    """While copies are under way blocks are only sent, at most so many at once; they enter, in order, when somebody asks later."""
    one = way(FULL, Stuck())
    one.feed(10 * SIZE)
    one.admission.full_blocks()
    one.admission.full_blocks()
    assert (one.live.names, len(one.admission._leaving)) == ([], IN_FLIGHT)
    one.live.slot.copier.stuck = False
    one.admission.settle()
    assert one.live.names == truth(FULL, 10, 10 * SIZE)
    assert one.keeper.counts().ram.records == 10


class Stuck(LateCopier):
    """Nothing happens by itself."""

    stuck = True

    def _do_one(self):
        return False if self.stuck else super()._do_one()


def test_a_turn_that_failed_leaves_nothing_behind(way):
    """Places of what was under way are given back, and the same blocks can be sent again."""
    one = way(FULL, LateCopier(1))
    one.feed(3 * SIZE)
    one.admission.full_blocks()
    one.admission.abandon()
    assert one.keeper.counts().ram.used_bytes == 0
    one.admission.settle()
    assert one.live.names == truth(FULL, 3, 3 * SIZE)
    assert one.keeper.counts().ram.records == 3


def test_without_room_a_block_still_has_its_name(way):
    """What RAM has no place for is not kept; the chain of names goes on, so that what comes after it can be."""
    one = way(FULL, LateCopier(2), places=0)
    one.feed(4 * SIZE + 3)
    one.admission.full_blocks()
    assert one.admission.keep_state() is None
    assert one.live.names == truth(FULL, 4, 4 * SIZE)
    assert one.known() == {}


def test_a_state_on_the_way_is_sent_while_it_is_there(way):
    """A model that resumes at states alone has one at each so-manyth edge, even if blocks had to wait before it."""
    one = way(HYBRID, LateCopier(3))
    for _ in range(8):
        one.feed(SIZE)
        one.admission.full_blocks(checkpoint_every=4)
    one.admission.settle()
    states = [row for row in one.known().values() if row.kind == "checkpoint"]
    assert sorted(row.position for row in states) == [4 * SIZE, 8 * SIZE]
    assert {row.parent for row in states} == {one.live.names[3], one.live.names[7]}


def test_the_end_is_known_only_while_it_is_the_state(way):
    """What is parked as a conversation's end is exactly its state: one token more and there is none."""
    one = way(FULL, LateCopier(4))
    one.feed(SIZE + 5)
    head = one.admission.keep_state()
    assert one.live.end == head.name
    one.live.rewind(SIZE + 2)
    assert one.live.end == ""
    one.feed(3)
    assert one.live.end == ""
