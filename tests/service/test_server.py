"""The engine's front and its work thread, in this process, with a runtime that follows scripts."""

import os
import struct
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import Head, pack_ids
from localkv.service import server, work
from localkv.service.faces import Face
from localkv.service.jobs import Job
from localkv.service.launch import EXIT_FATAL, EXIT_OK, EXIT_STUCK
from localkv.service.protocol import (
    PROTOCOL_VERSION,
    Cancel,
    Delta,
    Done,
    Examine,
    Failed,
    Flushed,
    Hello,
    Leave,
    Line,
    Look,
    Prepare,
    Progress,
    Ready,
    Report,
    Snapshot,
    Started,
    Submit,
    Typing,
    Unload,
    Unloaded,
    Warm,
    Welcome,
    decode_reply,
    encode,
)


def submit(request, script):
    return Submit(
        request=request,
        conversation="c",
        model=ModelSection(),
        lines=(Line(role="user", text=script),),
        sampling=SamplingSection(),
    )


class Peer:
    """A face that speaks frames, to see exactly what the engine says."""

    def __init__(self, engine, greet=True):
        self.channel = engine.dial()
        self.snapshots = []
        if greet:
            self.say(Hello(request=1000))
            assert isinstance(self.hear(1000), Welcome)

    def say(self, request):
        assert self.channel.send(encode(request))

    def hear(self, request):
        """The next reply to `request`; None once the engine has hung up."""
        while (frame := self.channel.receive()) is not None:
            reply = decode_reply(frame)
            if isinstance(reply, Snapshot) and reply.request == 0:
                self.snapshots.append(reply)
            elif reply.request == request:
                return reply
        return None

    def until(self, request, kind):
        while not isinstance(reply := self.hear(request), kind):
            assert reply is not None
        return reply

    def close(self):
        self.channel.hang_up()
        self.channel.close()


@pytest.fixture
def peer(start):
    peers = []

    def make(engine, greet=True):
        peers.append(Peer(engine, greet))
        return peers[-1]

    yield make
    for each in peers:
        each.close()


def test_an_answer_streams_in_order(start, peer):
    """Started comes before the text, the text before Done, and all of it with the request and epoch it belongs to."""
    face = peer(start())
    face.say(submit(5, "say a say b"))
    kinds, text = [], ""
    while True:
        reply = face.hear(5)
        assert reply.epoch == "e"
        if isinstance(reply, Delta):
            text += reply.text
        elif not isinstance(reply, Progress):
            kinds.append(type(reply))
        if isinstance(reply, Done):
            break
    assert kinds == [Started, Done]
    assert text == reply.text == "ab"
    assert reply.ids == pack_ids([1, 1])


def test_a_model_is_loaded_and_examined_on_request(start, peer):
    """Prepare shows progress and ends in Ready, Examine ends in a Report."""
    face = peer(start())
    face.say(Prepare(request=1, model=ModelSection(name="m")))
    assert face.hear(1).phase == "loading"
    assert face.until(1, Ready).title == "m"
    face.say(Examine(request=2, model=ModelSection()))
    assert face.until(2, Report).sections == {"machine": {"cores": 2}}


def test_the_first_request_foretells_its_model_before_anything_heavy_begins(start, peer):
    """Weights are on their way while the engine still imports; once there is a runtime, it alone reads them."""
    foreseen, imported = [], threading.Event()

    def foresee(model):
        foreseen.append((model, imported.is_set()))
        imported.set()

    face = peer(start(imported=imported, foresee=foresee))
    face.say(Prepare(request=1, model=ModelSection(name="m")))
    face.until(1, Ready)
    face.say(Prepare(request=2, model=ModelSection(name="n")))
    face.until(2, Ready)
    assert foreseen == [("m", False)]


