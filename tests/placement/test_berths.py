"""Berths on the device: bytes that are right through any order of events, the dearest stay, and leaving is free and told."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from localkv.errors import BadRecord
from localkv.events import EventLog
from localkv.kv.layout import Layer, Layout, Rows
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Question, SlotView
from localkv.placement.policy import Rank, Resident, whole_arena
from localkv.placement.warmth import first_use
from localkv.tiers.device import DevicePool
from localkv.tiers.host import HostPool
from localkv.tiers.places import aligned
from localkv.tiers.transfer import Transfers
from tests.placement.lives import GROUND, IDENTITY, LAYOUT, PLENTY, SIZE, Life, payload_of
from tests.placement.test_keeper import BUDGET, Keeping, RecordsOnly

PLACES = 8


class Device:
    """A pool on a device whose memory is a bytearray."""

    def __init__(self, n_places: int = PLACES, layout: Layout = LAYOUT) -> None:
        n_bytes = n_places * aligned(layout.block_bytes)
        self.pool = DevicePool(layout.block_bytes, layout.max_checkpoint_bytes, n_bytes)
        self.memory = bytearray(self.pool.limit_bytes)

    def park(self, keeper: Keeper, records: dict[str, bytes]) -> list[str]:
        """What the engine does when a conversation leaves the slot; who got a berth."""
        with keeper.berths.park(list(records)) as berths:
            for berth in berths:
                assert len(berth.memory) == len(records[berth.name])
                self.memory[berth.memory.start : berth.memory.stop] = records[berth.name]
        return [berth.name for berth in berths]

    def read(self, payload: memoryview | range) -> bytes:
        """The bytes that a turn would copy into the slot."""
        return bytes(self.memory[payload.start : payload.stop] if isinstance(payload, range) else payload)


class ThreeTiers(Keeping):
    """The keeper's life with a device beside RAM and SSD, against the same plain dictionary."""

    def open(self):
        self.device = Device()
        self.events = EventLog(None, keep=10_000)
        store = RecordsOnly.open(self.root, IDENTITY, LAYOUT, self.files, self.events)
        pool = HostPool(LAYOUT.block_bytes, LAYOUT.max_checkpoint_bytes, 12 * LAYOUT.block_bytes)
        limits = SsdLimits(BUDGET, 0)
        self.keeper = Keeper(GROUND, pool, store, Transfers(2), limits, self.events, vram=self.device.pool)

    def bring(self, plan):
        names = []
        for piece, payload in self.keeper.bring(plan, 2):
            assert isinstance(payload, range) == (piece.tier == "vram")
            assert self.device.read(payload) == self.truth[piece.name]
            names.append(piece.name)
        assert names == [piece.name for piece in plan.pieces]

    @rule(talk=Keeping.talks, fails=st.sampled_from([False, False, False, True]))
    def leave_the_slot(self, talk, fails):
        """A conversation leaves the slot, where all of it is; now and then the copying fails half way."""
        plan = self.keeper.look(Question("me", [*talk[0], 7], self.heads[talk]), SlotView())
        records = {piece.name: self.truth[piece.name] for piece in plan.pieces}
        try:
            self.device.park(self.keeper, dict.fromkeys(records, b"")) if fails else self.device.park(self.keeper, records)
        except AssertionError:
            assert fails

    @precondition(lambda self: self.held_plan is not None)
    @rule(talk=Keeping.talks)
    def switch(self, talk):
        """While the turn that comes is held, the conversation before it is parked: nothing that is held makes room for it."""
        before = {piece.name for piece in self.held_plan.pieces if piece.tier == "vram"}
        self.leave_the_slot(talk, False)
        here = self.keeper._box.ask(lambda: set(self.keeper._index.in_vram))
        struck = {event.fields["record"] for event in self.events.recent if event.kind == "strike"}
        assert all(name in here or name[:12] in struck for name in before)


