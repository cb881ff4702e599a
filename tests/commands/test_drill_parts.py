"""The kill rehearsal's parts: the plan, the marks, the scratch world, the checks and the report. No process is started."""

import contextlib
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.migrations import MIGRATIONS
from localkv.chat.store import ConversationStore
from localkv.commands.drill import SHOWN, _said
from localkv.commands.drill.checks import check_leftovers, check_messages, check_store
from localkv.commands.drill.marks import BRAKES, SPANS, Journal, Watch, moments_of
from localkv.commands.drill.moments import MOMENTS, VICTIMS, plan
from localkv.commands.drill.rehearsal import DEPTHS, SIGNS
from localkv.commands.drill.report import Tally
from localkv.commands.drill.script import TURNS, question
from localkv.commands.drill.talks import Talks
from localkv.commands.drill.witness import Witness, over_budget
from localkv.commands.drill.world import World
from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import Head
from tests.tiers.tier_samples import chain, open_store


@pytest.fixture
def world(tmp_path):
    """A scratch home."""
    return World(tmp_path / "w", tmp_path / "model", drilled=True)


def talk(world, name="talk-0", answers=1, state="complete", numbers=None):
    """A conversation of one question and its answers; returns the messages."""
    with contextlib.closing(ConversationStore.open(world.home.database, world.home.backups)) as store:
        key = store.create(name, model=ModelSection(), sampling=SamplingSection()).id
        for i in range(answers):
            asked = store.ask(key, store.get(key).leaf, f"question {i}")
            begun = store.begin_answer(key, asked.id)
            head = Head("ab" * 20, "c1" * 20, 4)
            store.finish_answer(
                begun.id, text="said\n", ids=b"\1\0\0\0", state=state, head=head, numbers=numbers or {"exact": True}
            )
        return store.path(key)


# ---- the plan ----


@given(st.integers(1, 500), st.integers(0, 2**32))
def test_every_moment_gets_its_share(kills, seed):
    """As many kills as asked for, each of somebody whom it can hurt; at least 5 % in every moment, as soon as there are seven."""
    strokes = plan(kills, seed)
    counts = Counter(stroke.moment for stroke in strokes)
    assert len(strokes) == kills
    assert all(stroke.victim in VICTIMS[stroke.moment] and 0 <= stroke.when <= 1 for stroke in strokes)
    assert kills < len(MOMENTS) or min(counts[moment] for moment in MOMENTS) >= 0.05 * kills


@given(st.integers(0, 2**32))
def test_a_seed_is_a_plan(seed):
    """The same kills again with the same seed."""
    assert plan(30, seed) == plan(30, seed)


def test_both_victims_get_their_turns():
    """Over many kills everyone dies in every moment in which it can."""
    seen = {(stroke.moment, stroke.victim) for stroke in plan(300, 1)}
    assert seen == {(moment, victim) for moment, victims in VICTIMS.items() for victim in victims}


def test_every_moment_is_known_everywhere():
    """Each moment has its sign, its span and its brake, and but for the start a depth."""
    assert set(SIGNS) == set(SPANS) == set(BRAKES) == set(DEPTHS) | {"start"} == set(MOMENTS)
    assert all(SIGNS[moment] in SPANS[moment][0] for moment in MOMENTS)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, TURNS))
def test_questions_are_one_line_and_tell_conversations_apart(one, other, turn):
    """A question can be typed as a line, is no command, and begins otherwise in every conversation."""
    text = question(one, turn)
    assert text == question(one, turn)
    assert "\n" not in text
    assert not text.startswith("/")
    assert one == other or text.split()[0] != question(other, turn).split()[0]


# ---- marks ----


def test_marks_reach_the_other_side(tmp_path):
    """What is marked is read in order, by several writers too, and only once."""
    watch = Watch(tmp_path)
    assert watch.poll() == 0
    one, two = Journal(tmp_path), Journal(tmp_path)
    one.mark("born", role="engine")
    two.mark("committed", names=["a"], gone=["b"], good=False)
    assert watch.poll() == 2
    assert [(mark.what, mark.role, mark.names, mark.good) for mark in watch.marks] == [
        ("born", "engine", (), True),
        ("committed", "", ("a",), False),
    ]
    assert watch.wait(0, lambda mark: mark.what == "committed", 0) == watch.marks[1]
    assert watch.wait(2, lambda mark: True, 0) is None


