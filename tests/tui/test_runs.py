"""Turns in flight and the engine, folded without any widget."""

import time

import msgspec
import pytest

from localkv.config import ModelSection
from localkv.errors import EngineUnavailable
from localkv.kv.record import pack_ids
from localkv.service.protocol import Delta, Failed, Prepare, Progress, Source, Started
from localkv.service.turn_events import Asked, EngineRestarted, Finished, Saved, Unsaved
from localkv.tui.engine import Engine
from localkv.tui.feed import Feed
from localkv.tui.pages import Entry
from localkv.tui.phase import describe, foretold
from localkv.tui.runs import Run, Runs, merge
from tests.tui.fakes import EPOCH, NOON, NUMBERS, FakeClient, ready


class Scripted:
    """A turn that yields what it was given."""

    def __init__(self, *events):
        self.events = events
        self.cancelled = False

    def run(self):
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event

    def cancel(self):
        self.cancelled = True


def drained(run):
    """`run` after all that its thread had to say."""
    run.begin()
    deadline = time.monotonic() + 10
    while run.on_its_way and time.monotonic() < deadline:
        time.sleep(0.001)
    run.drain()
    return run


def delta(text, tokens=1):
    return Delta(request=1, epoch=EPOCH, text=text, ids=pack_ids([7] * tokens))


def a_run(*events, ticks=None, **facts):
    times = iter(ticks or [float(n) for n in range(1_000)])
    return Run("c", Scripted(*events), asked_at=NOON, clock=lambda: next(times), **facts)


def test_a_turn_folds_into_entries():
    """Text, ids and numbers of a whole turn end in the two entries that the transcript shows."""
    run = drained(
        a_run(
            Asked("q", "a"),
            delta("Hel"),
            delta("lo"),
            Finished("complete", "Hello", b"", "q", "a", numbers=NUMBERS),
            question="Hi",
        )
    )
    question, answer = run.entries(NOON)
    assert (question.id, question.role, question.text) == ("q", "user", "Hi")
    assert (answer.id, answer.text, answer.mark, answer.growing) == ("a", "Hello", "", False)
    assert "restored 12,288, computed 122" in answer.notes[0]
    assert run.over


def test_the_rate_counts_tokens_after_the_first():
    """Ten tokens in five seconds after the first are two a second."""
    run = a_run(delta("a"), delta("b", 10), ticks=[0.0, 5.0])
    run.begin()
    while run.on_its_way:
        time.sleep(0.001)
    run._fold(delta("a"))
    run._fold(delta("b", 10))
    assert run.phase.per_second == pytest.approx(2.0)
    assert run.phase.done == 11


def test_before_the_ids_are_known_entries_have_others():
    """While the database refuses writes, question and answer are shown under ids of their own."""
    one, other = a_run(Asked(None, None), question="Hi"), a_run(Asked(None, None), question="Hi")
    assert drained(one).entries(NOON)[0].id != drained(other).entries(NOON)[0].id


@pytest.mark.parametrize(("events", "stored"), [
    ([Asked("q", "a")], True),
    ([Asked("q", None)], True),
    ([Asked(None, "a")], True),
    ([Asked(None, None)], False),
    ([Asked(None, None), Unsaved("disk full")], False),
    ([Asked(None, None), Unsaved("disk full"), Saved()], True),
    ([Asked(None, None), Finished("complete", "", b"", "q", "a")], True),
    ([Asked(None, None), Finished("complete", "", b"", None, None, unsaved="disk full")], False),
])  # fmt: skip
def test_a_question_counts_as_asked_once_it_is_stored(events, stored):
    """While the database refuses it, it is only shown; that it is stored is told once."""
    run = drained(a_run(*events, question="Hi"))
    assert run.take_asked() is stored
    run._fold(Saved())
    assert run.take_asked() is not stored
    run._fold(Saved())
    assert not run.take_asked()


