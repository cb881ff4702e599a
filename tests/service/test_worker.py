"""The engine as a process of its own."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import EngineUnavailable
from localkv.events import EventLog, read_events
from localkv.service.launch import EXIT_ALREADY_RUNNING, EXIT_REFUSED, start_engine
from localkv.service.protocol import Delta, Line, Submit
from localkv.service.worker import clear_leftovers, take_lock


def begin(face, script):
    request = Submit(
        request=face.next_request(), conversation="c", model=ModelSection(), sampling=SamplingSection(),
        lines=(Line(role="user", text=script),),
    )  # fmt: skip
    face.send(request)
    while not isinstance(face.next_reply(request.request), Delta):
        pass
    return request.request


def test_a_second_engine_gives_way(client, spawn):
    """The lock admits one engine; another one that is started by mistake ends at once with its own exit code."""
    face = client(spawn)
    face.connect()
    second = spawn()
    assert second.wait(30) == EXIT_ALREADY_RUNNING
    assert face.alive


def test_a_lock_that_nobody_answers_for_is_an_error_in_bounded_time(home):
    """A hung engine is named, with the file that it holds."""
    with FileLock(home.engine_lock), pytest.raises(EngineUnavailable, match="engine.lock"):
        take_lock(home.engine_lock, home.socket, seconds=0.1)
    lock = take_lock(home.engine_lock, home.socket)
    assert lock.is_locked
    lock.release()


@pytest.mark.parametrize(
    "name", [".digests.json.1.part", ".selftests.json.99.part", ".engine.key.7.part", "speed-0a1b2c3d.part"]
)
def test_what_a_killed_engine_was_writing_is_cleared_away(client, spawn, home, name):
    """Temporary files of any kind beside the store are gone once the next engine runs; all else in the cache stays."""
    (home.cache_dir / name).write_bytes(b"half")
    (home.cache_dir / "digests.json").write_bytes(b"{}")
    face = client(spawn)
    face.connect()
    assert not (home.cache_dir / name).exists()
    assert (home.cache_dir / "digests.json").exists()
    assert [event.kind for event in read_events(home.event_log, 10)] == ["cache.sweep", "engine.start"]


@pytest.mark.parametrize("place", ["engine_lock", "engine_key", "socket"])
def test_a_place_that_cannot_be_used_is_a_sentence(home, spawn, place):
    """What keeps an engine from starting is told with the place and what to do, without a traceback."""
    there = Path(getattr(home, place))
    there.mkdir()
    assert spawn().wait(30) == EXIT_REFUSED
    log = home.engine_log.read_text()
    assert str(there) in log
    assert re.search(r"make room|remove it", log)
    assert "Traceback" not in log
    there.rmdir()


def test_a_cache_that_cannot_be_listed_keeps_nobody_from_chatting(home, monkeypatch):
    """What an earlier engine left takes some room; that it cannot be cleared away now is told and no more."""
    events = EventLog(None)
    monkeypatch.setattr(Path, "iterdir", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    clear_leftovers(home.cache_dir, events)
    assert [event.kind for event in events.recent] == ["cache.sweep_failed"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_flushes_and_ends(client, spawn, home, number):
    """Log-out and shutdown stop the answer, save what can be saved, and do not wait for the face."""
    face = client(spawn)
    face.connect()
    request = begin(face, "say a wait")
    os.kill(face.engine_pid, number)
    assert list(face.replies(request))[-1].reason == "cancelled"
    assert spawn.children[0].wait(30) == 0
    assert (home.data_dir / "diary.txt").read_text().split()[-2:] == ["flush", "close"]
    assert [event.kind for event in read_events(home.event_log, 10)] == ["engine.start", "engine.end"]


def test_ctrl_c_does_not_reach_the_engine(client, spawn):
    """SIGINT belongs to the face, even if somebody sends it to the engine."""
    face = client(spawn)
    face.connect()
    os.kill(face.engine_pid, signal.SIGINT)
    request = begin(face, "say a")
    assert list(face.replies(request))[-1].text == "a"


def test_a_killed_face_makes_the_engine_flush_and_end(home, spawn):
    """kill -9 of the only face: the engine saves and goes, nothing is left running."""
    program = (
        "import sys, os, signal, functools; from localkv.service.client import EngineClient; from localkv.service.launch import *\n"
        "launch = read_launch(sys.argv[1])\n"
        "EngineClient(launch.home, launch.config).connect(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    from localkv.service.launch import launch_argument

    engine = spawn()
    face = subprocess.run([sys.executable, "-c", program, launch_argument(home, Config())], check=False)
    assert face.returncode == -signal.SIGKILL
    assert engine.wait(30) == 0
    assert (home.data_dir / "diary.txt").read_text().split() == ["flush", "close"]


def test_the_real_engine_lets_faces_in_before_it_imports_torch(client, home):
    """The door is open in the time Python needs to start; the model comes later."""
    face = client(lambda: start_engine(home, Config()))
    face.connect()
    with open(f"/proc/{face.engine_pid}/cmdline", "rb") as stream:
        assert b"localkv.service.worker" in stream.read()
    face.leave(30)


def test_an_engine_started_by_hand_explains_itself():
    """The module run without its argument ends with a sentence."""
    result = subprocess.run([sys.executable, "-m", "localkv.service.worker"], capture_output=True, text=True, check=False)
    assert result.returncode == EXIT_REFUSED
    assert "not by hand" in result.stderr


@pytest.mark.parametrize("module", ["client", "turns", "protocol", "worker", "server", "entry", "link", "turn_events"])
def test_importing_the_service_loads_neither_torch_nor_textual(module):
    """The face is on screen in a blink; the engine's door opens before anything heavy is imported."""
    heavy = "{'torch', 'textual', 'transformers', 'numpy'}"
    program = f"import sys, localkv.service.{module}; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
