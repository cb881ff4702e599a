"""Room in RAM: who leaves, who waits, who is told that there is none; and that nobody waits for ever."""

import threading

import pytest

from localkv.errors import BadRecord
from localkv.events import EventLog, Reason
from localkv.files import Files
from localkv.kv.layout import Layer, Layout, State
from localkv.kv.record import Head, describe, pack_ids, root_name
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Ground, Question, SlotView, without_room
from localkv.placement.policy import Policy
from localkv.placement.warmth import first_use
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool
from localkv.tiers.transfer import Transfers
from tests.placement.lives import IDENTITY, LAYOUT, PLENTY, SIZE, Life

pytestmark = pytest.mark.timeout(60)  # a deadlock is what these tests are about

STATEFUL = Layout((*LAYOUT.layers, Layer(2, states=(State("ssm", (8192,), "F32"),))), SIZE)
"""Checkpoints of 32 KiB beside blocks of 8: neither fits the places of the other."""


@pytest.fixture
def engine(tmp_path):
    """Makes engines with little RAM; checked and closed at the end."""
    made = []

    def make(places=4, layout=LAYOUT, limits=PLENTY, files=None, store=True, policy=None):
        life = Life.__new__(Life)
        life.events = EventLog(None, keep=10_000)
        room = places * (layout.block_bytes + layout.max_checkpoint_bytes)
        life.pool = HostPool(layout.block_bytes, layout.max_checkpoint_bytes, room)
        opened = Store.open(tmp_path / "store", IDENTITY, layout, files or Files(), life.events) if store else None
        ground = Ground(layout, IDENTITY, "print")
        life.keeper = Keeper(ground, life.pool, opened, Transfers(2), limits, life.events, policy)
        made.append(life)
        return life

    yield make
    for life in made:
        life.keeper.check()
        life.keeper.close()
        assert [event for event in life.events.recent if event.kind == "control.bug"] == []


def moves(life, **wanted):
    found = [event.fields for event in life.events.recent if event.kind == "move"]
    return [move for move in found if all(move[key] == value for key, value in wanted.items())]


def long_talk(n):
    return list(range(n * SIZE))


def test_a_conversation_larger_than_the_pool_passes_through_it(engine):
    """Eighty blocks are restored through a pool of about eight, each byte right: places come back as they are used."""
    life = engine(places=4)
    ids = long_talk(80)
    head = life.admit(ids)
    assert life.keeper.flush(30)
    life.keeper.shed()
    assert life.restore(ids, head)[0] == len(ids)
    assert life.pool.used_bytes <= life.pool.limit_bytes


def test_what_lies_in_ram_at_the_end_does_not_block_what_is_read_for_the_beginning(engine):
    """The pool is full of the last blocks of a conversation and its first ones are on SSD: they are brought in order."""
    life = engine(places=4, policy=Policy(high=1.0, low=1.0))
    ids = long_talk(40)
    head = life.admit(ids)
    assert life.keeper.flush(30)
    plan = life.keeper.plan(Question("c", [*ids, 1], head), SlotView())
    assert [piece.tier for piece in plan.pieces][:1] == ["ssd"]
    assert [piece.tier for piece in plan.pieces][-1:] == ["ram"]
    assert life.restore(ids, head)[0] == len(ids)


def test_decoding_does_not_wait_for_a_paused_save(engine):
    """In the middle of an answer the pool is full of unsaved blocks: saving goes on at once, not after the longest pause."""
    life = engine(places=4)
    with life.keeper.quiet():
        life.admit(long_talk(60))  # the test's time limit is far below the pause
        assert moves(life, reason="save")


def test_the_pool_never_takes_more_than_its_limit(engine):
    """However much comes, memory is checked before it is taken: others were killed by the system for less."""
    life = engine(places=6)
    for seed in range(10):
        life.admit(list(range(seed * 1000, seed * 1000 + 10 * SIZE)))
        assert life.pool.committed_bytes <= life.pool.limit_bytes
        assert life.keeper.counts().ram.used_bytes <= life.pool.limit_bytes


def test_above_the_high_mark_the_pool_is_trimmed_to_the_low_one(engine):
    """After a turn, without anybody waiting; what is on SSD leaves RAM for nothing."""
    life = engine(places=20, policy=Policy(high=0.5, low=0.25))
    with life.keeper.quiet():
        life.admit(long_talk(30))
    assert life.keeper.flush(30)
    with life.keeper.quiet():
        pass
    assert life.keeper.counts().ram.used_bytes <= 0.3 * life.pool.limit_bytes
    gone = moves(life, reason="trim")
    assert gone
    assert all((move["from"], move["to"]) == ("ram", "ssd") for move in gone)


def test_the_end_of_a_chain_leaves_first(engine):
    """What is trimmed of one conversation are its last blocks."""
    life = engine(places=20, policy=Policy(high=0.5, low=0.25))
    ids = long_talk(30)
    with life.keeper.quiet():
        head = life.admit(ids)
    assert life.keeper.flush(30)
    with life.keeper.quiet():
        pass
    plan = life.keeper.plan(Question("c", [*ids, 1], head), SlotView())
    tiers = [piece.tier for piece in plan.pieces]
    assert tiers == sorted(tiers), "first those in RAM, then those on SSD"
    assert set(tiers) == {"ram", "ssd"}