def test_a_question_asked_while_the_model_loads_is_queued_and_sees_the_loading(start, peer, monkeypatch):
    """Nobody has to wait for the engine before typing, and the wait is explained while it lasts."""
    engine = start()
    loading, seen = threading.Event(), threading.Event()
    prepare = engine.runtime.prepare

    def slowly(model, progress):
        monkeypatch.setattr(engine.runtime, "prepare", prepare)
        loading.wait()
        progress("loading", 7, 9, "weights", 0.0)
        seen.wait()
        return prepare(model, progress)

    monkeypatch.setattr(engine.runtime, "prepare", slowly)
    face = peer(engine)
    face.say(Prepare(request=1, model=ModelSection(name="big")))
    face.say(submit(2, "say hi"))
    assert face.hear(2).phase == "queued"
    loading.set()
    assert (reply := face.hear(2)).phase == "loading"
    assert (reply.done, reply.detail) == (7, "weights")
    seen.set()
    assert face.until(2, Done).text == "hi"


def test_cancel_stops_a_running_and_a_queued_request_at_once(start, peer):
    """The work thread is busy with one answer; stopping another does not wait for it."""
    face = peer(start())
    face.say(submit(1, "say a wait say b"))
    face.until(1, Delta)
    face.say(submit(2, "say never"))
    face.until(2, Progress)
    face.say(Cancel(request=3, target=2))
    assert face.until(2, Failed).error == "Cancelled"
    face.say(Cancel(request=4, target=1))
    stopped = face.until(1, Done)
    assert (stopped.text, stopped.reason) == ("a", "cancelled")
    face.say(submit(5, "say on"))
    assert face.until(5, Done).text == "on"


def test_cancel_does_not_wait_for_a_model_to_load(start, peer):
    """Loading may take minutes; a question that waits for it is stopped at once, and answered exactly once."""
    engine = start()
    engine.runtime.load_gate.clear()
    face = peer(engine)
    face.say(submit(1, "say never"))
    engine.runtime.loading.wait()
    face.say(Cancel(request=2, target=1))
    assert face.until(1, Failed).error == "Cancelled"
    engine.runtime.load_gate.set()
    face.say(submit(3, "say on"))
    assert face.until(3, Done).text == "on"
    assert engine.runtime.turns == 1


def test_look_is_answered_while_the_work_thread_is_busy(start, peer):
    """The panel never waits for a prefill."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    face.say(Look(request=2))
    assert face.hear(2).busy_conversation == "c"
    engine.runtime.gate.set()
    face.until(1, Done)


def test_a_look_with_heads_is_told_how_far_away_they_are(start, peer):
    """The list's conversations are asked for by head, and the answer goes to who asked; pushed snapshots stay small."""
    face = peer(start())
    face.say(Look(request=2, heads=(Head("h", "i", 3),)))
    assert face.hear(2).resume_tiers == {"h": "ssd"}


def test_a_hint_is_worked_at_between_requests_and_never_answered(start, peer):
    """Hints wake an engine that waits for ever, and are seen to when nothing is asked."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    face.say(Typing(request=0, conversation="c", model=ModelSection(), lines=(), text="hello"))
    face.say(Warm(request=0, model=ModelSection(), wants=(), why="open"))
    face.say(Look(request=2))
    assert face.hear(2).unsaved_records == 2, "both slices wait"
    engine.runtime.gate.set()
    face.until(1, Done)
    while face.say(Look(request=3)) or face.hear(3).unsaved_records:
        pass
    face.say(Warm(request=0, model=ModelSection(), wants=(), why="rest"))
    while engine.runtime.calls.count("slice") < 3:
        face.say(Look(request=4))
        face.hear(4)
    assert [type(hint).__name__ for hint in engine.runtime.hints] == ["Typing", "Warm", "Warm"]


def test_snapshots_are_pushed_while_a_request_runs_and_after_it(start, peer):
    """Panels of all faces follow without asking, also of faces that ask nothing."""
    engine = start()
    busy, idle = peer(engine), peer(engine)
    busy.say(submit(1, "say a hold"))
    busy.until(1, Delta)
    while not any(each.busy_conversation for each in idle.snapshots):
        idle.say(Look(request=7))
        idle.hear(7)
    engine.runtime.gate.set()
    while not any(each.turns == 1 and not each.busy_conversation for each in idle.snapshots):
        idle.say(Look(request=7))
        idle.hear(7)


def test_two_faces_use_the_same_numbers_and_get_their_own_answers(start, peer):
    """Requests are told apart by connection; one face's leaving does not disturb the other."""
    engine = start()
    first, second = peer(engine), peer(engine)
    first.say(submit(1, "say one"))
    second.say(submit(1, "say two"))
    assert first.until(1, Done).text == "one"
    assert second.until(1, Done).text == "two"
    first.say(Leave(request=2))
    assert first.until(2, Flushed).records == 0
    second.say(submit(3, "say still"))
    assert second.until(3, Done).text == "still"
    assert "flush" not in engine.runtime.calls