def test_unsaved_is_a_mark_until_it_is_saved():
    """UNSAVED stands beneath the answer while it is true."""
    assert "UNSAVED" in drained(a_run(Unsaved("disk full"), question="Hi")).entries(NOON)[1].mark
    assert drained(a_run(Unsaved("disk full"), Saved(), question="Hi")).entries(NOON)[1].mark == ""


def test_a_turn_that_raises_is_over_and_says_why():
    """Whatever ends a turn's thread is shown, once."""
    run = drained(a_run(EngineUnavailable("no engine"), question="Hi"))
    assert run.over
    assert run.take_notices() == ["no engine"]
    assert run.take_notices() == []


def test_a_restart_is_said():
    """The person learns that the engine died, and whether the question is asked again."""
    assert "asked again" in drained(a_run(EngineRestarted("gone", repeated=True))).take_notices()[0]
    assert "asked again" not in drained(a_run(EngineRestarted("gone", repeated=False))).take_notices()[0]


def test_stopping_stays_on_screen():
    """After Esc the phase says so until the turn is over, whatever still arrives."""
    turn = Scripted()
    run = Run("c", turn, asked_at=NOON, clock=lambda: 0.0)
    run.stop()
    run._fold(delta("late"))
    run._fold(Progress(request=1, epoch=EPOCH, phase="prefill", done=1, total=2))
    assert turn.cancelled
    assert run.phase.doing == "stopping"


def test_runs_by_conversation():
    """A finished run is given back once; an unsaved one stays until the database has it."""
    runs = Runs()
    run = a_run(Finished("complete", "x", b"", None, None, unsaved="disk full"), question="Hi")
    runs.add(run)
    while run.on_its_way:
        time.sleep(0.001)
    assert runs.drain() == ([run], [run])
    assert runs.drain() == ([], [])
    assert not runs.busy("c")
    assert runs.forget_saved(["c"]) == []
    assert runs.of("c") is run
    assert runs.forget_saved([]) == [run]
    assert runs.of("c") is None


def test_merge():
    """Newer entries take the place of those with their ids; others come last."""
    old = [Entry("1", "user", "a"), Entry("2", "assistant", "b")]
    new = [Entry("2", "assistant", "c"), Entry("3", "user", "d")]
    assert [(entry.id, entry.text) for entry in merge(old, new)] == [("1", "a"), ("2", "c"), ("3", "d")]


def finish(engine):
    deadline = time.monotonic() + 10
    while engine.moving and time.monotonic() < deadline:
        engine.drain()
        time.sleep(0.001)
    return engine


def test_the_engine_becomes_ready():
    """Connecting, loading, ready, and its notes to read."""
    client = FakeClient(replies=[ready(ModelSection(), notes=("a demo model",))])
    engine = Engine(client)
    assert engine.state == "starting"
    engine.prepare(ModelSection())
    finish(engine)
    assert engine.state == "ready"
    assert engine.ready.title == "Qwen3-4B"
    assert engine.take_notices() == [("a demo model", False)]


@pytest.mark.parametrize("how", ["connect", "load"])
def test_an_engine_that_fails_is_off(how):
    """Both ways of failing end in a notice and can be tried again."""
    failed = Failed(request=1, epoch=EPOCH, error="ModelMissing", message="no such model")
    client = FakeClient(replies=[failed] if how == "load" else None)
    client.connect_problem = EngineUnavailable("no such engine") if how == "connect" else None
    engine = Engine(client)
    engine.prepare(ModelSection())
    finish(engine)
    assert engine.state == "off"
    [(notice, is_problem)] = engine.take_notices()
    assert notice.startswith("no such")
    assert is_problem
    client.connect_problem = client.replies_to_prepare = None
    engine.prepare(ModelSection())
    assert finish(engine).state == "ready"


def test_leaving_stops_what_runs():
    """Leaving cancels turns, asks the engine to save, and says when that is done."""
    turn = Scripted()
    run = drained(Run("c", turn, asked_at=NOON, clock=lambda: 0.0))
    run.over = False
    client = FakeClient()
    engine = Engine(client)
    engine.leave([run])
    finish(engine)
    assert turn.cancelled
    assert engine.left
    assert client.left == 1