def test_only_what_is_sought_is_braked(tmp_path, monkeypatch):
    """A process sleeps after the marks of the moment that is sought, and after no others."""
    slept = []
    monkeypatch.setattr("localkv.commands.drill.marks.time.sleep", slept.append)
    watch, journal = Watch(tmp_path), Journal(tmp_path)
    watch.brake("answer")
    journal.mark("written")
    assert slept == []
    journal.mark("token")
    watch.brake(None)
    journal.mark("token")
    assert slept == [BRAKES["answer"][1]]


STORY = (
    ("born", {"start"}), ("ready", set()), ("started", {"prefill"}), ("reading", {"prefill"}), ("token", {"answer"}),
    ("saving", {"answer", "save"}), ("done", {"save"}), ("saved", set()), ("evicting", {"evict"}), ("evicted", set()),
    ("flush", {"exit"}), ("saving", {"exit", "save"}), ("saved", {"exit"}),
)  # fmt: skip


def test_moments_begin_and_end(tmp_path):
    """At each time of an engine's life it is known what it was doing, whatever other processes do meanwhile."""
    watch, journal = Watch(tmp_path), Journal(tmp_path)
    for what, _ in STORY:
        journal.mark(what, pid=1)
        journal.mark("born", pid=2)
    watch.poll()
    mine = [mark for mark in watch.marks if mark.pid == 1]
    assert [moments_of(watch.marks, 1, mark.at) for mark in mine] == [expected for _, expected in STORY]


# ---- the world ----


def test_older_conversations_come_back(world):
    """The older schema keeps every message; the next opening brings it up to date."""
    talk(world, answers=3)
    before = world.messages()
    world.make_older()
    assert world.messages() == before
    with contextlib.closing(ConversationStore.open(world.home.database, world.home.backups)) as store:
        assert len(store.path(store.by_name("talk-0").id)) == 6
    assert world.messages() == before
    assert len(MIGRATIONS) > 1, "there is no older schema to make"


def test_a_path_is_read_without_the_store(world):
    """The messages down to where the person looks; nothing for a conversation that is not there."""
    assert world.path("talk-0") is None
    assert world.messages() == {}
    messages = talk(world, answers=2)
    assert world.path("talk-0") == messages
    assert world.path("talk-1") is None


def test_a_flip_changes_one_byte_until_the_file_is_another(world):
    """One byte of the file differs; a file that is written anew in its place is not the spoilt one."""
    ((record, payload),) = chain(1)
    with contextlib.closing(open_store(world.home.store)) as store:
        store.publish([(record, payload)])
    (file,) = world.record_files()
    whole = file.read_bytes()
    assert world.flip(record.name, random.Random(1))
    assert sum(a != b for a, b in zip(whole, file.read_bytes(), strict=True)) == 1
    assert world.is_flipped(file)
    other = file.with_name("other")
    other.write_bytes(whole)
    other.replace(file)
    assert not world.is_flipped(file)
    assert not world.flip("00" * 20, random.Random(1))


# ---- the checks ----


def found(tally):
    return Counter(fault for fault, _ in tally.found)


def test_lost_and_changed_messages_are_found(world):
    """A finished message that is gone, and one that is not what it was, are each found; sound conversations are not."""
    messages = {message.id: message for message in talk(world, answers=2)}
    tally = Tally()
    check_messages(world, messages, tally)
    assert tally.found == []
    with contextlib.closing(ConversationStore.open(world.home.database, world.home.backups)) as store:
        last = [*messages.values()][-1]
        store.finish_answer(last.id, text="other", ids=last.ids, state="complete", head=None, numbers=None)
    gone = messages | {"gone": last}
    check_messages(world, gone, tally)
    assert found(tally) == {"lost_messages": 2}
    check_messages(world, gone, tally)
    assert found(tally) == {"lost_messages": 2}, "the same thing counts once"


