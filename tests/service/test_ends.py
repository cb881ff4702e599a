"""Every way in which a face or the engine ends: what arrived is kept, the end is bounded, and no process is left.

The faces are real processes, the engine is a process with the fake runtime.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from localkv.chat.store import ConversationStore
from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import EngineUnavailable
from localkv.service.client import EngineClient
from localkv.service.protocol import Delta
from localkv.service.turn_events import EngineRestarted, Finished
from localkv.service.turns import Chat
from localkv.service.watch import Sign, Watch
from localkv.service.wire import peer_process

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")]

SECONDS = 30
PIPE = subprocess.PIPE


def until(condition):
    """Wait for what another process does; that it takes too long is a failure."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)
    return found


@pytest.fixture
def engine(home, spawn):
    """An engine process with its door open."""
    child = spawn()
    until(lambda: peer_process(home.socket))
    return child


@pytest.fixture
def face(home):
    """Start `localkv` with arguments; what is left of it is killed after the test."""
    processes = []

    def start(*arguments):
        environment = os.environ | {"LOCALKV_HOME": str(home.data_dir.parent)}
        command = [sys.executable, "-m", "localkv", *arguments]
        processes.append(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, env=environment))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait(SECONDS)
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def messages(home, name="s"):
    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as store:
        store.recover()
        return [(message.text, message.state) for message in store.path(store.by_name(name).id)]


def processes_of(home):
    """Processes that work below this home."""
    root = str(home.data_dir.parent)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if root in line and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def ended(engine, home):
    """The engine ends by itself, in order, and nothing else is left."""
    assert engine.wait(SECONDS) == 0
    assert (home.data_dir / "diary.txt").read_text().split()[-2:] == ["flush", "close"]
    until(lambda: not processes_of(home))


# ---- a face is ended from outside ----


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_say_that_is_ended_keeps_what_came(home, engine, face, number, code):
    """Log-out, a closed window and Ctrl+C while an answer streams: what came is stored, the engine saves and ends."""
    process = face("say", "say Half wait", "--session", "s", "--new")
    assert process.stdout.read(4) == "Half"
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert messages(home) == [("say Half wait", "complete"), ("Half", "stopped")]
    ended(engine, home)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["at the prompt", "in an answer"])
def test_plain_chat_that_is_ended_keeps_what_came(home, engine, face, number, when):
    """At the prompt and while an answer streams alike."""
    process = face("chat", "--plain", "--session", "s")
    process.stdin.write("say Half wait\n" if when == "in an answer" else "say Whole\n")
    process.stdin.flush()
    until(lambda: process.stdout.readline() if when == "at the prompt" else process.stdout.read(9) == "you> Half")
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert messages(home)[1] == (("Half", "stopped") if when == "in an answer" else ("Whole", "complete"))
    ended(engine, home)


def test_a_closed_input_ends_the_plain_chat(home, engine, face):
    """The end of the input is the end of the chat, after the answer under way."""
    process = face("chat", "--plain", "--session", "s")
    out, _ = process.communicate("say Whole\n", timeout=SECONDS)
    assert process.returncode == 0
    assert "Whole" in out
    assert messages(home)[1] == ("Whole", "complete")
    ended(engine, home)


def test_a_reader_that_is_gone_ends_the_chat(home, engine, face):
    """A terminal or pipe that nobody reads any more is no reason to lose what came."""
    process = face("chat", "--plain", "--session", "s")
    assert process.stdout.read(5) == "you> "
    process.stdout.close()
    process.stderr.close()
    process.stdin.write("say Half say more\n")
    process.stdin.close()
    process.wait(SECONDS)
    ended(engine, home)
    assert messages(home)[0] == ("say Half say more", "complete")