TestThreeTiers = ThreeTiers.TestCase
TestThreeTiers.__doc__ = "Any order of events on three tiers leaves every byte right and every invariant standing."
TestThreeTiers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class Parking(Life):
    """An engine's life with a device."""

    def __init__(self, root, device, places=64):
        super().__init__(root, places=places)
        self.keeper.close()
        pool = HostPool(LAYOUT.block_bytes, LAYOUT.max_checkpoint_bytes, places * LAYOUT.block_bytes)
        self.device = device
        self.keeper = Keeper(GROUND, pool, None, Transfers(1), PLENTY, self.events, vram=device.pool)

    def park(self, ids, head):
        """The conversation `ids` leaves the slot; how many of its records got a berth."""
        plan = self.keeper.look(Question("c", [*ids, 1], head), SlotView())
        return len(self.device.park(self.keeper, {p.name: payload_of(p.kind, ids[: p.end], p.end) for p in plan.pieces}))

    def tiers(self, ids, head):
        plan = self.keeper.look(Question("c", [*ids, 1], head), SlotView())
        return [piece.tier for piece in plan.pieces]

    def moves(self):
        moves = [event.fields for event in self.events.recent if event.kind == "move"]
        return [(move["from"], move["to"], move["reason"]) for move in moves if "vram" in (move["from"], move["to"])]


def conversation(seed, n_blocks):
    return [seed] * (SIZE * n_blocks)


def test_what_leaves_the_slot_has_a_berth(tmp_path):
    """All of a conversation that fits stays on the device, each record with one line: from, to and why."""
    life = Parking(tmp_path / "store", Device())
    ids = conversation(1, 4)
    head = life.admit(ids)
    assert life.park(ids, head) == 4
    assert life.tiers(ids, head) == ["vram"] * 4
    assert life.moves() == [("slot", "vram", "park")] * 4
    assert life.park(ids, head) == 0, "it is there already"
    counts = life.keeper.counts()
    assert (counts.vram.records, counts.vram.swaps_in, counts.ram.records) == (4, 4, 4)
    life.end()


def test_the_newer_conversation_displaces_the_older(tmp_path):
    """When the pool is full the least dear go, for free: their bytes are in RAM, where they were all the time."""
    life = Parking(tmp_path / "store", Device(6))
    first, second = conversation(1, 4), conversation(2, 4)
    heads = [life.admit(first), life.admit(second)]
    index = life.keeper._index
    assert life.park(first, heads[0]) == 4
    for entry in index.entries.values():
        entry.entered = 0.0  # as if none of them had been made just now
    life.restore(second, heads[1])
    assert life.park(second, heads[1]) == 4
    assert life.tiers(second, heads[1]) == ["vram"] * 4
    assert life.tiers(first, heads[0]) == ["vram"] * 2 + ["ram"] * 2
    assert life.moves()[-6:].count(("vram", "ram", "room")) == 2
    life.end()


def test_what_a_turn_holds_makes_no_room(tmp_path):
    """The destination of a switch is held before the conversation that leaves is parked: it keeps its berths."""
    life = Parking(tmp_path / "store", Device(4))
    first, second = conversation(1, 4), conversation(2, 4)
    heads = [life.admit(first), life.admit(second)]
    assert life.park(first, heads[0]) == 4
    plan = life.keeper.plan(Question("c", [*first, 1], heads[0]), SlotView())
    with life.keeper.hold(plan):
        life.keeper.plan(Question("other", [5, 5], None), SlotView())
        for piece in plan.pieces:  # nothing but the hold speaks for them
            entry = life.keeper._index.entries[piece.name]
            entry.entered, entry.known_warmth = 0.0, first_use(1.0)
        assert life.park(second, heads[1]) == 0
        assert {piece.tier for piece, _ in life.keeper.bring(plan)} == {"vram"}
        assert life.keeper.counts().vram.held == 4
    life.end()


def test_a_copy_that_fails_leaves_no_record(tmp_path):
    """Places whose filling broke off are free again, and no plan ever counts on them."""
    life = Parking(tmp_path / "store", Device())
    ids = conversation(1, 4)
    head = life.admit(ids)
    try:
        with life.keeper.berths.park([head.name]):
            raise BadRecord(head.name, "read_error", "the device failed")
    except BadRecord:
        pass
    assert life.tiers(ids, head) == ["ram"] * 4
    assert life.keeper.counts().vram.used_bytes == 0
    life.end()


