"""`bench start`: from starting the process to the first frame with the list of 1,000 conversations, against an empty Textual app.

Both run in a pseudo-terminal; the clock stops when their text arrives there. Imports no torch.
"""

import contextlib
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import termios
import time
from typing import Any

from filelock import FileLock, Timeout

from localkv.chat.store import ConversationStore
from localkv.commands.bench import Say, bed_home
from localkv.config import ModelSection, SamplingSection
from localkv.errors import EngineUnavailable
from localkv.paths import Home

CONVERSATIONS = 1000
NEWEST = "The-newest-of-all"
ROUNDS = 5
ROWS, COLUMNS = 36, 130
PATIENCE_SECONDS = 60.0

EMPTY_APP = """
from textual.app import App
from textual.widgets import Static

class Empty(App):
    def compose(self):
        yield Static("The-newest-of-all")

Empty().run()
"""


def measure(say: Say) -> dict[str, Any]:
    """Medians; both apps are started in turns."""
    with bed_home.scratch_home() as home:
        _fill(home)
        environment = os.environ | {"LOCALKV_HOME": str(home.cache_dir.parent), "TERM": "xterm-256color"}
        chat, empty = [sys.executable, "-m", "localkv", "chat"], [sys.executable, "-c", EMPTY_APP]
        ours, theirs = [], []
        for i in range(ROUNDS + 1):
            say(f"round {i}")
            theirs.append(_seconds_to_text(empty, environment))
            ours.append(_seconds_to_text(chat, environment))
            _wait_for_engine(home)
        imports = [_import_seconds() for _ in range(ROUNDS)]
    return {
        "first_frame_s": statistics.median(ours[1:]),
        "empty_app_s": statistics.median(theirs[1:]),
        "import_s": statistics.median(imports),
    }


def _fill(home: Home) -> None:
    store = ConversationStore.open(home.database, home.backups)
    for i in range(CONVERSATIONS):
        title = NEWEST if i == CONVERSATIONS - 1 else f"Conversation {i}"
        store.create(f"c{i}", model=ModelSection(), sampling=SamplingSection(), title=title)
    store.close()


def _seconds_to_text(command: list[str], environment: dict[str, str]) -> float:
    """Seconds until `command` has drawn NEWEST on a terminal; then it is told to end."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True, close_fds=True
    )
    os.close(slave)
    try:
        _read_until(master, NEWEST.encode(), began + PATIENCE_SECONDS)
        return time.perf_counter() - began
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        os.close(master)


def _read_until(fd: int, text: bytes, deadline: float) -> None:
    seen = b""
    while text not in seen:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.perf_counter()))
        if not ready:
            raise EngineUnavailable(f"no first frame within {PATIENCE_SECONDS:.0f} s; the terminal got {seen[-500:]!r}")
        seen += os.read(fd, 1 << 16)


def _wait_for_engine(home: Home) -> None:
    """The engine that the face started ends by itself; the next round must not share the machine with it."""
    with contextlib.suppress(Timeout), FileLock(home.engine_lock, timeout=PATIENCE_SECONDS):
        return


def _import_seconds() -> float:
    """What `import localkv.cli` adds to starting Python."""
    times = []
    for code in ("pass", "import localkv.cli"):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - began)
    return times[1] - times[0]
