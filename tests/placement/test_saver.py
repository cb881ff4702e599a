"""Saving: groups, one state per conversation, budget and floor, failures, who leaves the SSD. Each after a complaint about others."""

import threading

import pytest

from localkv.errors import StoreError
from localkv.events import EventLog
from localkv.files import Files
from localkv.kv.record import describe, pack_ids, root_name
from localkv.placement import saver as module
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Ground, Question, SlotView
from localkv.placement.policy import Policy
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool
from localkv.tiers.transfer import Transfers
from tests.placement.lives import GROUND, IDENTITY, LAYOUT, PLENTY, SIZE, Life

FILE = LAYOUT.block_bytes + 4096
OTHER = "cd" * 20


class RecordsOnly(Store):
    """The catalogue's log is as large as hundreds of these small records: left out of the account."""

    def used_bytes(self):
        return self._catalogue.record_bytes()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture(params=[5000, 0], ids=["all", "coldest"])
def engine(root, request, monkeypatch):
    """Makes engines on the store; they are closed at the end. Whoever leaves is chosen from all records, or from the coldest."""
    monkeypatch.setattr(module, "LOOK_AT_ALL", request.param)
    made = []

    def make(limits=PLENTY, files=None, places=64, identity=IDENTITY, policy=None, store=RecordsOnly):
        life = Life.__new__(Life)
        life.events = EventLog(None, keep=10_000)
        life.store = store.open(root, identity, LAYOUT, files or Files(), life.events)
        pool = HostPool(LAYOUT.block_bytes, LAYOUT.max_checkpoint_bytes, places * LAYOUT.block_bytes)
        ground = Ground(LAYOUT, identity, "print")
        life.keeper = Keeper(ground, pool, life.store, Transfers(2), limits, life.events, policy)
        made.append(life)
        return life

    yield make
    for life in made:
        life.keeper.close()
        assert [event for event in life.events.recent if event.kind == "control.bug"] == []


def talk(life, seed, n_blocks, tail=0, replaces=""):
    """One turn of a conversation of its own; returns its head."""
    ids = list(range(seed * 1000, seed * 1000 + n_blocks * SIZE + tail))
    life.keeper.plan(Question(f"c{seed}", [*ids, 1], None), SlotView())
    return ids, life.admit(ids, replaces=replaces)


def record_files(root):
    return sorted(path.stem for path in root.rglob("*.safetensors"))


def size_of(root):
    return sum(path.stat().st_size for path in root.rglob("*.safetensors"))


def moves(life, **wanted):
    found = [event.fields for event in life.events.recent if event.kind == "move"]
    return [move for move in found if all(move[key] == value for key, value in wanted.items())]


def wait_for(life, condition):
    """Until the control thread sees `condition`; jobs follow each other, so each drain may begin another."""
    for _ in range(10_000):
        life.keeper._transfers.drain(5.0)
        if life.keeper._box.ask(condition):
            return
    raise AssertionError("it never came")


# ---- what is written ----


def test_saving_happens_by_itself_on_an_idle_machine(root, engine):
    """Nobody has to ask for it, flush or exit: after a turn everything reaches the SSD."""
    life = engine()
    talk(life, 1, 5, 3)
    wait_for(life, lambda: life.keeper.saver.idle)
    assert life.keeper.counts().unsaved == 0
    assert len(record_files(root)) == 6


def test_nothing_is_dropped_at_exit_under_load(root, engine):
    """However long the queue is, a flush ends with all of it on SSD, parents before children."""
    life = engine(places=200)
    with life.keeper.quiet():
        for seed in range(12):
            talk(life, seed, 10, 5)
    assert life.keeper.flush(30)
    assert len(record_files(root)) == 12 * 11
    assert len(moves(life, reason="save")) == 12 * 11


def test_only_what_is_new_is_written(root, engine):
    """A conversation that grows by a few tokens costs those, not its whole state again: terabytes a week for others."""
    life = engine()
    ids, head = talk(life, 1, 10, 3)
    assert life.keeper.flush(10)
    before = life.keeper.counts().ssd.bytes_in
    life.admit([*ids, *range(5)], replaces=head.name)
    assert life.keeper.flush(10)
    tail = LAYOUT.checkpoint_bytes(10 * SIZE + 8)
    assert life.keeper.counts().ssd.bytes_in - before == tail + 4096


