"""A face's way to the engine."""

import os
import subprocess
import sys
import threading
import time

import pytest

from localkv.config import ModelSection, SamplingSection
from localkv.errors import EngineUnavailable, ProtocolError
from localkv.service import protocol
from localkv.service.launch import EXIT_ALREADY_RUNNING, EXIT_OK
from localkv.service.protocol import Cancel, Delta, Done, Failed, Line, Look, Prepare, Ready, Snapshot, Submit

from .fakes import snapshot


def submit(client, script):
    return Submit(
        request=client.next_request(), conversation="c", model=ModelSection(), sampling=SamplingSection(),
        lines=(Line(role="user", text=script),),
    )  # fmt: skip


def ask(client, script):
    request = submit(client, script)
    client.send(request)
    return list(client.replies(request.request))[-1]


def first(client, request, kind):
    while not isinstance(reply := client.next_reply(request.request), kind):
        assert not isinstance(reply, protocol.FINAL)
    return reply


def test_replies_end_with_the_final_one(start, client):
    """A face iterates over one request and is told nothing of others."""
    start()
    face = client()
    face.connect()
    one, two = submit(face, "say a"), submit(face, "say b")
    face.send(one)
    face.send(two)
    assert list(face.replies(two.request))[-1].text == "b"
    assert list(face.replies(one.request))[-1].text == "a"
    prepare = Prepare(request=face.next_request(), model=ModelSection(name="m"))
    face.send(prepare)
    assert isinstance(list(face.replies(prepare.request))[-1], Ready)


def test_snapshots_are_kept_without_asking(start, client):
    """The panel reads the latest snapshot whenever it draws."""
    start()
    face = client()
    face.connect()
    ask(face, "say a")
    look = Look(request=face.next_request())
    face.send(look)
    assert isinstance(next(face.replies(look.request)), Snapshot)
    assert face.latest_snapshot.turns == 1


def test_strangers_are_dropped_and_counted(start, client):
    """A reply of another epoch, or to a request that was given up, reaches nobody."""
    engine = start()
    face = client()
    face.connect()
    stranger = snapshot(epoch="another", turns=99)
    engine.server._faces.send_all(stranger)
    while face.dropped < 1:  # a newer snapshot would replace it in the outbox
        pass
    engine.server._faces.send_all(Failed(request=777, epoch="e", error="x", message=""))
    ask(face, "say a")
    assert face.dropped == 2
    assert face.latest_snapshot is None or face.latest_snapshot.turns != 99
    forgotten = submit(face, "say a hold")
    face.send(forgotten)
    first(face, forgotten, Delta)
    face.forget(forgotten.request)
    engine.runtime.gate.set()
    ask(face, "say b")
    assert face.dropped > 2


def test_the_death_of_the_engine_ends_every_open_request(start, client):
    """Nobody waits for an engine that is gone; requests sent later learn it at once."""
    engine = start()
    face = client()
    face.connect()
    running, queued = submit(face, "say a hold"), submit(face, "say b")
    face.send(running)
    face.send(queued)
    first(face, running, Delta)
    for each in tuple(engine.server._faces._connected):
        each.channel.hang_up()
    assert list(face.replies(running.request))[-1].error == "EngineDied"
    assert list(face.replies(queued.request))[-1].error == "EngineDied"
    assert not face.alive
    assert ask(face, "say c").error == "EngineDied"
    face.send(Cancel(request=face.next_request(), target=running.request))


def test_a_hung_engine_can_be_given_up(start, client):
    """A face gets its prompt back although the engine does not react."""
    engine = start()
    face = client()
    face.connect()
    request = submit(face, "say a hold")
    face.send(request)
    first(face, request, Delta)
    got = []
    reader = threading.Thread(target=lambda: got.extend(face.replies(request.request)))
    reader.start()
    face.give_up(request.request)
    reader.join()
    assert got[-1].error == "Cancelled"
    with pytest.raises(EngineUnavailable, match="did not answer"):
        list(face.replies(_sent(face, submit(face, "say b")), timeout=0.01))
    engine.runtime.gate.set()


def _sent(face, request):
    face.send(request)
    return request.request


def test_a_request_over_the_cap_is_refused_here(start, client, monkeypatch):
    """A conversation too large for a frame is a named error, and the connection stays."""
    start()
    face = client()
    face.connect()
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(ProtocolError, match="Submit"):
        ask(face, "x" * 2000)
    assert ask(face, "say a").text == "a"


