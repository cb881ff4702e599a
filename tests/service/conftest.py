"""One home per test, engines inside the test process, engines of their own, and clients of both."""

import os
import threading
from pathlib import Path

import pytest

from localkv.config import Config
from localkv.paths import Home
from localkv.service.client import EngineClient
from localkv.service.launch import start_engine
from localkv.service.server import EngineServer
from localkv.service.wire import Door, dial, make_key

from .fakes import FakeRuntime


@pytest.fixture
def home(tmp_path):
    place = Home(tmp_path / "config", tmp_path / "data", tmp_path / "cache", tmp_path / "models")
    place.prepare()
    yield place
    Path(place.socket).unlink(missing_ok=True)


class LocalEngine:
    """The engine's server in a thread of this process, over the real socket."""

    def __init__(self, home, runtime, imported=None, **options):
        """`imported`: an event that the engine waits for as it would for torch."""
        self.home = home
        self.runtime = runtime
        self.key = make_key(home.engine_key)
        self.door = Door(home.socket)

        def make_runtime():
            if imported is not None:
                imported.wait(30)
            return runtime

        self.server = EngineServer(self.door, self.key, make_runtime, epoch=runtime.epoch, pid=os.getpid(), **options)
        self.exit_code = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        self.exit_code = self.server.run()

    def wait_end(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.exit_code

    def dial(self):
        return dial(self.home.socket, self.key, 10)


@pytest.fixture
def start(home):
    """Start an engine in this process; it is stopped after the test."""
    engines = []

    def begin(runtime=None, **options):
        engines.append(LocalEngine(home, runtime or FakeRuntime(), **options))
        return engines[-1]

    yield begin
    for engine in engines:
        engine.runtime.gate.set()
        engine.runtime.load_gate.set()
        engine.server.stop()
        engine.wait_end()


@pytest.fixture
def client(home):
    """Make clients that find an engine and never start one; they are closed after the test."""
    clients = []

    def make(spawn=None):
        def refuse():
            raise AssertionError("no engine should be started here")

        clients.append(EngineClient(home, Config(), spawn=spawn or refuse))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


@pytest.fixture
def spawn(home):
    """Start an engine process with the fake runtime; what is left of them is killed after the test."""
    children = []

    def begin(config=Config()):
        children.append(start_engine(home, config, (str(Path(__file__).with_name("fakes.py")),)))
        return children[-1]

    begin.children = children
    yield begin
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()