def test_only_the_newest_state_of_a_conversation_stays(root, engine):
    """Ten turns, saved together or one by one: blocks, and one checkpoint; unless a branch needs an older one."""
    life, kept = engine(), None
    ids, head = talk(life, 1, 1, 1)
    for turn in range(10):
        ids = [*ids, 500 + turn]
        if turn == 4:
            kept, replaces = head, ""
        else:
            replaces = head.name
        head = life.admit(ids, replaces=replaces)
        if turn % 3 == 0:
            assert life.keeper.flush(10)
    assert life.keeper.flush(10)
    blocks = {name for name in record_files(root) if name not in (head.name, kept.name)}
    assert len(blocks) == 1
    assert len(record_files(root)) == 3


def test_a_conversation_larger_than_a_group_is_not_refused(root, engine):
    """No size is too large for the queue: it goes in groups."""
    life = engine(places=200)
    talk(life, 1, 100)
    assert life.keeper.flush(30)
    assert len(record_files(root)) == 100


def test_a_restart_deletes_nothing(root, engine):
    """Opening the store, even one that is over its budget, leaves every record where it is."""
    life = engine()
    talk(life, 1, 8)
    assert life.end()
    before = record_files(root)
    life = engine(limits=SsdLimits(FILE, 0))
    assert life.keeper.counts().ssd.records == 8
    assert record_files(root) == before


# ---- what leaves ----


def test_the_budget_holds_whatever_comes(root, engine):
    """After each turn and flush the files take no more than the budget, and what was used last is there."""
    life = engine(limits=SsdLimits(20 * FILE, 0))
    for seed in range(12):
        ids, head = talk(life, seed, 5)
        assert life.keeper.flush(10)
        assert size_of(root) <= 20 * FILE
        life.keeper.shed()
        assert life.restore(ids, head)[0] == 5 * SIZE
    assert moves(life, reason="trim") or moves(life, reason="evicted")


def test_the_budget_covers_every_byte(root, engine):
    """Catalogue and quarantine count too: with the whole directory in the account nothing is above it."""
    limits = SsdLimits(8 << 20, 0)
    life = engine(limits=limits, places=900, store=Store)
    for seed in range(20):
        talk(life, seed, 40)
        life.keeper.flush(30)
    assert sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) <= limits.budget_bytes


def test_above_the_high_mark_the_store_is_trimmed_to_the_low_one(root, engine):
    """In the background, without anybody waiting for room; below the high mark nothing goes."""
    life = engine(limits=SsdLimits(20 * FILE, 0), policy=Policy(high=0.9, low=0.5))
    talk(life, 1, 9)
    talk(life, 2, 9)
    assert life.keeper.flush(10)
    assert len(record_files(root)) == 18
    talk(life, 3, 1)
    assert life.keeper.flush(10)
    wait_for(life, lambda: life.keeper.saver.idle)
    assert len(record_files(root)) == 10
    gone = moves(life, reason="trim")
    assert len(gone) == 9
    assert all((move["from"], move["to"]) == ("ssd", "") for move in gone)


def test_chains_are_broken_at_their_ends(root, engine):
    """What is evicted of a conversation is its end: the beginning can still be restored."""
    life = engine(limits=SsdLimits(20 * FILE, 0))
    ids, head = talk(life, 1, 10)
    assert life.keeper.flush(10)
    talk(life, 2, 6)
    assert life.keeper.flush(10)
    talk(life, 3, 3)
    assert life.end()
    life = engine()
    restored, plan = life.restore(ids, head)
    assert 0 < restored < 10 * SIZE
    assert plan.lost == (("evicted", 10 * SIZE - restored),)


def test_the_favourite_stays(root, engine, monkeypatch):
    """A conversation that is used again and again outlives many that were used once, though they were used later."""
    clock = [1.8e9]
    monkeypatch.setattr("localkv.placement.keeper.time.time", lambda: clock[0])
    life = engine(limits=SsdLimits(20 * FILE, 0))
    ids, head = talk(life, 1, 4)
    for _ in range(6):
        clock[0] += 6 * 3600
        assert life.restore(ids, head)[0] == 4 * SIZE
    for seed in range(2, 12):
        clock[0] += 600
        talk(life, seed, 4)
        assert life.keeper.flush(10)
    assert life.end()
    assert engine().restore(ids, head)[0] == 4 * SIZE