class Failing(FakeClient):
    """An engine that does not come, as soon as it is let go on."""

    def connect(self):
        self.hold.wait(30)
        raise EngineUnavailable("no such engine")


FAILED = Failed(request=1, epoch=EPOCH, error="ModelMissing", message="no such model")
MORE = Progress(request=1, epoch=EPOCH, phase="loading", done=1, total=2)


@pytest.mark.parametrize(
    "client",
    [FakeClient(), FakeClient(replies=[FAILED]), FakeClient(replies=[MORE, MORE]), Failing()],
    ids=["ready", "failed", "progress", "no engine"],
)
def test_leaving_goes_on_whatever_loading_says(client):
    """However loading ends meanwhile: the engine is leaving and says so, so that leaving a second time is at once."""
    client.hold.clear()
    client.leave_hold.clear()
    engine = Engine(client)
    engine.prepare(ModelSection())
    engine.prepare(ModelSection(name="another"))
    engine.leave([])
    phase = engine.phase
    client.hold.set()
    deadline = time.monotonic() + 10
    while engine._feed is not None and time.monotonic() < deadline:
        engine.drain()
        assert (engine.state, engine.phase) == ("leaving", phase)
        time.sleep(0.001)
    engine.prepare(ModelSection())
    assert engine._feed is None
    client.leave_hold.set()
    assert finish(engine).left
    assert (engine.state, engine.phase) == ("leaving", phase)


@pytest.mark.parametrize("first", [None, [FAILED]], ids=["ready", "failed"])
@pytest.mark.parametrize(
    ("wishes", "loaded"),
    [("", "a"), ("b", "ab"), ("bc", "ac"), ("ba", "a"), ("a", "a"), ("bb", "ab")],
)
def test_the_model_that_was_wished_for_last_is_loaded(wishes, loaded, first):
    """A wish while a model loads is not forgotten: the last one is fulfilled next, and nothing is loaded for nothing."""
    client = FakeClient(replies=first)
    client.hold.clear()
    engine = Engine(client)
    for name in ["a", *wishes]:
        engine.prepare(ModelSection(name=name))
    client.hold.set()
    finish(engine)
    assert "".join(sent.model.name for sent in client.sent if isinstance(sent, Prepare)) == loaded
    if first is None:
        assert engine.state == "ready"
        assert engine.ready.model.name == loaded[-1]


def test_a_feed_keeps_order_and_the_end():
    """Nothing that was yielded before an exception is lost."""

    def source():
        yield 1
        yield 2
        raise ValueError("three")

    feed = Feed("test", source)
    feed.begin()
    while feed.working:
        time.sleep(0.001)
    assert feed.drain() == ([1, 2], True)
    assert str(feed.problem) == "three"


def test_a_forecast_is_shown_before_and_while_it_comes_true():
    """What a turn foretells stands in the phase line until the model reads: source, tokens, seconds, then how far it is."""
    started = Started(
        request=1, epoch="e", line_ids=(), prompt_tokens=4200, planned=Source(ram=96, ssd=4000), resume_at=4096,
        restore_seconds=0.9, prefill_seconds=2.0,
    )  # fmt: skip
    first = foretold(started)
    assert describe(first) == "restoring 4,096 tok from SSD, ~900 ms"
    run = Run("c", Scripted(), asked_at=0.0, clock=lambda: 0.0)
    run._fold(started)
    assert run.phase == first
    run._fold(Progress(request=1, epoch="e", phase="restoring", done=1 << 20, total=4 << 20))
    assert describe(run.phase) == "restoring 4,096 tok from SSD, ~900 ms 25 %  1.0 MiB of 4.0 MiB"
    run._fold(Progress(request=1, epoch="e", phase="prefill", done=4, total=104))
    assert run.phase.detail == ""
    nothing = msgspec.structs.replace(started, planned=Source(), resume_at=0, restore_seconds=0.0)
    assert describe(foretold(nothing)) == "prefill 0/4,200 0 %  2,100.0 tok/s  ~2.0 s left"