def test_what_leaves_the_other_tiers_leaves_the_device(tmp_path):
    """A record that is nowhere else is nowhere: the device holds copies, not the last ones."""
    life = Parking(tmp_path / "store", Device(), places=12)
    ids = conversation(1, 4)
    head = life.admit(ids)
    assert life.park(ids, head) == 4
    for seed in range(2, 20):  # nothing can be saved, so RAM gives up what is least dear
        life.admit(conversation(seed, 2))
    counts = life.keeper.counts()
    known = life.keeper._box.ask(lambda: set(life.keeper._index.entries))
    assert head.name not in known
    assert counts.vram.records == sum(1 for tier in life.tiers(ids, head) if tier == "vram")
    assert ("vram", "", "gone") in life.moves()
    life.end()


def test_a_pool_that_is_given_up_is_gone(tmp_path):
    """Its records are told to have left, with the reason; nothing is parked any more, and nothing is planned from there."""
    life = Parking(tmp_path / "store", Device())
    ids = conversation(1, 4)
    head = life.admit(ids)
    assert life.park(ids, head) == 4
    life.keeper.berths.give_up()
    assert life.tiers(ids, head) == ["ram"] * 4
    assert life.moves().count(("vram", "ram", "memory")) == 4
    assert life.park(ids, head) == 0
    life.keeper.berths.give_up()
    life.end()


def test_without_a_device_nothing_is_parked(tmp_path):
    """A machine without a pool asks nothing and does nothing."""
    life = Life(tmp_path / "store")
    head = life.admit(conversation(1, 2))
    with life.keeper.berths.park([head.name]) as berths:
        assert berths == []
    assert life.keeper.counts().vram.limit_bytes == 0
    life.end()


def test_the_arena_that_costs_least_is_emptied():
    """For a place of the other size one arena is emptied, all of whose residents may go: the one whose dearest goes first."""
    names = "abcdef"
    arenas = {"a": 0, "b": 1, "c": 1, "d": 0, "e": 2, "f": -1}
    order = [Resident(("id", name), "", float(i), 0, 10, 1.0, Rank.ORDINARY) for i, name in enumerate(names)]

    def emptied(used):
        return [one.key[1] for one in whole_arena(order, lambda one: arenas[one.key[1]], used.__getitem__)]

    assert emptied({0: 2, 1: 2, 2: 1}) == ["b", "c"]
    assert emptied({0: 2, 1: 3, 2: 1}) == ["a", "d"]
    assert emptied({0: 3, 1: 3, 2: 2}) == []


def test_classes_of_unlike_size_share_the_pool(tmp_path):
    """A pool full of blocks still takes a checkpoint that is many times as large, by emptying whole arenas."""
    layout = Layout(
        (Layer(0, Rows(2, 32, "BF16"), Rows(2, 32, "BF16")), Layer(1, Rows(8, 64, "BF16"), Rows(8, 64, "BF16"), 64)), SIZE
    )
    pool = DevicePool(layout.block_bytes, layout.max_checkpoint_bytes, 1 << 20)
    assert pool.place_bytes["checkpoint"] > 8 * pool.place_bytes["block"]
    blocks = []
    while (place := pool.reserve("block", layout.block_bytes)) is not None:
        blocks.append(place)
    assert pool.reserve("checkpoint", layout.max_checkpoint_bytes) is None
    for place in blocks:
        if place.arena == 1:
            pool.release(place)
    assert pool.reserve("checkpoint", layout.max_checkpoint_bytes) is not None
    pool.check()


def test_a_state_that_was_replaced_goes_first(tmp_path):
    """The conversation goes on: its old end is on the device for nothing, and makes room before anything that is wanted does."""
    life = Parking(tmp_path / "store", Device(4))
    ids = [*conversation(1, 2), 7, 7]
    old = life.admit(ids)
    assert life.park(ids, old) == 3
    longer = [*ids, 8]
    new = life.admit(longer, replaces=old.name)
    assert life.park(longer, new) == 1
    other = conversation(2, 1)
    assert life.park(other, life.admit(other)) == 1
    assert life.tiers(longer, new) == ["vram"] * 3
    here = life.keeper._box.ask(lambda: set(life.keeper._index.in_vram))
    assert old.name not in here
    life.end()