def test_what_a_turn_holds_is_not_evicted_for_another(root, engine):
    """Making room for the outgoing conversation must not evict the incoming one, which is held first."""
    life = engine(limits=SsdLimits(12 * FILE, 0))
    ids, head = talk(life, 1, 6)
    assert life.keeper.flush(10)
    life.keeper.shed()
    plan = life.keeper.plan(Question("c1", [*ids, 1], head), SlotView())
    with life.keeper.hold(plan):
        for seed in range(2, 6):
            life.admit(list(range(seed * 1000, seed * 1000 + 5 * SIZE)))
            life.keeper.flush(5)
        assert len(list(life.keeper.bring(plan))) == 6


def test_kept_conversations_go_after_all_others(root, engine):
    """What the person wants resident outlives what was used later."""
    life = engine(limits=SsdLimits(20 * FILE, 0))
    ids, head = talk(life, 1, 5)
    life.keeper.keep([head.name])
    for seed in range(2, 9):
        talk(life, seed, 5)
        life.keeper.flush(10)
    assert life.end()
    assert engine().restore(ids, head)[0] == 5 * SIZE


def test_records_of_other_models_leave_as_well(root, engine):
    """One budget covers all models: what another one left long ago makes room."""
    first = engine(identity=OTHER)
    parent = root_name(OTHER)
    for i in range(10):
        payload = bytes([i]) * LAYOUT.block_bytes
        record = describe("block", parent, pack_ids(range(i * SIZE, (i + 1) * SIZE)), (i + 1) * SIZE, "print", payload)
        with first.keeper.reserve("block", len(payload)) as place:
            place.view[:] = payload
            place.commit(record)
        parent = record.name
    assert first.end()
    first.store = None
    life = engine(limits=SsdLimits(12 * FILE, 0))
    for seed in range(3):
        talk(life, seed, 4)
        assert life.keeper.flush(10)
    wait_for(life, lambda: life.keeper.saver.idle)
    assert size_of(root) <= 12 * FILE
    left = len(list((root / OTHER).rglob("*.safetensors")))
    assert left < 10
    assert len(list((root / IDENTITY).rglob("*.safetensors"))) >= 4


def test_the_free_space_floor_holds(root, engine):
    """If the disk fills up, old records make room for new ones, and what is left free is never less than the floor."""

    class Disk(Files):
        def free_bytes(self, path):
            return 30 * FILE - size_of(root)

    life = engine(limits=SsdLimits(1 << 40, 15 * FILE), files=Disk())
    for seed in range(8):
        talk(life, seed, 4)
        assert life.keeper.flush(10)
        assert 30 * FILE - size_of(root) >= 15 * FILE - 4096
    assert life.keeper.counts().ssd.records >= 4


def test_a_budget_of_nothing_saves_nothing_and_says_so(root, engine):
    """Without room for a single record the chat goes on from RAM, and the reason can be read."""
    life = engine(limits=SsdLimits(0, 0))
    ids, head = talk(life, 1, 3)
    assert not life.keeper.flush(2)
    assert "no room" in life.keeper.counts().trouble
    assert record_files(root) == []
    assert life.restore(ids, head)[0] == 3 * SIZE


# ---- what goes wrong ----


class Broken(Files):
    """A disk that refuses to sync while `bad` is set."""

    bad = True

    def sync(self, path):
        if self.bad:
            raise OSError(5, "Input/output error")
        super().sync(path)