def test_the_last_face_to_leave_waits_for_the_flush_and_ends_the_engine(start, peer):
    """Leaving is answered after the records are on disk; then the engine ends in order and takes nobody in."""
    engine = start()
    face = peer(engine)
    face.say(Leave(request=1))
    assert face.until(1, Flushed).records == 3
    assert face.hear(1) is None
    assert engine.wait_end() == EXIT_OK
    assert engine.runtime.calls == ["flush", "close"]
    assert engine.dial() is None


def test_a_face_that_is_killed_stops_its_work_and_ends_the_engine_after_a_flush(start, peer):
    """A broken connection counts as leaving, in the middle of an answer too."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a wait"))
    face.until(1, Delta)
    face.channel.hang_up()
    assert engine.wait_end() == EXIT_OK
    assert engine.runtime.calls[-2:] == ["flush", "close"]


def test_a_lingering_engine_takes_the_next_face_in(start, peer):
    """With linger_seconds the model stays loaded between two runs of a face."""
    engine = start(linger_seconds=3600.0)
    first = peer(engine)
    first.say(Leave(request=1))
    assert first.until(1, Flushed).records == 3
    second = peer(engine)
    second.say(submit(1, "say hi"))
    assert second.until(1, Done).text == "hi"


def test_unloading_waits_for_the_turn_under_way(start, peer):
    """A face that wants the memory back gets it after the answer, and the next question loads the model again."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    face.say(Unload(request=2))
    assert "unload" not in engine.runtime.calls
    engine.runtime.gate.set()
    assert face.until(1, Done).text == "a"
    unloaded = face.until(2, Unloaded)
    assert (unloaded.model, unloaded.freed_bytes, unloaded.records) == ("fake", 5 << 30, 3)
    face.say(submit(3, "say b"))
    assert face.until(3, Done).text == "b"
    assert engine.runtime.calls[-2:] == ["prepare starter", "turn say b"]


def test_a_model_that_nobody_asks_leaves_memory(start, peer):
    """After the set time without a question the runtime is told so, once; the engine stays, and a question begins the time anew."""
    engine = start(unload_seconds=0.02)
    face = peer(engine)
    face.say(submit(1, "say a"))
    face.until(1, Done)
    assert engine.runtime.unloaded.wait(60)
    engine.runtime.unloaded.clear()
    face.say(Look(request=2))
    face.until(2, Snapshot)
    face.say(submit(3, "say b"))
    assert face.until(3, Done).text == "b"
    assert engine.runtime.unloaded.wait(60)
    assert [call for call in engine.runtime.calls if "unload" in call] == ["unload idle"] * 2


def test_a_model_that_cannot_leave_yet_is_asked_again(start, peer, monkeypatch):
    """What could not be saved when nobody had asked for so long keeps the model until the next time, not until the next question."""
    engine = start(unload_seconds=0.02)
    problems = ["the disk is full", "the disk is full", ""]

    def unload(*, idle):
        problem = problems.pop(0)
        if not problem:
            engine.runtime.unloaded.set()
        return Unloaded(request=0, epoch="", problem=problem)

    monkeypatch.setattr(engine.runtime, "unload", unload)
    face = peer(engine)
    face.say(submit(1, "say a"))
    face.until(1, Done)
    assert engine.runtime.unloaded.wait(60)
    assert problems == []