def test_without_a_store_the_least_valuable_is_given_up(engine):
    """Nothing can be saved: the oldest ends are lost, each with its reason, and the newest conversation is whole."""
    life = engine(places=4, store=False)
    first = list(range(5000, 5000 + 4 * SIZE))
    old_head = life.admit(first)
    ids = long_talk(6)
    head = life.admit(ids)
    assert life.restore(ids, head)[0] == len(ids)
    restored, plan = life.restore(first, old_head)
    assert restored < len(first)
    assert plan.lost[0][0] == Reason.NO_ROOM
    assert moves(life, reason="no_room", to="")


def test_a_full_disk_gives_the_reason(engine):
    """What is lost because the budget of the SSD has no room for it is told so."""
    life = engine(places=4, limits=SsdLimits(0, 0))
    heads = [(ids := list(range(seed * 1000, seed * 1000 + 4 * SIZE)), life.admit(ids)) for seed in range(6)]
    life.keeper.flush(5)
    lost = [life.restore(ids, head)[1].lost for ids, head in heads[:4]]
    life.admit(long_talk(20))
    lost = [life.restore(ids, head)[1].lost for ids, head in heads]
    assert {reason for one in lost for reason, _ in one} <= {Reason.BUDGET, Reason.NO_ROOM}
    assert any(one for one in lost)


def test_what_a_turn_holds_is_not_given_up(engine):
    """Unsaved records that a turn needs stay, even if the new ones can't be kept then; whoever wants a place is told."""
    life = engine(places=4, store=False)
    ids = long_talk(7)
    head = life.admit(ids)
    plan = life.keeper.plan(Question("c", [*ids, 1], head), SlotView())
    assert plan.resume_at == len(ids)
    with life.keeper.hold(plan):
        life.admit(list(range(9000, 9000 + 10 * SIZE)))
        assert len(list(life.keeper.bring(plan))) == 7
    assert [event for event in life.events.recent if event.kind == "no_room"]


def test_no_room_ends_in_a_shorter_plan(engine):
    """If there is no place for a record, what comes before it is brought all the same, and the reason is told."""
    life = engine(places=4, policy=Policy(high=1.0, low=1.0))
    ids = long_talk(12)
    head = life.admit(ids)
    assert life.keeper.flush(30)
    life.keeper.shed()
    taken = []
    while (place := life.pool.reserve("block", LAYOUT.block_bytes)) is not None:
        taken.append(place)
    while (place := life.pool.reserve("checkpoint", LAYOUT.max_checkpoint_bytes)) is not None:
        taken.append(place)
    question = Question("c", [*ids, 1], head)
    plan = life.keeper.plan(question, SlotView())
    with pytest.raises(BadRecord) as caught, life.keeper.hold(plan):
        list(life.keeper.bring(plan))
    assert caught.value.reason == Reason.NO_ROOM
    shorter = life.keeper.plan(without_room(question, plan, caught.value.name), SlotView())
    assert shorter.resume_at == 0
    assert shorter.lost == ((Reason.NO_ROOM, len(ids)),)
    for place in taken:
        life.pool.release(place)
    assert life.restore(ids, head)[0] == len(ids), "nothing was struck out for that"


def test_an_errand_that_is_given_up_gives_its_places_back(engine):
    """A turn is cancelled in the middle of a restore: nothing stays pinned, and all of it can be brought afterwards."""
    life = engine(places=4)
    ids = long_talk(30)
    head = life.admit(ids)
    assert life.keeper.flush(30)
    life.keeper.shed()
    for n in (1, 2, 5):
        plan = life.keeper.plan(Question("c", [*ids, 1], head), SlotView())
        with life.keeper.hold(plan):
            bringing = life.keeper.bring(plan)
            for _ in range(n):
                next(bringing)
            bringing.close()
    assert life.restore(ids, head)[0] == len(ids)
    index = life.keeper._index
    assert life.keeper._box.ask(lambda: [entry for entry in index.entries.values() if entry.pins or entry.holds]) == []


def test_a_record_that_two_wait_for_is_read_once(engine):
    """A restore is cancelled and asked for again while its file is being read: the second joins the first read."""
    gate, reads = threading.Event(), []

    class Slow(Files):
        def read_parts(self, path, parts):
            reads.append(path.stem)
            gate.wait(20)
            return super().read_parts(path, parts)

    life = engine(places=8, files=Slow())
    ids = long_talk(4)
    head = life.admit(ids)
    assert life.keeper.flush(30)
    life.keeper.shed()
    plan = life.keeper.plan(Question("c", [*ids, 1], head), SlotView())
    with life.keeper.hold(plan):
        errand = life.keeper._box.ask(lambda: life.keeper._fetch.begin(plan.to_bring))
        life.keeper._box.ask(lambda: life.keeper._fetch.end(errand))
        timer = threading.Timer(0.05, gate.set)
        timer.start()
        assert len(list(life.keeper.bring(plan))) == 4
        timer.join()
    assert len(reads) == len(set(reads)) == 4


