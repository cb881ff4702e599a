"""The engine process: `python -m localkv.service.worker`, started by a face.

Order: take the lock of the store (one engine), make the key, open the door, and only then import anything heavy, on the
work thread. stdout and stderr are the engine's log already. SIGINT belongs to the face; SIGTERM and SIGHUP flush and end.
"""

import contextlib
import faulthandler
import functools
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from filelock import FileLock, Timeout

from localkv.config import Config
from localkv.errors import EngineUnavailable, LocalKVError, PathError
from localkv.events import EventLog
from localkv.files import TEMP_SUFFIX, Files
from localkv.models.readahead import begin_read_ahead
from localkv.paths import Home
from localkv.service.launch import EXIT_ALREADY_RUNNING, EXIT_OK, EXIT_REFUSED, read_launch
from localkv.service.log import turn_over
from localkv.service.server import EngineServer
from localkv.service.wire import Door, make_key, somebody_listens
from localkv.service.work import EngineRuntime
from localkv.tiers.publish import unlink_all

_log = logging.getLogger(__name__)

LOCK_SECONDS = 30.0
"""How long a new engine waits for one that is ending: longer than its flush may take."""
_LOCK_POLL_SECONDS = 0.05

RuntimeFactory = Callable[[Home, Config, EventLog, str], EngineRuntime]


def main(argv: Sequence[str] | None = None, runtime_factory: RuntimeFactory | None = None) -> int:
    """Be the engine until the last face has left; returns the exit code (see launch)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)  # whatever a library writes is private, too
    faulthandler.enable()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(threadName)s %(levelname)s %(message)s")
    arguments = sys.argv[1:] if argv is None else argv
    try:
        launch = read_launch(arguments[0] if arguments else "")
        home = launch.home
        home.prepare()
        lock = take_lock(home.engine_lock, home.socket)
        if lock is None:
            _log.info("another engine is running; this one is not needed")
            return EXIT_ALREADY_RUNNING
        try:
            return _serve(home, launch.config, runtime_factory or _torch_runtime)
        finally:
            lock.release()
    except LocalKVError as error:
        _log.error("the engine cannot start: %s", error)
        return EXIT_REFUSED


def leave(exit_code: int) -> NoReturn:
    """End the process. After a failure at once: a device that has failed can hang the orderly end of its libraries."""
    logging.shutdown()
    if exit_code == EXIT_OK:
        sys.exit(exit_code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def take_lock(file: Path, address: str, seconds: float = LOCK_SECONDS) -> FileLock | None:
    """The lock that admits one engine, waiting for an engine that is ending; None if one is running and answers.

    Raises EngineUnavailable if an engine holds it for longer than `seconds` and lets nobody in, PathError.
    """
    lock = FileLock(file, timeout=0, mode=0o600)
    deadline = time.monotonic() + seconds
    while True:
        try:
            lock.acquire()
            return lock
        except Timeout as error:
            if somebody_listens(address):
                return None
            if time.monotonic() > deadline:
                message = f"an engine has held {file} for {seconds:.0f} s and lets nobody in; end that process, then try again"
                raise EngineUnavailable(message) from error
            time.sleep(_LOCK_POLL_SECONDS)
        except OSError as error:
            raise PathError(f"cannot lock {file}: {error.strerror}; make room there, or set LOCALKV_HOME") from error


def clear_leftovers(directory: Path, events: EventLog) -> None:
    """Remove the temporary files of engines that were killed. The caller is the only one who writes into `directory`.

    Their names hold the process that wrote them, so no later engine would write over them.
    """
    try:
        left = sorted(path for path in directory.iterdir() if path.name.endswith(TEMP_SUFFIX))
    except OSError as error:  # they take some room and nothing else
        events.emit("cache.sweep_failed", directory=str(directory), error=error.strerror)
        return
    unlink_all(Files(), events, left)
    if left:
        events.emit("cache.sweep", directory=str(directory), files=len(left))


def _serve(home: Home, config: Config, factory: RuntimeFactory) -> int:
    epoch = uuid.uuid4().hex
    events = EventLog(home.event_log)
    clear_leftovers(home.cache_dir, events)
    with contextlib.closing(_open_door(home.socket)) as door:
        server = EngineServer(
            door,
            make_key(home.engine_key),
            functools.partial(factory, home, config, events, epoch),
            epoch=epoch,
            pid=os.getpid(),
            linger_seconds=config.engine.linger_seconds,
            unload_seconds=config.engine.unload_after_minutes * 60,
            housekeeping=functools.partial(turn_over, home.engine_log),
            foresee=functools.partial(begin_read_ahead, home.models_dir),
        )
        _stop_on_signals(server)
        events.emit("engine.start", epoch=epoch, pid=os.getpid())
        exit_code = server.run()
        events.emit("engine.end", epoch=epoch, exit_code=exit_code)
    return exit_code


def _open_door(address: str) -> Door:
    try:
        return Door(address)
    except OSError as error:
        raise PathError(
            f"the engine's socket {address} cannot be made: {error.strerror}; make room there, or set TMPDIR to another folder"
        ) from error


def _stop_on_signals(server: EngineServer) -> None:
    """SIGTERM and SIGHUP end the engine. A thread waits for them: a handler could interrupt a thread that holds a lock."""
    if os.name == "nt":
        signal.signal(signal.SIGTERM, lambda _number, _frame: server.stop())
        return
    endings = {signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)

    def wait() -> None:
        number = signal.sigwait(endings)
        _log.info("told to end by %s", signal.Signals(number).name)
        server.stop()

    threading.Thread(target=wait, name="engine-signals", daemon=True).start()


def _torch_runtime(home: Home, config: Config, events: EventLog, epoch: str) -> EngineRuntime:
    from localkv.runtime import Runtime  # here, on the work thread: faces are let in before torch is imported

    return Runtime(home, config, events, epoch)


if __name__ == "__main__":
    leave(main())