def test_a_failed_save_is_tried_again_by_itself(root, engine, monkeypatch):
    """Nothing is lost, and nobody has to do anything once the disk works again."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)
    files = Broken()
    life = engine(files=files)
    talk(life, 1, 3)
    wait_for(life, lambda: life.keeper.saver.trouble != "")
    assert "Input/output error" in life.keeper.counts().trouble
    files.bad = False
    wait_for(life, lambda: not life.keeper._index.unsaved)
    assert life.keeper.counts().trouble == ""
    assert len(record_files(root)) == 3


def test_a_flush_tries_at_once_what_failed(root, engine):
    """At exit there is no time to wait for the next try."""
    files = Broken()
    life = engine(files=files)
    talk(life, 1, 3)
    assert not life.keeper.flush(5)
    files.bad = False
    assert life.keeper.flush(5)
    assert len(record_files(root)) == 3


def test_a_failed_save_leaves_what_it_would_have_replaced(root, engine):
    """Until the new state is on SSD, the old one stays there and can be planned with."""
    files = Broken()
    files.bad = False
    life = engine(files=files)
    ids, head = talk(life, 1, 1, 3)
    assert life.keeper.flush(5)
    files.bad = True
    life.admit([*ids, 7], replaces=head.name)
    assert not life.keeper.flush(2)
    life.keeper.shed()
    assert life.restore(ids, head)[0] == len(ids)
    files.bad = False
    assert life.keeper.flush(5)
    assert head.name not in record_files(root)


def test_a_failed_save_leaves_what_a_turn_held_meanwhile(root, engine):
    """A state that was in use when its successor could not be saved stays on SSD until that is."""
    files = Broken()
    files.bad = False
    life = engine(files=files)
    ids, head = talk(life, 1, 1, 3)
    assert life.keeper.flush(5)
    plan = life.keeper.plan(Question("c", [*ids, 1], head), SlotView())
    with life.keeper.hold(plan):
        files.bad = True
        longer = life.admit([*ids, 7], replaces=head.name)
        assert not life.keeper.flush(2)
    for _ in range(2):
        assert not life.keeper.flush(2)
    life.keeper.shed()
    assert life.restore(ids, head)[0] == len(ids)
    assert head.name in record_files(root)
    files.bad = False
    assert life.keeper.flush(5)
    assert life.keeper.flush(5)
    assert head.name not in record_files(root)
    assert longer.name in record_files(root)


def test_what_is_durable_counts_as_saved_whatever_fails_after_it(root, engine):
    """The store cannot be reckoned up after a commit: what the commit wrote is saved, what it replaced is gone, nothing stands for nothing."""

    class Uncounted(RecordsOnly):
        fails = False

        def written(self, now):
            if self.fails:
                raise StoreError("the catalogue is locked")
            return super().written(now)

    life = engine(store=Uncounted)
    ids, head = talk(life, 1, 1, 3)
    assert life.keeper.flush(5)
    life.store.fails = True
    longer = life.admit([*ids, 7], replaces=head.name)
    assert life.keeper.flush(5)
    saved = {name for name, entry in life.keeper._index.entries.items() if entry.saving == "saved"}
    assert saved == set(record_files(root))
    assert longer.name in saved
    assert life.keeper.counts().trouble == ""
    life.store.fails = False


def test_saves_pause_while_tokens_are_decoded(root, engine):
    """In quiet nothing is written; afterwards everything is, without being asked for."""
    life = engine()
    with life.keeper.quiet():
        talk(life, 1, 4)
        life.keeper._box.ask(lambda: None)
        assert record_files(root) == []
    wait_for(life, lambda: life.keeper.saver.idle)
    assert len(record_files(root)) == 4


def test_an_unwritable_store_is_left_alone(tmp_path, engine):
    """If removing fails, rows and index agree again at the next success, and the error is told."""

    class Stuck(RecordsOnly):
        stuck = True

        def remove_any(self, pairs, reason):
            if self.stuck:
                raise StoreError("the catalogue is locked")
            super().remove_any(pairs, reason)

    life = engine(limits=SsdLimits(10 * FILE, 0), store=Stuck)
    talk(life, 1, 6)
    assert life.keeper.flush(5)
    talk(life, 2, 6)
    assert not life.keeper.flush(2)
    assert "locked" in life.keeper.counts().trouble
    life.store.stuck = False
    assert life.keeper.flush(5)
    assert size_of(tmp_path / "store") <= 10 * FILE


def test_a_record_that_is_evicted_and_made_again_is_there(root, engine):
    """Between the decision to evict and the deletion the same record may come back: it must not be deleted then."""
    gate = threading.Event()

    class Slow(RecordsOnly):
        def remove_any(self, pairs, reason):
            gate.wait(20)
            super().remove_any(pairs, reason)

    life = engine(limits=SsdLimits(10 * FILE, 0), store=Slow, policy=Policy(high=0.6, low=0.1))
    ids, head = talk(life, 1, 7)
    wait_for_trim = threading.Thread(target=lambda: life.keeper.flush(20))
    wait_for_trim.start()
    while not moves(life, reason="trim"):
        life.keeper._box.ask(lambda: None)
    life.keeper.shed()
    assert life.admit(ids) == head
    gate.set()
    wait_for_trim.join()
    for _ in range(5):
        life.keeper.flush(5)
    index = life.keeper._index
    on_disk = set(record_files(root))
    assert {name for name, entry in index.entries.items() if entry.saving is module.Saving.SAVED} <= on_disk
    assert GROUND.identity == IDENTITY