def test_a_killed_face_loses_a_second_at_most(home, engine, face):
    """kill -9: the question is there, what was checkpointed of the answer is there as cut, the engine saves and ends."""
    process = face("say", "say Half wait", "--session", "s", "--new")
    assert process.stdout.read(4) == "Half"
    until(lambda: _stored(home) == "Half")
    process.kill()
    process.wait(SECONDS)
    assert messages(home) == [("say Half wait", "complete"), ("Half", "cut")]
    ended(engine, home)


def _stored(home):
    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as store:
        path = store.path(store.by_name("s").id)
        return path[-1].text if path[-1].role == "assistant" else ""


def test_nohup_is_obeyed(home, engine, face):
    """A face that was started deaf to SIGHUP stays deaf."""
    environment = os.environ | {"LOCALKV_HOME": str(home.data_dir.parent)}
    command = ["nohup", sys.executable, "-m", "localkv", "say", "say Half wait", "--session", "s", "--new"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, env=environment) as process:
        assert process.stdout.read(4) == "Half"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    ended(engine, home)


# ---- the engine ends ----


def test_an_engine_that_crashes_leaves_the_answer_cut(home, engine, face):
    """kill -9 of the engine: `say` ends with 1 and a sentence, what came is stored as cut, nothing is left running."""
    process = face("say", "say Half wait", "--session", "s", "--new")
    assert process.stdout.read(4) == "Half"
    engine.kill()
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert messages(home) == [("say Half wait", "complete"), ("Half", "cut")]
    assert engine.wait(SECONDS) == -signal.SIGKILL
    until(lambda: not processes_of(home))


@pytest.fixture
def watched(home, spawn):
    """A chat whose watchdog is impatient, in this process."""
    store = ConversationStore.open(home.database, home.backups)
    client = EngineClient(home, Config(), spawn=spawn, make_watch=lambda: Watch(1.0, 0.05))
    key = store.create("s", model=ModelSection(), sampling=SamplingSection()).id
    yield Chat(store, client), client, key
    client.leave(20)
    client.close()
    store.close()


def test_an_engine_that_hangs_is_ended_and_replaced(watched, home):
    """kill -STOP while an answer streams: the face notices, keeps the text as cut, and the next turn has a new engine."""
    chat, client, key = watched
    events = []
    for event in chat.ask(key, "say Half wait").run():
        events.append(event)
        if isinstance(event, Delta):
            hung = client.engine_pid
            os.kill(hung, signal.SIGSTOP)
    finished = events[-1]
    assert (finished.state, finished.text, finished.unsaved) == ("cut", "Half", "")
    assert "did not answer" in finished.message
    assert any(isinstance(event, EngineRestarted) for event in events)
    until(lambda: not psutil.pid_exists(hung) or psutil.Process(hung).status() == psutil.STATUS_ZOMBIE)
    assert client.engine_pid != hung
    assert [e for e in chat.ask(key, "say Again").run() if isinstance(e, Finished)][0].text == "Again"
    assert messages(home)[1] == ("Half", "cut")


def test_an_engine_that_hangs_before_the_first_word_is_asked_again(watched):
    """Nothing was streamed: the same question goes to the new engine by itself."""
    chat, client, key = watched
    client.connect()
    next(iter([*chat.ask(key, "say warm").run()]))
    first = client.engine_pid
    os.kill(first, signal.SIGSTOP)
    events = [*chat.ask(key, "say Whole").run()]
    assert events[-1].text == "Whole"
    assert any(isinstance(event, EngineRestarted) and event.repeated for event in events)
    assert client.engine_pid != first


def test_an_engine_that_works_silently_is_left_alone(watched):
    """Reading a long prompt says nothing for long; a sign of life beside the work is enough."""
    chat, client, key = watched
    client.connect()
    pid, events = client.engine_pid, chat.ask(key, "say a wait")
    seen = []
    for event in events.run():
        seen.append(event)
        if isinstance(event, Delta):
            stop_at = time.monotonic() + 2.5  # more than twice the bound
            while client.next_reply(_open_request(client), 0.2) is None and time.monotonic() < stop_at:
                pass
            events.cancel()
    assert seen[-1].state == "stopped"
    assert client.engine_pid == pid


