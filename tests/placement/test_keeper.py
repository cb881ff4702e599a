"""The keeper against a plain dict: whatever is admitted, held, damaged, pressed out, flushed and reopened, no byte is wrong."""

import os
import random
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from localkv.errors import BadRecord
from localkv.events import EventLog, Reason
from localkv.files import Files
from localkv.kv.record import Head, describe, pack_ids, root_name
from localkv.messages import TokenLog
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Question, SlotView
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool
from localkv.tiers.transfer import Transfers
from tests.placement.lives import GROUND, IDENTITY, LAYOUT, SIZE, Life
from tests.placement.logbook import by_the_book, by_the_log

FAST = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
FILE = LAYOUT.block_bytes + 4096
BUDGET = 24 * FILE


class RecordsOnly(Store):
    """The catalogue's log is as large as hundreds of these small records, and comes and goes: left out of the account."""

    def used_bytes(self):
        return self._catalogue.record_bytes()


class SlowFiles(Files):
    """While `slow`, a record is read only after much else has happened."""

    slow = False

    def read_parts(self, path, parts):
        if self.slow and path.suffix == ".safetensors":
            time.sleep(0.01)
        return super().read_parts(path, parts)


class Keeping(RuleBasedStateMachine):
    """One store, one engine after the other; conversations share prefixes, the pool is small, and files go bad."""

    talks = Bundle("talks")

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="localkv-test-", dir=FAST))
        self.root = self.folder / "store"
        self.files = SlowFiles()
        self.truth = {}
        self.damaged = set()
        """Names of records whose file was ever made bad."""
        self.heads = {}
        self.held = ExitStack()
        self.held_plan = None
        self.open()
        self.found = by_the_book(self.keeper)["ssd"]

    def open(self):
        self.events = EventLog(None, keep=10_000)
        store = RecordsOnly.open(self.root, IDENTITY, LAYOUT, self.files, self.events)
        pool = HostPool(LAYOUT.block_bytes, LAYOUT.max_checkpoint_bytes, 12 * LAYOUT.block_bytes)
        self.keeper = Keeper(GROUND, pool, store, Transfers(2), SsdLimits(BUDGET, 0), self.events)

    def teardown(self):
        self.held.close()
        self.keeper.close()
        shutil.rmtree(self.folder)
        assert [event for event in self.events.recent if event.kind == "control.bug"] == []

    # ---- what an engine does ----

    def keep(self, kind, parent, ids, start, end, version, replaces=""):
        n = LAYOUT.block_bytes if kind == "block" else LAYOUT.checkpoint_bytes(end)
        payload = random.Random(repr((kind, ids[:end], version))).randbytes(n)
        record = describe(kind, parent, pack_ids(ids[start:end]), end, "print", payload)
        with self.keeper.reserve(kind, n) as place:
            if place.view is not None:
                place.view[:] = payload
                place.commit(record, replaces)
                self.truth[record.name] = payload
        return record.name

    def talk(self, ids, version, replaces=""):
        self.keeper.plan(Question("me", [*ids, 7], None), SlotView())
        parent, full = root_name(IDENTITY), len(ids) // SIZE
        for i in range(full):
            parent = self.keep("block", parent, ids, i * SIZE, (i + 1) * SIZE, version)
        if len(ids) % SIZE:
            parent = self.keep("checkpoint", parent, ids, full * SIZE, len(ids), version, replaces)
        return Head(parent, IDENTITY, len(ids), "print")

    @rule(target=talks, seed=st.integers(0, 2), n=st.integers(1, 70), version=st.integers(0, 1))
    def begin(self, seed, n, version):
        """A conversation; those of one seed begin alike."""
        ids = tuple(seed * 10 + i // 5 for i in range(n))
        self.heads[ids, version] = self.talk(ids, version)
        return (ids, version)

    @rule(target=talks, talk=talks, more=st.integers(1, 40), keep=st.booleans())
    def go_on(self, talk, more, keep):
        """A conversation grows; its old end is replaced, unless another branch needs it."""
        ids, version = talk
        if len(ids) + more > 100:
            return multiple()
        longer = (*ids, *range(500, 500 + more))
        replaces = "" if keep else self.heads[talk].name
        self.heads[longer, version] = self.talk(longer, version, replaces)
        return (longer, version)

    @rule(talk=talks)
    def come_back(self, talk):
        """What is brought is byte for byte what was admitted under that name; bad files are struck out one after the other."""
        ids, _ = talk
        for _ in range(30):
            held = False
            plan = self.keeper.plan(Question("me", [*ids, 7], self.heads[talk]), SlotView())
            try:
                with self.keeper.hold(plan):
                    held = True
                    self.bring(plan)
                return
            except BadRecord as bad:
                assert bad.name in self.damaged or not held
        raise AssertionError("it planned with the same bad record again and again")

    def bring(self, plan):
        names = []
        for piece, view in self.keeper.bring(plan):
            assert bytes(view) == self.truth[piece.name]
            names.append(piece.name)
        assert names == [piece.name for piece in plan.pieces]

    @precondition(lambda self: self.held_plan is None)
    @rule(talk=talks)
    def hold(self, talk):
        """A turn is planned and held, and other things happen before it is carried out."""
        plan = self.keeper.plan(Question("me", [*talk[0], 7], self.heads[talk]), SlotView())
        try:
            self.held.enter_context(self.keeper.hold(plan))
        except BadRecord as bad:
            assert bad.reason == Reason.EVICTED, "trimming came in between"
        else:
            self.held_plan = plan

    @precondition(lambda self: self.held_plan is not None)
    @rule()
    def carry_out(self):
        """Nothing that was held has vanished in between."""
        try:
            self.bring(self.held_plan)
        except BadRecord as bad:
            assert bad.name in self.damaged
        self.held.close()
        self.held_plan = None

    @rule(talk=talks, slow=st.booleans(), again=st.booleans())
    def read_ahead(self, talk, slow, again):
        """A conversation is brought before it is asked for; `again`: its tokens are computed while that goes on."""
        ids, version = talk
        ended, self.files.slow = threading.Event(), slow
        self.keeper.preload(Question("me", [*ids, 7], self.heads[talk]), ended.set, pointed_at=True)
        if again:
            self.keeper.stop_preload()
            self.talk(ids, version)
        assert ended.wait(30)
        while self.keeper._box.ask(lambda: self.keeper._fetch.is_reading):
            time.sleep(0.001)
        self.files.slow = False

    # ---- what happens to it ----

    @rule(n=st.integers(1, 4))
    def press(self, n):
        """Something unrelated wants room."""
        for i in range(n):
            ids = tuple(random.Random(repr((len(self.truth), i))).choices(range(1000, 9000), k=SIZE))
            self.talk(ids, 0)

    @rule()
    def shed(self):
        self.keeper.shed()

    @rule()
    def flush(self):
        """Afterwards nothing is unsaved, and the budget holds, measured in files."""
        if self.keeper.flush(20):
            assert self.keeper.counts().unsaved == 0
        else:
            assert self.held_plan is not None, self.keeper.counts().trouble
        assert sum(path.stat().st_size for path in self.root.rglob("*.safetensors")) <= BUDGET

    @rule(which=st.integers(0, 1 << 20), how=st.sampled_from(["flip", "cut", "remove"]))
    def damage(self, which, how):
        """A file goes bad."""
        self.keeper.flush(20)
        files = [path for path in sorted(self.root.rglob("*.safetensors")) if path.stat().st_size]
        if not files:
            return
        path = files[which % len(files)]
        self.damaged.add(path.stem)
        if how == "remove":
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[which % len(content)] ^= 1 << which % 8
            path.write_bytes(content if how == "flip" else content[: which % len(content)])

    @precondition(lambda self: self.held_plan is None)
    @rule(orderly=st.booleans())
    def restart(self, orderly):
        """The engine ends, with or without a flush, and another one begins."""
        if orderly:
            assert self.keeper.flush(20)
        self.keeper.close()
        assert [event for event in self.events.recent if event.kind == "control.bug"] == []
        self.open()
        self.found = by_the_book(self.keeper)["ssd"]

    @invariant()
    def sound(self):
        self.keeper.check()
        self.keeper._box.ask(self.compare_with_log)

    def compare_with_log(self):
        """Each move has its line: what the lines add up to is what is there."""
        self.keeper.berths.sweep()
        told, true = by_the_log(self.events.recent, self.found), by_the_book(self.keeper)
        assert (told["vram"], told["ram"]) == (true["vram"], true["ram"])
        assert told["ssd"] == true["ssd"] or (self.keeper.saver._busy and told["ssd"] > true["ssd"])


TestKeeping = Keeping.TestCase
TestKeeping.__doc__ = "Any order of events leaves every byte right and every invariant standing."
TestKeeping.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def plan_for(life, ids, head):
    return life.keeper.plan(Question("me", [*ids, 7], head), SlotView())


def test_one_bad_record_does_not_take_good_ones_along(root):
    """While a bad file is found, its neighbours are still being read; planning again at once must not strike those out."""
    ids = list(range(8 * SIZE + 3))
    life = Life(root)
    head = life.admit(ids)
    assert life.end()
    life = Life(root)
    plan = plan_for(life, ids, head)
    bad = plan.pieces[2]
    next(root.rglob(f"{bad.name}.safetensors")).write_bytes(b"gone")
    assert life.restore(ids, head)[0] == 2 * SIZE
    struck = [event.fields["record"] for event in life.events.recent if event.kind == "strike"]
    assert struck == [bad.name[:12]]
    assert life.end()


def test_a_record_made_again_after_it_was_struck_out_is_written_again(root):
    """The bad file of the same name must not be taken for the new one, nor the new one removed with it."""
    ids = list(range(2 * SIZE))
    life = Life(root)
    head = life.admit(ids)
    assert life.end()
    path = next(root.rglob(f"{head.name}.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    life = Life(root)
    assert life.restore(ids, head)[0] == SIZE
    assert life.admit(ids) == head
    assert life.end()
    life = Life(root)
    assert life.restore(ids, head)[0] == 2 * SIZE
    assert life.end()


def test_a_state_that_is_a_conversations_newest_again_is_saved_again(root):
    """A checkpoint that was replaced, and is made once more after going back, is worth a write again."""
    life = Life(root)
    first, longer = list(range(20)), list(range(30))
    head = life.admit(first)
    assert life.keeper.flush(10)
    later = life.admit(longer, replaces=head.name)
    assert life.keeper.flush(10)
    assert life.admit(first, replaces=later.name) == head
    assert life.end()
    life = Life(root)
    assert life.restore(first, head)[0] == 20
    assert life.restore(longer, later)[0] == 20, "the later state was replaced"
    assert life.end()


def test_the_same_state_again_still_replaces_what_it_replaces(root):
    """Even if the new state is on SSD already, its predecessor leaves it: one state per conversation."""
    life = Life(root)
    other = life.admit(list(range(30)))
    mine = life.admit(list(range(20)))
    assert life.keeper.flush(10)
    assert life.admit(list(range(30)), replaces=mine.name) == other
    assert life.end()
    assert not list(root.rglob(f"{mine.name}.safetensors"))


def test_every_move_has_its_line(root):
    """Each move is one event with record, from, to, bytes, ms and reason."""
    life = Life(root)
    ids = list(range(2 * SIZE + 3))
    head = life.admit(ids)
    assert life.keeper.flush(10)
    assert life.keeper.shed() == 3
    assert life.restore(ids, head)[0] == len(ids)
    life.keeper.check()  # the control thread has written all lines
    moves = [event.fields for event in life.events.recent if event.kind == "move"]
    assert all(list(move) == ["record", "from", "to", "bytes", "ms", "reason"] for move in moves)
    routes = [(move["from"], move["to"], move["reason"]) for move in moves]
    read = [("ram", "slot", "restore"), ("ram", "ssd", "save"), ("ram", "ssd", "shed"), ("slot", "ram", "admit")]
    assert sorted(set(routes)) == [*read, ("ssd", "ram", "restore")]
    assert all(routes.count(route) == 3 for route in set(routes))
    assert life.end()


def test_rates_are_learnt_from_what_reading_took(root):
    """After a restore from SSD the prediction for the next one rests on a measurement."""
    life = Life(root, places=200)
    ids = list(range(160 * SIZE))  # 1.3 MB: less would measure fixed costs
    head = life.admit(ids)
    assert life.keeper.flush(20)
    life.keeper.shed()
    before = life.keeper.forecast(plan_for(life, ids, head))
    assert before.read_seconds > 0
    life.restore(ids, head)
    life.keeper.shed()
    after = life.keeper.forecast(plan_for(life, ids, head))
    assert after.read_seconds != before.read_seconds
    assert life.keeper.resumes([head])[head.name].total_seconds == pytest.approx(after.restore_seconds)
    life.keeper.learn(lambda rates: rates.with_prefill(1000, 2.0))
    gone = Head("no such record", IDENTITY, 1000, "print")
    assert life.keeper.resumes([gone])[gone.name].total_seconds == pytest.approx(2.0)
    assert life.end()


def test_without_a_store_everything_stays_in_ram():
    """A machine without an SSD tier chats on; what does not fit is given up, and says why."""
    events = EventLog(None, keep=1000)
    pool = HostPool(LAYOUT.block_bytes, LAYOUT.max_checkpoint_bytes, 12 * LAYOUT.block_bytes)
    life = Life.__new__(Life)
    life.events, life.trouble = events, ""
    life.keeper = Keeper(GROUND, pool, None, Transfers(1), SsdLimits(0, 0), events)
    heads = [life.admit([i] * SIZE) for i in range(40)]
    assert life.restore([39] * SIZE, heads[39])[0] == SIZE
    assert plan_for(life, [0] * SIZE, heads[0]).lost == ((Reason.NO_ROOM, SIZE),)
    assert not life.end(1.0)


def test_a_state_that_a_turn_needs_is_not_replaced_under_it(root):
    """Its successor is saved while a turn holds it: it goes only after the turn has let go."""
    life = Life(root)
    ids = list(range(20))
    head = life.admit(ids)
    assert life.keeper.flush(10)
    life.keeper.shed()
    plan = plan_for(life, ids, head)
    with life.keeper.hold(plan):
        life.admit([*ids, 50], replaces=head.name)
        assert life.keeper.flush(10)
        assert [piece.name for piece, _ in life.keeper.bring(plan)][-1] == head.name
    assert life.end()
    assert not list(root.rglob(f"{head.name}.safetensors"))


def test_an_error_while_room_is_looked_for_leaves_nothing_pinned(root, monkeypatch):
    """The system cannot say how much memory there is: the turn hears of it, and what it had set out for can still leave and be forgotten."""
    life = Life(root)
    ids = list(range(3 * SIZE + 2))
    head = life.admit(ids)
    assert life.end()
    life = Life(root)
    with life.keeper.hold(first := plan_for(life, ids[: SIZE + 1], None)):
        list(life.keeper.bring(first))
    plan, pool = plan_for(life, ids, head), life.keeper._pool

    def fails(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(pool, "reserve", fails)
    for attempt in (lambda: list(life.keeper.bring(plan)), lambda: life.admit(list(range(900, 900 + SIZE)))):
        with pytest.raises(OSError, match="open files"):
            attempt()
    monkeypatch.undo()
    life.keeper.check()
    assert not [entry for entry in life.keeper._index.entries.values() if entry.pins]
    assert life.restore(ids, head)[0] == len(ids), "and nobody stands in its way"
    assert life.keeper.forget([TokenLog(ids=pack_ids(ids))], (), 5.0).records == 4
    assert life.end()