def test_looks_are_nothing_to_wait_for(start, peer):
    """Who asks is told how many questions come first, however often others look meanwhile."""
    engine = start()
    face, other = peer(engine), peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    for number in range(2, 9):
        engine.server._jobs.post(Job(None, Look(request=number)))
    other.say(submit(9, "say b"))
    assert other.until(9, Progress).total == 1
    engine.runtime.gate.set()
    assert other.until(9, Done).text == "b"


def test_a_work_thread_that_hangs_when_nobody_is_here_any_more_ends_with_the_process(start, peer, monkeypatch):
    """The device hangs and the last window is closed: memory and lock are not held for ever."""
    monkeypatch.setattr(server, "ALONE_SECONDS", 0.2)
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    time.sleep(0.5)
    assert engine.thread.is_alive(), "somebody is here: whether to wait is theirs to say"
    face.channel.hang_up()
    assert engine.wait_end() == EXIT_STUCK


def test_an_engine_on_which_nobody_waits_stays_as_long_as_it_lingers(start, peer, monkeypatch):
    """A work thread with nothing to do does not hang."""
    monkeypatch.setattr(server, "ALONE_SECONDS", 0.5)
    engine = start(linger_seconds=2.0)
    face = peer(engine)
    face.say(submit(1, "say a"))
    face.until(1, Done)
    face.channel.hang_up()
    assert engine.wait_end() == EXIT_OK


def test_without_a_set_time_the_model_stays(start, peer):
    """0 means never: no timer is set, and the work thread waits for ever."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a"))
    face.until(1, Done)
    face.say(submit(2, "say b"))
    face.until(2, Done)
    assert engine.server._work._unload_at is None
    assert engine.server._work._seconds_to_wait() is None


def test_background_work_is_done_between_requests_only(start, peer):
    """Records are saved slice by slice while nobody waits; a request that waits goes first."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    engine.runtime.slices = 3
    face.say(submit(2, "say b"))
    assert face.until(2, Progress).phase == "queued"
    engine.runtime.gate.set()
    face.until(2, Done)
    while not any(each.unsaved_records == 0 and each.turns == 2 for each in face.snapshots):
        face.say(Look(request=7))
        face.hear(7)
    assert engine.runtime.calls == ["prepare starter", "turn say a hold", "prepare starter", "turn say b", *["slice"] * 3]


def test_after_the_flush_nothing_more_is_saved(start, peer):
    """The bound on the end holds even if background work would go on for ever."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    engine.runtime.slices = 10**9
    face.channel.hang_up()
    engine.runtime.gate.set()
    assert engine.wait_end() == EXIT_OK
    assert engine.runtime.calls[-2:] == ["flush", "close"]


def test_errors_are_told_and_survived(start, peer, caplog):
    """localkv's own errors keep their name and sentence; a bug becomes one sentence, a traceback in the log, and no more."""
    face = peer(start())
    face.say(submit(1, "full"))
    failed = face.until(1, Failed)
    assert failed.error == "ContextFull"
    assert "200" in failed.message
    face.say(submit(2, "say a crash"))
    failed = face.until(2, Failed)
    assert failed.error == "EngineError"
    assert "a bug" in failed.message
    assert "ZeroDivisionError" in caplog.text
    face.say(submit(3, "say on"))
    assert face.until(3, Done).text == "on"