def _open_request(client):
    return next(iter(client._inboxes))


def test_an_engine_that_hangs_is_not_left_behind(home, spawn):
    """kill -STOP, then the face leaves: nobody is left to end it, so the face does."""
    child = spawn()
    client = EngineClient(home, Config(), spawn=lambda: child, make_watch=lambda: Watch(60.0, 0.05))
    chat, store = opened_chat(home, client)
    assert [*chat.ask(store.by_name("s").id, "say warm").run()][-1].text == "warm"
    os.kill(child.pid, signal.SIGSTOP)
    assert client.leave(0.5) is None
    assert child.wait(SECONDS) == -signal.SIGKILL
    store.close()


def test_an_engine_that_still_saves_is_left_to_it(home, spawn):
    """It answers beside its work: that it takes longer than a face waits is no reason to end it."""
    child = spawn()
    client = EngineClient(home, Config(), spawn=lambda: child, make_watch=lambda: Watch(60.0, 0.05))
    chat, store = opened_chat(home, client)
    assert [*chat.ask(store.by_name("s").id, "say warm").run()][-1].text == "warm"
    slow = home.data_dir / "slow disk"
    slow.touch()
    assert client.leave(0.5) is None
    assert child.poll() is None
    slow.unlink()
    ended(child, home)
    store.close()


def opened_chat(home, client):
    store = ConversationStore.open(home.database, home.backups)
    store.create("s", model=ModelSection(), sampling=SamplingSection())
    return Chat(store, client), store


def test_a_new_face_names_an_engine_that_hangs(home, engine):
    """A face that finds a stopped engine does not wait for ever: it names the process and how to end it."""
    os.kill(engine.pid, signal.SIGSTOP)
    client = EngineClient(home, Config(), connect_seconds=0.1)
    with pytest.raises(EngineUnavailable, match=f"kill -9 {engine.pid}"):
        client.connect()
    os.kill(engine.pid, signal.SIGCONT)


# ---- counting silence ----


def test_silence_is_counted_in_real_waits(monkeypatch):
    """A face that was stopped itself, or a machine that slept, has not waited; a sign of life starts anew."""
    now = [0.0]
    monkeypatch.setattr("localkv.service.watch.time.monotonic", lambda: now[0])
    watch = Watch(silence_seconds=10.0, probe_seconds=2.0)
    watch.heard(worked=True)
    signs = []
    for _ in range(4):
        now[0] += 2.0
        signs.append(watch.waited(2.0))
    assert signs == [Sign.PROBE] * 4
    now[0] += 3600.0
    assert watch.waited(1.0) is Sign.WAIT, "one wait of a second, whatever the clock says"
    now[0] += 1.0
    assert watch.waited(1.0) is Sign.HUNG
    watch.heard(worked=False)
    now[0] += 2.0
    assert watch.waited(2.0) is Sign.PROBE


def test_two_who_wait_are_one_wait(monkeypatch):
    """Two conversations that wait at once do not halve the bound."""
    now = [0.0]
    monkeypatch.setattr("localkv.service.watch.time.monotonic", lambda: now[0])
    watch = Watch(silence_seconds=4.0, probe_seconds=2.0)
    watch.heard(worked=True)
    now[0] = 2.0
    assert [watch.waited(2.0), watch.waited(2.0)] == [Sign.PROBE, Sign.WAIT]


def test_loading_may_be_silent_for_longer(monkeypatch):
    """An engine that never worked yet reads libraries from a slow disk."""
    now = [0.0]
    monkeypatch.setattr("localkv.service.watch.time.monotonic", lambda: now[0])
    watch = Watch(silence_seconds=4.0, probe_seconds=2.0)
    for _ in range(9):
        now[0] += 2.0
        assert watch.waited(2.0) is not Sign.HUNG
    now[0] += 2.0
    assert watch.waited(2.0) is Sign.HUNG