DAMAGES = {
    "torn": (lambda file: file.write_bytes(file.read_bytes()[:5000]), {"wrong_restores"}, {"wrong_restores"}),
    "gone": (Path.unlink, {"wrong_restores"}, {"wrong_restores"}),
    "temporary": (lambda file: file.with_suffix(".part").write_bytes(b"x"), set(), {"leftovers"}),
    "no row": (lambda file: None, set(), {"leftovers"}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_is_judged(world, damage):
    """Right after a kill only what the next engine clears away may lie in the store; once it is settled, not even that."""
    spoil, unsettled, settled = DAMAGES[damage]
    records = chain(2)
    with contextlib.closing(open_store(world.home.store)) as store:
        store.publish(records)
        files = world.record_files()
        spoil(files[0])
        for file in files:
            file.chmod(0o600) if file.exists() else None
        if damage == "no row":
            whole = files[0].read_bytes()
            store.remove([files[0].stem], "evicted")
            files[0].write_bytes(whole)
            files[0].chmod(0o600)
    for path in world.home.store.rglob("*.part"):
        path.chmod(0o600)
    for is_settled, expected in ((False, unsettled), (True, settled)):
        tally = Tally()
        check_store(world, tally, settled=is_settled)
        assert set(found(tally)) == expected, tally.found


def test_what_was_spoilt_on_purpose_is_no_finding(world):
    """A flipped record that no engine has met yet is not held against the store."""
    ((record, payload),) = chain(1)
    with contextlib.closing(open_store(world.home.store)) as store:
        store.publish([(record, payload)])
    world.flip(record.name, random.Random(2))
    tally = Tally()
    check_store(world, tally, settled=True)
    assert tally.found == []


def test_temporary_files_anywhere_are_leftovers(world):
    """Beside the store, too: a backup that was not finished, say."""
    world.home.backups.mkdir()
    (world.home.backups / "conversations-1.db.part").write_bytes(b"")
    tally = Tally()
    check_leftovers(world, tally)
    assert found(tally) == {"leftovers": 1}


@given(st.integers(0, 10), st.integers(0, 10))
def test_budgets(used, limit):
    """A tier may be full and not fuller."""
    numbers = {"ram": used, "ram_limit": limit, "ssd": limit, "ssd_limit": used}
    assert len(over_budget(numbers)) == (used != limit)


def test_a_wrong_restore_is_found(world):
    """A record that was let through and is not what its name says is found, a right one is counted."""
    tally, journal = Tally(), Journal(world.marks)
    witness = Witness(world, tally)
    journal.mark("restored", names=["ab" * 20])
    journal.mark("restored", names=["cd" * 20], good=False)
    journal.mark("used", numbers={"ram": 2, "ram_limit": 1, "ssd": 0, "ssd_limit": 1})
    witness.learn()
    witness.learn()
    assert tally.restored == 1
    assert found(tally) == {"wrong_restores": 1, "budget_breaks": 1}


# ---- conversations ----


class Shown:
    """A face of which only what it printed matters."""

    def __init__(self, text):
        self.text = text

    def answer(self):
        return self.text


class Same:
    """An uninterrupted run that said this."""

    def __init__(self, messages, last=None):
        self.known = [message.ids for message in messages]
        if last is not None:
            self.known[-1] = last

    def ids(self, number):
        return self.known


@pytest.mark.parametrize(
    ("shown", "last", "exact", "faults", "compared"),
    [
        ("said\n", None, True, {}, 1),
        ("said\n\n", None, True, {}, 1),
        ("sai", None, True, {"lost_messages": 1}, 1),
        ("said\n", b"\2\0\0\0", True, {"wrong_restores": 1}, 1),
        ("said\n", b"\2\0\0\0", False, {}, 0),
    ],
)
def test_answers_are_compared(world, shown, last, exact, faults, compared):
    """What was shown is what is stored; an answer that says exact has the ids of the uninterrupted run."""
    messages = talk(world, numbers={"exact": exact})
    tally = Tally()
    talks = Talks(world, Same(messages, last), random.Random(1), tally)
    talks.unfinished = 0
    talks.conclude(0, Shown(shown))
    assert found(tally) == faults
    assert tally.compared == compared
    assert (talks.unfinished, set(talks.ledger)) == (None, {message.id for message in messages})


def test_a_conversation_that_went_another_way_is_not_compared(world):
    """After an answer that was not exact the uninterrupted run says nothing about the next ones."""
    messages = talk(world, answers=2)
    tally = Tally()
    other = [Same(messages).known[0], b"\7\0\0\0", *Same(messages).known[2:]]
    reference = Same(messages)
    reference.known = other
    Talks(world, reference, random.Random(1), tally).conclude(0, Shown("said\n"))
    assert (tally.compared, tally.found) == (0, [])


def test_a_cut_answer_has_lost_no_more_than_a_second(world):
    """All that had been shown a second before the kill must be stored."""
    talk(world)
    tally = Tally()
    talks = Talks(world, Same([]), random.Random(1), tally)
    talks.check_cut(0, "sai")
    talks.check_asked(0)
    assert tally.found == []
    talks.check_cut(0, "said\nand more")
    talks.check_asked(1)
    assert found(tally) == {"lost_messages": 2}


class Typing(Shown):
    """A face that remembers what was typed."""

    open_name = ""

    def __init__(self):
        super().__init__("")
        self.typed = []

    def type(self, line):
        self.typed.append(line)

    def wait_for_prompt(self):
        pass


def test_a_favoured_conversation_is_not_an_interrupted_one(world):
    """The conversation that was spoilt goes on next, once; until something is said in it nothing of it is unfinished."""
    talk(world)
    talks = Talks(world, Same([]), random.Random(1), Tally())
    talks.favoured = 2
    assert (talks.next(), talks.unfinished) == (2, None)
    talks.unfinished = 0
    assert talks.next() == 0
    face = Typing()
    talks.begin(0, face)
    assert face.typed == ["/open talk-0", question(0, 1)]
    assert (talks.unfinished, talks.favoured) == (0, None)


# ---- the report ----


def test_the_document_has_these_keys():
    """What scripts read, exactly."""
    tally = Tally()
    tally.killed.update(plan_moment.moment for plan_moment in plan(14, 3))
    tally.add("leftovers", ["a", "b", "a"])
    document = tally.document()
    assert list(document) == [
        "kills", "killed_during", "lost_messages", "wrong_restores", "leftovers", "budget_breaks", "longest_recovery_s",
    ]  # fmt: skip
    assert list(document["killed_during"]) == ["start", "prefill", "answer", "save", "evict", "migration", "exit"]
    assert (document["kills"], document["leftovers"], document["lost_messages"]) == (14, 2, 0)
    assert {row[0] for row in tally.table()} >= {"lost messages", "leftovers", "longest recovery"}


def test_long_lists_are_cut():
    """What was found is told in words, up to a screenful, with the way to see it again."""
    tally = Tally()
    assert _said(tally, "localkv drill") == []
    tally.add("leftovers", [f"file {i}" for i in range(SHOWN + 5)])
    said = _said(tally, "localkv drill --seed 3")
    assert len(said) == SHOWN + 2
    assert said[-2:] == ["... and 5 more", "to see it again, run: localkv drill --seed 3"]


# ---- the face ----


def test_a_face_is_the_ordinary_one_and_marks_a_migration(world):
    """As a process: it does what `localkv` does, brings older conversations up to date, and says so step by step."""
    talk(world)
    world.make_older()
    command = [sys.executable, "-m", "localkv.commands.drill.face", "sessions", "list", "--json"]
    done = subprocess.run(command, env=world.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [each["session"] for each in json.loads(done.stdout)] == ["talk-0"]
    watch = Watch(world.marks)
    watch.poll()
    whats = [mark.what for mark in watch.marks]
    assert whats[:2] == ["born", "migrating"]
    assert whats[-1] == "migrated"
    assert {"statement", "backed_up"} <= set(whats)