def test_a_failed_device_ends_the_engine(start, peer):
    """After a CUDA fault every later request would fail: the engine says so and makes room for a new one."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "fault"))
    last_words = face.until(1, Failed)
    assert last_words.error == "EngineDied"
    assert "new one" in last_words.message
    assert face.hear(1) is None
    assert engine.wait_end() == EXIT_FATAL
    assert engine.runtime.calls[-2:] == ["flush", "close"], "what is in RAM is saved without the device"


def test_who_hears_that_an_engine_ends_finds_the_next_one(start, peer, monkeypatch):
    """Its door is closed before it says so: a face that asks again at once is not let in, to meet the same end."""
    engine, admits, send = start(), [], Face.send

    def spy(face, reply):
        if isinstance(reply, Failed):
            admits.append(engine.server._faces.admit(face))
        send(face, reply)

    monkeypatch.setattr(Face, "send", spy)
    peer(engine).say(submit(1, "fault"))
    assert engine.wait_end() == EXIT_FATAL
    assert admits == [False]


def test_a_device_that_fails_between_requests_ends_the_engine(start, peer, monkeypatch):
    """A device that did not survive a suspend is met by background work, too: the next question finds a new engine, not this one."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a"))
    face.until(1, Done)
    monkeypatch.setattr(engine.runtime, "idle", lambda: engine.runtime.misbehave("fault"))
    face.say(Warm(request=0, model=ModelSection(), wants=(), why="open"))
    assert engine.wait_end() == EXIT_FATAL
    assert face.hear(1) is None


@pytest.mark.parametrize("step", ["flush", "close"])
def test_a_failed_device_that_cannot_be_given_back_is_left_behind(start, peer, monkeypatch, step):
    """The end is bounded although whoever saves or closes hangs; nobody waits for that at the other end of the socket."""
    monkeypatch.setattr(server, "STUCK_SECONDS", 0.05)
    engine = start()
    monkeypatch.setattr(engine.runtime, step, lambda *_: engine.runtime.gate.wait())
    face = peer(engine)
    face.say(submit(1, "fault"))
    face.until(1, Failed)
    assert face.hear(1) is None
    assert engine.wait_end() == EXIT_STUCK


def test_a_failed_device_that_fails_again_while_it_is_given_back_is_no_other_end(start, peer, monkeypatch):
    """Saving and closing are tried, and the engine ends as one whose device has failed."""
    engine = start()
    for step in ("flush", "close"):
        monkeypatch.setattr(engine.runtime, step, lambda *_: engine.runtime.misbehave("fault"))
    face = peer(engine)
    face.say(submit(1, "fault"))
    face.until(1, Failed)
    assert engine.wait_end() == EXIT_FATAL


def test_a_runtime_that_cannot_be_made_is_told_to_each_request(start, peer):
    """A broken torch gives an answer with the reason, not a dead socket."""
    engine = start()

    def broken():
        raise ImportError("libtorch is missing")

    engine.server._work._runtime, engine.server._work._make_runtime = None, broken
    face = peer(engine)
    face.say(submit(1, "say a"))
    assert "libtorch" in face.until(1, Failed).message
    face.say(Look(request=2))
    assert face.until(2, Failed).error == "EngineError"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_alien_frames_end_their_connection_only(shared_engine, noise, greet):
    """Whatever bytes arrive, before or after Hello, other faces are served on."""
    engine, good = shared_engine
    bad = Peer(engine, greet)
    bad.channel.send(noise)
    bad.channel.send(noise)
    bad.channel.hang_up()
    bad.channel.close()
    good.say(submit(1, "say fine"))
    assert good.until(1, Done).text == "fine"


@pytest.fixture
def shared_engine(start, peer):
    engine = start()
    return engine, peer(engine)


def test_raw_noise_and_absurd_lengths_on_the_socket_end_their_connection_only(shared_engine, caplog):
    """A frame over the cap is logged as ProtocolError and its connection closed; so is what is no frame at all."""
    engine, good = shared_engine
    bad = Peer(engine)
    os.write(bad.channel._connection.fileno(), struct.pack("!i", 0x7FFFFFFF))
    assert bad.hear(0) is None
    bad.close()
    assert "ProtocolError" in caplog.text
    stranger = Peer(engine, greet=False)
    stranger.say(Look(request=1))
    assert stranger.hear(1) is None
    stranger.close()
    twice = Peer(engine)
    twice.say(Hello(request=5))
    assert twice.hear(5) is None
    twice.close()
    good.say(submit(1, "say fine"))
    assert good.until(1, Done).text == "fine"


