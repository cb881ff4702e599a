"""Preloading: what is read ahead displaces nothing dearer, gives way at once, and is counted by what came of it."""

import random
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localkv.files import Files
from localkv.kv.record import pack_ids
from localkv.messages import TokenLog
from localkv.placement.plan import Question, SlotView
from localkv.placement.room import Wish
from tests.placement.lives import SIZE, Life, payload_of


class GatedFiles(Files):
    """Reads wait at a gate; how many wait is known."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Semaphore(0)

    def read_parts(self, path, parts):
        if path.suffix == ".safetensors" and not self.gate.is_set():
            self.at_gate.release()
            assert self.gate.wait(30)
        return super().read_parts(path, parts)


def talk(seed, blocks, tail=5):
    return [random.Random(seed).randrange(1000) for _ in range(blocks * SIZE + tail)]


def preload(life, ids, head, *, pointed_at=True):
    """Preload a conversation to the end of it."""
    ended = threading.Event()
    life.keeper.preload(Question("c", [*ids, 1], head), ended.set, pointed_at=pointed_at)
    assert ended.wait(30)


def preload_at_the_gate(life, files, ids, head, ended=lambda: None):
    """Begin to preload a conversation; both reads that are made at once wait at the gate."""
    files.gate.clear()
    life.keeper.preload(Question("c", [*ids, 1], head), ended, pointed_at=True)
    for _ in range(2):
        assert files.at_gate.acquire(timeout=30)


def plan(life, ids, head):
    return life.keeper.look(Question("c", [*ids, 1], head), SlotView())


def tiers(life, ids, head):
    return {piece.tier for piece in plan(life, ids, head).pieces}


def moves(life, **wanted):
    return [e.fields for e in life.events.recent if e.kind == "move" and wanted.items() <= e.fields.items()]


def stored(root, *lengths, **options):
    """A life in which conversations of so many blocks are on SSD alone, written by an earlier one."""
    life = Life(root)
    talks = [(ids := talk(i, n), life.admit(ids)) for i, n in enumerate(lengths)]
    assert life.end(30)
    return Life(root, **options), talks


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def test_what_was_preloaded_is_in_ram_when_it_is_asked_for(root):
    """Every record comes with one event line, a turn then reads nothing, and each record is a hit once."""
    life, [(ids, head)] = stored(root, 5)
    assert tiers(life, ids, head) == {"ssd"}
    preload(life, ids, head)
    assert tiers(life, ids, head) == {"ram"}
    assert len(moves(life, reason="preload", to="ram")) == 6
    for _ in range(2):
        assert life.restore(ids, head)[0] == len(ids)
    figures = life.keeper.counts().preloads
    assert (figures.loaded, figures.hits, figures.wasted, figures.waiting) == (6, 6, 0, 0)
    assert figures.hit_bytes == figures.loaded_bytes > 0
    life.keeper.check()  # all lines are written
    assert {(move["from"], move["to"]) for move in moves(life, reason="restore")} == {("ram", "slot")}
    assert life.end()


def test_what_leaves_unused_is_waste(root):
    """Read for nothing is said, not hidden; coming again counts again."""
    life, [(ids, head)] = stored(root, 3)
    preload(life, ids, head)
    life.keeper.shed()
    preload(life, ids, head)
    life.restore(ids, head)
    figures = life.keeper.counts().preloads
    assert (figures.loaded, figures.hits, figures.wasted) == (8, 4, 4)
    assert life.end()


def used(life, ids, head):
    life.restore(ids, head)


def test_a_preload_stays_below_the_high_mark(root):
    """In an empty pool it takes what is free below the mark that trimming begins at, and no more."""
    life, [(ids, head)] = stored(root, 40, places=32)
    preload(life, ids, head)
    ram = life.keeper.counts().ram
    assert 0 < ram.used_bytes <= 0.9 * ram.limit_bytes
    assert [event.kind for event in life.events.recent].count("preload.no_room") == 1
    assert not moves(life, reason="preload", to="ssd"), "one record of a conversation must not make room for another"
    assert life.restore(ids, head)[0] == len(ids)
    assert life.end()


def test_what_is_only_likely_displaces_nothing_dearer(root):
    """A conversation that was used after another one stays when the colder one is thought of."""
    life, [(cold, cold_head), (dear, dear_head)] = stored(root, 12, 24, places=32)
    used(life, dear, dear_head)
    before = tiers(life, dear, dear_head)
    preload(life, cold, cold_head, pointed_at=False)
    assert before == tiers(life, dear, dear_head) == {"ram"}
    assert not moves(life, reason="preload", to="ssd")
    assert life.end()


def test_the_conversation_in_the_slot_stays_whatever_is_pointed_at(root):
    """What is open ranks above every wish."""
    life, [(opened, open_head), (other, other_head)] = stored(root, 24, 24, places=32)
    used(life, opened, open_head)
    preload(life, other, other_head, pointed_at=True)
    assert tiers(life, opened, open_head) == {"ram"}
    assert life.end()


def test_what_is_pointed_at_takes_the_place_of_what_is_less_dear(root):
    """Pointing counts as a use: what nobody has used since gives way, with a line each, and only as much as is needed."""
    life, [(old, old_head), (wanted, wanted_head), (opened, open_head)] = stored(root, 16, 16, 2, places=36)
    preload(life, old, old_head, pointed_at=False)
    used(life, opened, open_head)
    assert tiers(life, old, old_head) == {"ram"}
    preload(life, wanted, wanted_head)
    assert tiers(life, wanted, wanted_head) == {"ram"}
    gone = moves(life, reason="preload", to="ssd")
    assert 0 < len(gone) < 16
    assert life.keeper.counts().preloads.wasted == len(gone)
    assert life.end()


def test_two_likely_conversations_do_not_push_each_other_out(root):
    """Asked for in turns, they come once: bytes do not go back and forth while nobody does anything."""
    life, [(a, a_head), (b, b_head)] = stored(root, 24, 24, places=32)
    for _ in range(4):
        preload(life, a, a_head, pointed_at=False)
        preload(life, b, b_head, pointed_at=False)
    assert life.keeper.counts().preloads.loaded <= 29
    assert not moves(life, reason="preload", to="ssd")
    assert life.end()


def test_a_stop_takes_back_what_has_not_begun(root):
    """Two readers are at work; nothing else is read after the stop, and a turn brings the rest as if nothing had been."""
    files = GatedFiles()
    life, [(ids, head)] = stored(root, 12, files=files)
    ended = threading.Event()
    preload_at_the_gate(life, files, ids, head, ended.set)
    life.keeper.stop_preload()
    assert ended.wait(30)
    files.gate.set()
    assert life.restore(ids, head)[0] == len(ids)
    figures = life.keeper.counts().preloads
    assert figures.loaded == 2
    assert figures.cancelled == 2
    assert life.end()


def test_one_conversation_at_a_time(root):
    """The cursor has moved on: of the conversation it rested on before nothing more is read, and it is told so."""
    files = GatedFiles()
    life, [(ids, head), (other, other_head)] = stored(root, 12, 3, files=files)
    first, second = threading.Event(), threading.Event()
    preload_at_the_gate(life, files, ids, head, first.set)
    life.keeper.preload(Question("d", [*other, 1], other_head), second.set, pointed_at=True)
    assert first.wait(30)
    files.gate.set()
    assert second.wait(30)
    assert tiers(life, other, other_head) == {"ram"}
    assert len(_in_ram(life, ids, head)) == 2
    assert life.end()


def test_a_turn_waits_for_the_reading_that_is_under_way(root):
    """A record that a preload reads at this moment is not read twice."""
    files = GatedFiles()
    life, [(ids, head)] = stored(root, 2, files=files)
    preload_at_the_gate(life, files, ids, head)
    results = []
    turn = threading.Thread(target=lambda: results.append(life.restore(ids, head)[0]))
    life.keeper.stop_preload()
    turn.start()
    while not any(r.waiters for r in list(life.keeper._fetch._readings.values())):
        pass
    files.gate.set()
    turn.join(30)
    assert results == [len(ids)]
    assert len(moves(life, to="ram")) == 3
    life.keeper.shed()
    figures = life.keeper.counts().preloads
    assert (figures.hits, figures.wasted) == (figures.loaded, 0), "what a turn waited for was not brought for nothing"
    assert life.end()


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_each_record_is_read_once_whoever_else_brings_it(root, again, stopped):
    """A turn, or the same hint once more, comes upon records that are being read: nothing is read twice and nothing is left out."""
    files = GatedFiles()
    life, [(ids, head)] = stored(root, 12, files=files)
    first, second = threading.Event(), threading.Event()
    preload_at_the_gate(life, files, ids, head, first.set)
    if stopped:
        life.keeper.stop_preload()
    if again:
        life.keeper.preload(Question("c", [*ids, 1], head), second.set, pointed_at=True)
        assert first.wait(30)
        life.keeper.check()  # the second preload has come upon them
        files.gate.set()
        assert second.wait(30)
        assert tiers(life, ids, head) == {"ram"}, "all of it has come when the hint is done"
    turn = threading.Thread(target=life.restore, args=(ids, head))
    turn.start()
    files.gate.set()
    turn.join(30)
    assert first.wait(30)
    assert tiers(life, ids, head) == {"ram"}
    assert len(moves(life, **{"from": "ssd", "to": "ram"})) == 13
    assert not [event for event in life.events.recent if event.kind == "control.bug"]
    assert life.end()


class Failing(GatedFiles):
    """What comes through the gate fails if `error` is set."""

    error = None

    def read_parts(self, path, parts):
        n = super().read_parts(path, parts)
        if path.suffix == ".safetensors" and self.error is not None:
            raise self.error
        return n


@pytest.mark.parametrize("error", [None, OSError(5, "no such luck"), FileNotFoundError()], ids=["read", "failed", "gone"])
@pytest.mark.parametrize("waits", [False, True], ids=["nobody", "a turn"])
def test_what_a_turn_makes_while_it_is_read_is_there_once(root, waits, error):
    """A turn computes tokens whose records are on their way from SSD: RAM has each once, whoever waits has it, and a bad file is made good."""
    files = Failing()
    life, [(ids, head)] = stored(root, 2, files=files)
    preload_at_the_gate(life, files, ids, head)
    wanted = plan(life, ids, head).to_bring
    errand = life.keeper._box.ask(lambda: life.keeper._fetch.begin(wanted if waits else ()))
    life.keeper.stop_preload()
    assert life.admit(ids) == head
    files.error = error
    files.gate.set()
    for piece, arrival in errand.arrivals:
        assert bytes(arrival.result(30)) == payload_of(piece.kind, ids[: piece.end], piece.end)
    while life.keeper._box.ask(lambda: life.keeper._fetch.is_reading):
        pass
    life.keeper._box.ask(lambda: life.keeper._fetch.end(errand))
    files.error = None
    life.keeper.check()
    counts = life.keeper.counts()
    assert (counts.ram.records, counts.ram.used_bytes) == (
        3,
        sum(life.keeper._pool.place_bytes[piece.kind] for piece in wanted),
    )
    assert bool(moves(life, **{"from": "ssd", "to": ""})) == (error is not None)
    assert not [event for event in life.events.recent if event.kind == "control.bug"]
    assert life.end(30)
    assert Life(root).restore(ids, head)[0] == len(ids)


STEPS = st.lists(
    st.tuples(st.sampled_from(["preload", "likely", "restore", "shed", "stop", "talk"]), st.integers(0, 3)), max_size=14
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_happens_accounts_balance_and_what_is_open_stays(tmp_path_factory, steps):
    """Loaded is hits and waste and what still waits; a preload never takes the place of the conversation in the slot."""
    life, talks = stored(tmp_path_factory.mktemp("life") / "store", 3, 6, 12, 20, places=32)
    opened = None
    for what, which in steps:
        ids, head = talks[which]
        assert life.keeper.flush(30)  # what was saved may leave now, and does above the high mark: not for a preload
        life.keeper.check()
        before = set() if opened is None else _in_ram(life, *talks[opened])
        if what in {"preload", "likely"}:
            preload(life, ids, head, pointed_at=what == "preload")
            assert before <= (set() if opened is None else _in_ram(life, *talks[opened]))
        elif what == "restore":
            assert life.restore(ids, head)[0] == len(ids)
            opened = which
        elif what == "talk":
            life.admit([*ids, *talk(100 + which, 1)])
        elif what == "shed":
            life.keeper.shed()
        else:
            life.keeper.preload(Question("c", [*ids, 1], head), lambda: None, pointed_at=True)
            life.keeper.stop_preload()
        life.keeper.check()
        figures = life.keeper.counts().preloads
        assert figures.loaded == figures.hits + figures.wasted + figures.waiting
        assert min(figures.hits, figures.wasted, figures.waiting) >= 0
    assert not [event for event in life.events.recent if event.kind == "control.bug"]
    assert life.end(30)


def _in_ram(life, ids, head):
    return {piece.name for piece in plan(life, ids, head).pieces if piece.tier == "ram"}


def test_a_turn_that_needs_what_was_taken_back_has_it_read(root):
    """The stop and the turn come at once: what waited for a reader is cancelled as a preload and read for the turn, at the first try."""
    files = GatedFiles()
    life, [(ids, head)] = stored(root, 12, files=files)
    preload_at_the_gate(life, files, ids, head)
    wanted = plan(life, ids, head)

    def at_once():
        life.keeper._preload.stop()
        return life.keeper._fetch.begin(wanted.to_bring)

    errand = life.keeper._box.ask(at_once)
    files.gate.set()
    for piece, arrival in errand.arrivals:
        assert bytes(arrival.result(30)) == payload_of(piece.kind, ids[: piece.end], piece.end)
    life.keeper._box.ask(lambda: life.keeper._fetch.end(errand))
    assert life.keeper.counts().preloads.cancelled == 2
    assert life.end()


def crowded(root):
    """RAM full to the mark with a conversation that nobody has used for long, and what is to come: one record of another one."""
    life, [(old, old_head), (wanted, wanted_head)] = stored(root, 28, 1, places=32)
    preload(life, old, old_head, pointed_at=False)
    entry = life.keeper._index.entries[plan(life, wanted, wanted_head).pieces[0].name]
    return life, life.keeper._index, life.keeper.room, entry


def test_who_was_chosen_to_go_stays_if_a_turn_needs_him_by_now(root):
    """Chosen, and held before the place was wanted: nobody who is held goes, the next one does."""
    life, index, room, entry = crowded(root)

    def chosen_and_held():
        leaving = room.lesser([entry] * 2, pointed_at=True)
        held = index.in_ram[leaving[0].key[1]]
        held.holds += 1
        place = room.spare_place("block", entry.row.n_bytes, leaving)
        held.holds -= 1
        room.give_back(place)
        return held

    held = life.keeper._box.ask(chosen_and_held)
    assert held.place is not None
    assert len(moves(life, reason="preload", to="ssd")) == 1
    assert life.end()


def test_nobody_goes_if_it_is_not_enough_or_a_turn_waits(root):
    """Where all who may go do not make a place, or somebody urgent waits for one, a preload takes nothing."""
    life, index, room, entry = crowded(root)

    def too_few():
        leaving = room.lesser([entry], pointed_at=True)
        others = [room._pool.reserve("block", 1) for _ in range(2)]
        none = room.spare_place("block", entry.row.n_bytes, leaving)
        for place in others:
            room.give_back(place)
        room._wishes.append(Wish("block", 1, lambda _: None))
        none = none or room.spare_place("block", entry.row.n_bytes, room.lesser([entry], pointed_at=True))
        room.settle()
        return none

    assert life.keeper._box.ask(too_few) is None
    assert not moves(life, reason="preload", to="ssd")
    assert life.end()


def test_what_is_forgotten_while_it_is_read_ahead_does_not_come_back(root):
    """The conversation is deleted while its records are being read into RAM: they arrive nowhere, and their places are free again."""

    class Read(GatedFiles):
        def read_parts(self, path, parts):
            found = Files.read_parts(self, path, parts)  # before the file goes
            if path.suffix == ".safetensors" and not self.gate.is_set():
                self.at_gate.release()
                assert self.gate.wait(30)
            return found

    files = Read()
    life, [(ids, head)] = stored(root, 4, files=files)
    preload_at_the_gate(life, files, ids, head)
    life.keeper.stop_preload()
    life.keeper.forget([TokenLog(ids=pack_ids(ids))], (), 10.0)
    files.gate.set()
    assert life.keeper.flush(10)
    while life.keeper._box.ask(lambda: life.keeper._fetch.is_reading):
        pass
    life.keeper.check()
    assert (life.keeper.counts().ram.records, life.keeper.counts().ram.used_bytes) == (0, 0)
    assert life.restore(ids, head)[0] == 0
    assert not list(root.rglob("*.safetensors"))
    assert life.end()


def test_what_was_forgotten_and_made_again_while_it_was_read_is_read_once_more(root):
    """A reading that hangs belongs to a record that is gone; the one of the same name that came after it is brought all the same."""
    files = GatedFiles()
    life, [(ids, head)] = stored(root, 2, files=files)
    preload_at_the_gate(life, files, ids, head)
    life.keeper.stop_preload()
    life.keeper.forget([TokenLog(ids=pack_ids(ids))], (), 10.0)
    assert life.admit(ids) == head
    assert life.keeper.flush(10)
    life.keeper.shed()
    ended = threading.Event()
    life.keeper.preload(Question("c", [*ids, 1], head), ended.set, pointed_at=True)
    life.keeper.check()
    files.gate.set()
    assert ended.wait(30)
    assert not [event for event in life.events.recent if event.kind == "control.bug"]
    assert tiers(life, ids, head) == {"ram"}
    assert life.keeper.counts().ram.used_bytes == sum(
        life.keeper._pool.place_bytes[p.kind] for p in plan(life, ids, head).pieces
    )
    assert life.restore(ids, head)[0] == len(ids)
    assert life.end()