def test_how_far_away_conversations_are_is_forgotten_with_the_engine(start, client):
    """The one that comes next has nothing in its slot: nobody is told that it had, though nobody asked it yet."""
    engine = start()
    face = client()
    face.connect()
    deadline = time.monotonic() + 10
    while not face.resumes:  # a newer snapshot may take its place in the outbox
        assert time.monotonic() < deadline
        engine.server._faces.send_all(snapshot(resume_seconds={"head": 0.0}, resume_tiers={"head": "slot"}))
        time.sleep(0.01)
    assert face.leave(10) is not None
    engine.wait_end()
    start()
    face.connect()
    assert not face.resumes


def test_leaving_confirms_the_flush_and_a_client_can_come_back(start, client):
    """Quitting reports what was saved; without an engine there is nothing to say."""
    face = client()
    assert face.leave(1) is None
    engine = start()
    face.connect()
    assert face.leave(10).records == 3
    assert not face.alive
    engine.wait_end()
    start()
    face.connect()
    assert ask(face, "say again").text == "again"


def test_an_engine_is_started_found_and_ended(client, spawn, home):
    """The first face starts the process, the second uses the same one, the last to leave ends it."""
    first_face, second_face = client(spawn), client(spawn)
    first_face.connect()
    second_face.connect()
    first_face.connect()
    assert first_face.epoch == second_face.epoch != ""
    assert [child.pid for child in spawn.children] == [first_face.engine_pid]
    assert os.getsid(first_face.engine_pid) == first_face.engine_pid, "Ctrl+C must reach the face alone"
    assert ask(second_face, "say hi").text == "hi"
    assert first_face.leave(10).records == 0
    assert second_face.leave(10).records == 3
    assert spawn.children[0].wait(30) == 0
    assert (home.data_dir / "diary.txt").read_text().split()[-2:] == ["flush", "close"]


def test_faces_that_race_to_start_get_one_engine(client, spawn):
    """However many start at once, the lock admits one engine and all faces share it."""
    faces = [client(spawn) for _ in range(4)]
    racers = [threading.Thread(target=face.connect) for face in faces]
    for each in racers:
        each.start()
    for each in racers:
        each.join()
    assert len({face.epoch for face in faces}) == 1
    for face in faces:
        assert ask(face, "say hi").text == "hi"
    assert sum(child.poll() is None for child in spawn.children if child.pid == faces[0].engine_pid) == 1


def test_a_face_whose_engine_gave_way_starts_another(client, spawn, home):
    """Its own process found the lock held, and the holder ended before the face came in: neither is an error."""
    exits = [EXIT_ALREADY_RUNNING, EXIT_OK]

    def begin():
        if exits:
            return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({exits.pop()})"])
        return spawn()

    face = client(begin)
    face.connect()
    assert ask(face, "say hi").text == "hi"
    assert not exits


def test_a_killed_engine_is_replaced(client, spawn):
    """kill -9 leaves a stale socket and a free lock; the next connect makes a new epoch."""
    face = client(spawn)
    face.connect()
    before = face.epoch
    request = submit(face, "say a die")
    face.send(request)
    assert list(face.replies(request.request))[-1].error == "EngineDied"
    face.restart()
    assert face.epoch != before
    assert ask(face, "say hi").text == "hi"


def test_an_ending_engine_is_waited_for(client, spawn):
    """A face that comes while the last engine is ending gets a new one, without an error."""
    face = client(spawn)
    epochs = set()
    for _ in range(4):
        face.connect()
        epochs.add(face.epoch)
        face.leave(10)
    assert len(epochs) == 4


def test_an_engine_that_cannot_start_shows_its_last_words(client, home):
    """The person sees why, and where the whole log is."""

    def broken():
        with home.engine_log.open("ab") as log:
            return subprocess.Popen([sys.executable, "-c", "raise SystemExit('no libtorch here')"], stderr=log)

    with pytest.raises(EngineUnavailable, match="no libtorch here") as caught:
        client(broken).connect()
    assert str(home.engine_log) in str(caught.value)


def test_an_engine_without_an_answer_is_given_up_in_bounded_time(client, home, spawn):
    """A process that never opens its door is an error, not a hang."""
    children = []

    def mute():
        children.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        return children[-1]

    face = client(mute)
    face._connect_seconds = 0.1
    with pytest.raises(EngineUnavailable, match="no engine answered"):
        face.connect()
    children[0].communicate(b"\n")


def test_an_engine_of_another_release_is_refused(start, client, monkeypatch):
    """Two versions side by side end in a sentence that says what to do."""
    start()
    import localkv.service.client as module

    monkeypatch.setattr(module, "Hello", lambda request: protocol.Hello(request=request, version=99))
    with pytest.raises(EngineUnavailable, match="quit every other localkv"):
        client().connect()


def test_done_is_the_last_thing_a_request_hears(start, client):
    """After a final reply the request is closed and its number means nothing."""
    start()
    face = client()
    face.connect()
    assert isinstance(ask(face, "say a"), Done)
    assert face._inboxes == {}