def keep_state(life, layout, seed, n_blocks):
    """A conversation with a state of its own at its end."""
    parent, ids = root_name(IDENTITY), [seed] * (n_blocks * SIZE)
    for i in range(n_blocks):
        payload = bytes([seed, i]) * (layout.block_bytes // 2)
        record = describe("block", parent, pack_ids(ids[:SIZE]), (i + 1) * SIZE, "print", payload)
        parent = _keep(life, "block", record, payload)
    payload = bytes([seed]) * layout.checkpoint_bytes(len(ids))
    return _keep(life, "checkpoint", describe("checkpoint", parent, b"", len(ids), "print", payload), payload)


def _keep(life, kind, record, payload):
    with life.keeper.reserve(kind, len(payload)) as place:
        if place.view is not None:
            place.view[:] = payload
            place.commit(record)
    return record.name


def test_two_size_classes_share_the_pool(engine):
    """States and blocks of different sizes come and go: a pool full of one class makes room for the other, and none starves."""
    life = engine(places=4, layout=STATEFUL)
    for seed in range(1, 12):
        keep_state(life, STATEFUL, seed, 1 + seed % 4)
    for seed in range(12, 20):
        keep_state(life, STATEFUL, seed, 9)
    assert life.keeper.flush(30)
    assert not [event for event in life.events.recent if event.kind == "no_room"]
    assert life.keeper.counts().ssd.records == sum(2 + seed % 4 for seed in range(1, 12)) + 8 * 10


def test_shedding_leaves_what_is_not_saved(engine):
    """Only what the SSD has too may go for the asking."""
    life = engine(places=20)
    with life.keeper.quiet():
        life.admit(long_talk(6))
        assert life.keeper.shed() == 0
    assert life.keeper.flush(30)
    assert life.keeper.shed() == 6


def test_an_arena_of_blocks_is_emptied_for_a_state(engine):
    """Memory that only ever held blocks serves states when they are wanted: the arena that is dearest to nobody is emptied."""
    life = engine(places=4, layout=STATEFUL, policy=Policy(high=1.0, low=1.0))
    parent = root_name(IDENTITY)
    for i in range(life.pool.limit_bytes // STATEFUL.block_bytes + 4):
        payload = i.to_bytes(2, "little") * (STATEFUL.block_bytes // 2)
        record = describe("block", parent, pack_ids([i] * SIZE), (i + 1) * SIZE, "print", payload)
        parent = _keep(life, "block", record, payload)
    assert life.keeper.flush(30)
    assert not life.pool.n_free("checkpoint")
    keep_state(life, STATEFUL, 1, 0)
    assert not [event for event in life.events.recent if event.kind == "no_room"]
    index = life.keeper._index
    assert life.keeper._box.ask(lambda: [entry.row.kind for entry in index.in_ram.values()]).count("checkpoint") == 1


@pytest.mark.parametrize("places", [3, 4, 6, 9])
@pytest.mark.parametrize("n_blocks", [0, 2, 5])
def test_nobody_leaves_for_a_preload_whom_it_does_not_help(engine, places, n_blocks):
    """A state cannot lie where blocks have left: as many bytes come as go, and asked for again and again nothing more goes."""
    life = engine(places=places, layout=STATEFUL)
    wanted = [1] * (n_blocks * SIZE)
    head = Head(keep_state(life, STATEFUL, 1, n_blocks), IDENTITY, len(wanted), "print")
    assert life.keeper.flush(30)
    life.keeper.shed()
    parent = root_name(IDENTITY)
    for i in range(life.pool.limit_bytes // STATEFUL.block_bytes):
        payload = i.to_bytes(2, "little") * (STATEFUL.block_bytes // 2)
        parent = _keep(
            life, "block", describe("block", parent, pack_ids([i + 9] * SIZE), (i + 1) * SIZE, "print", payload), payload
        )
    assert life.keeper.flush(30)
    life.keeper.plan(Question("other", [5, 5], None), SlotView())
    for entry in life.keeper._index.in_ram.values():
        entry.entered, entry.known_warmth = 0.0, first_use(1.0)  # nobody has wanted them for long
    above = max(0.0, life.pool.used_bytes - 0.9 * life.pool.limit_bytes)
    for _ in range(5):
        ended = threading.Event()
        life.keeper.preload(Question("c", [*wanted, 1], head), ended.set, pointed_at=True)
        assert ended.wait(30)
    life.keeper.check()
    sizes, index = life.pool.place_bytes, life.keeper._index
    went = [
        event.fields["bytes"]
        for event in life.events.recent
        if event.fields.get("reason") == "preload" and event.fields["from"] == "ram"
    ]
    came = [sizes[entry.row.kind] for entry in index.in_ram.values() if entry.is_early]
    assert sum(went) <= sum(came) + above