def test_another_protocol_version_is_refused_with_a_sentence(start, peer):
    """A face of another release learns what to do."""
    face = peer(start(), greet=False)
    face.say(Hello(request=1, version=PROTOCOL_VERSION + 1))
    failed = face.until(1, Failed)
    assert failed.error == "EngineUnavailable"
    assert "quit" in failed.message
    assert face.hear(1) is None


def test_a_face_that_does_not_read_slows_nobody(start, peer):
    """A stopped face's frames pile up in its outbox, merged, while another face gets its answers."""
    engine = start()
    stopped, lively = peer(engine), peer(engine)
    word = "x" * 40_000
    stopped.say(submit(1, f"say {word} " * 50))
    lively.say(submit(1, "say hi"))
    assert lively.until(1, Done).text == "hi"
    text, frames = "", 0
    while not isinstance(reply := stopped.hear(1), Done):
        if isinstance(reply, Delta):
            text, frames = text + reply.text, frames + 1
    assert reply.text == text == word * 50
    assert frames < 50


def test_a_face_that_leaves_too_much_unread_is_dropped(start, peer):
    """The memory that one face can take is bounded; the engine goes on for the others."""
    engine = start(outbox_bytes=100_000)
    stopped, lively = peer(engine), peer(engine)
    stopped.say(submit(1, f"say {'x' * 40_000} " * 50))
    lively.say(submit(1, "say hi"))
    assert lively.until(1, Done).text == "hi"
    with pytest.raises(AssertionError):
        stopped.until(1, Done)


def test_told_to_end_it_stops_the_answer_flushes_and_ends(start, peer):
    """SIGTERM, as the server sees it: bounded, whoever is here."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a wait"))
    face.until(1, Delta)
    engine.server.stop()
    assert face.until(1, Done).text == "a"
    assert face.hear(1) is None
    assert engine.wait_end() == EXIT_OK
    assert engine.runtime.calls[-2:] == ["flush", "close"]


@pytest.mark.parametrize("late", ["background work", "a question"])
def test_told_to_end_it_takes_nothing_new_on(start, peer, late, tmp_path):
    """What comes up after the flush has begun is not begun: the end stays bounded, whoever is here and whatever is left to do."""
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a"))
    face.until(1, Done)
    blocker = tmp_path / "slow disk"
    engine.runtime.diary = tmp_path / "diary"
    blocker.touch()
    if late == "background work":
        engine.runtime.slices = 10**9
    engine.server.stop()
    while "flush" not in engine.runtime.calls:
        pass
    if late == "a question":
        face.say(submit(2, "say b"))
        while not engine.server._jobs.ahead() > 1:
            pass
    blocker.unlink()
    assert engine.wait_end() == EXIT_OK
    assert engine.runtime.calls[-2:] == ["flush", "close"]


def test_a_work_thread_that_does_not_react_is_left_behind(start, peer, monkeypatch):
    """Told to end, the process ends in bounded time even if the device hangs."""
    monkeypatch.setattr(server, "STUCK_SECONDS", 0.05)
    engine = start()
    face = peer(engine)
    face.say(submit(1, "say a hold"))
    face.until(1, Delta)
    engine.server.stop()
    assert engine.wait_end() == EXIT_STUCK


def test_an_engine_whose_face_never_comes_ends(start, monkeypatch):
    """A face that is killed while its engine starts leaves no process behind."""
    monkeypatch.setattr(work, "FIRST_FACE_SECONDS", 0.0)
    assert start().wait_end() == EXIT_OK


def test_no_face_is_let_in_and_then_left(start, home):
    """Faces come and go in a race with the engine's end: whoever is welcomed is served."""
    engine = start()
    served = []

    def visit():
        try:
            face = Peer(engine)
        except (AssertionError, AttributeError):
            return  # turned away: the engine was ending
        face.say(submit(1, "say hi"))
        served.append(face.until(1, Done).text)
        face.close()

    visitors = [threading.Thread(target=visit) for _ in range(8)]
    for each in visitors:
        each.start()
    for each in visitors:
        each.join()
    assert served
    assert set(served) == {"hi"}
    engine.wait_end()
