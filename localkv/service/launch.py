"""How an engine process is started: its command line, its session, its log.

Torch-free; both sides use it: the face to start the process, the process to learn what it was started with. The engine
has its own process session, so that Ctrl+C and Ctrl+Z in the terminal reach the face alone.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec

import localkv
from localkv.config import Config, EngineSection, MemorySection
from localkv.errors import EngineUnavailable
from localkv.paths import Home
from localkv.service.log import open_log

EXIT_OK = 0
EXIT_REFUSED = 1
"""The engine could not start; the log says why."""
EXIT_ALREADY_RUNNING = 75
"""Another engine holds the lock and answers: nothing to do for this one."""
EXIT_FATAL = 70
"""The engine ended itself after an error that it cannot go on from."""
EXIT_STUCK = 71
"""The engine was told to end and did not within its bound."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine needs to know at its start. Nothing of it is secret: other users can read command lines."""

    config_dir: str
    data_dir: str
    cache_dir: str
    models_dir: str
    engine: EngineSection
    memory: MemorySection

    @property
    def home(self) -> Home:
        """Where the face that started this engine keeps its things."""
        return Home(Path(self.config_dir), Path(self.data_dir), Path(self.cache_dir), Path(self.models_dir))

    @property
    def config(self) -> Config:
        """The engine's part of the settings; model and sampling come with each request."""
        return Config(engine=self.engine, memory=self.memory)


def launch_argument(home: Home, config: Config) -> str:
    """What the engine gets as its only argument."""
    launch = Launch(
        config_dir=str(home.config_dir),
        data_dir=str(home.data_dir),
        cache_dir=str(home.cache_dir),
        models_dir=str(home.models_dir),
        engine=config.engine,
        memory=config.memory,
    )
    return json.dumps(msgspec.to_builtins(launch))  # names of folders may be any bytes, which msgspec takes for a mistake


def read_launch(argument: str) -> Launch:
    """What `launch_argument` wrote. Raises EngineUnavailable for anything else."""
    try:
        return msgspec.convert(json.loads(argument), type=Launch)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise EngineUnavailable(f"localkv.service.worker is started by localkv, not by hand: {error}") from error


def start_engine(
    home: Home, config: Config, module: tuple[str, ...] = ("-m", "localkv.service.worker")
) -> "subprocess.Popen[bytes]":
    """A new engine process. It may find that another one runs already. Raises EngineUnavailable."""
    # -P: the folder one happens to be in must not provide modules.
    command = [sys.executable, "-P", *module, launch_argument(home, config)]
    try:
        log = open_log(home.engine_log)
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
                creationflags=_windows_flags(),
            )
        finally:
            os.close(log)
    except OSError as error:
        raise EngineUnavailable(f"cannot start the engine ({' '.join(command[:4])}): {error}") from error


def _environment() -> dict[str, str]:
    """The environment of this process, in which the engine finds this very package also if it is not installed."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    root = Path(localkv.__file__).parent.parent
    if root.name not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(root))))
    return environment


def _windows_flags() -> int:
    return getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
