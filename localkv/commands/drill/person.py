"""Somebody who chats: types lines into a real `localkv chat --plain`, reads what comes, and notes when it came.

Torch-free. Threads: two read the pipes; all else on the main one.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

import psutil

from localkv.commands.drill.world import World
from localkv.errors import EngineUnavailable

PROMPT = b"you> "
PATIENCE_SECONDS = 180.0
"""Longer than an engine may take to flush, to end and to start on a busy machine."""
_POLL_SECONDS = 0.005

ORDINARY = ("-m", "localkv")
DRILLED = ("-m", "localkv.commands.drill.face")


@dataclass(slots=True)
class Heard:
    """What came out of one pipe: (when, bytes)."""

    pieces: list[tuple[float, bytes]] = field(default_factory=list)

    def text(self, until: float = float("inf"), since: int = 0) -> bytes:
        """All that came by the time `until`, without the first `since` bytes."""
        return b"".join(piece for at, piece in self.pieces if at <= until)[since:]

    def listen(self, pipe: IO[bytes]) -> None:
        """The reading thread."""
        while piece := os.read(pipe.fileno(), 1 << 16):
            self.pieces.append((time.monotonic(), piece))


class Person:
    """One face process from its start to its end."""

    def __init__(self, world: World, arguments: Sequence[str] = ()) -> None:
        module = DRILLED if world.drilled else ORDINARY
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-P", *module, "chat", "--plain", *arguments],
            stdin=pipe, stdout=pipe, stderr=pipe, env=world.environment, start_new_session=True,
        )  # fmt: skip
        self.out, self.errors = Heard(), Heard()
        self._threads = [
            threading.Thread(target=heard.listen, args=(stream,), daemon=True)
            for heard, stream in ((self.out, self.process.stdout), (self.errors, self.process.stderr))
            if stream is not None
        ]
        for thread in self._threads:
            thread.start()
        self._began = time.monotonic()
        self.open_name = ""
        self.asked_at = 0
        """How much had been printed when the last line was typed."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def is_at_prompt(self) -> bool:
        """Whether the next line is waited for."""
        return self.out.text(since=self.asked_at).endswith(PROMPT)

    @property
    def seconds_to_prompt(self) -> float:
        """How long it took to ask for the first line."""
        return self.out.pieces[0][0] - self._began

    def type(self, line: str) -> None:
        """One line; returns at once."""
        self.asked_at = len(self.out.text())
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed: whoever waits for the prompt notices
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def answer(self, until: float = float("inf")) -> str:
        """What was printed since the last line was typed, without the next prompt."""
        return self.out.text(until, self.asked_at).removesuffix(PROMPT).decode(errors="replace")

    def wait_for_prompt(self) -> None:
        """Raises EngineUnavailable if it does not come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.is_at_prompt:
            if not self.alive or time.monotonic() > deadline:
                raise EngineUnavailable(f"the face {self.pid} did not ask for the next line{self._last_words()}")
            time.sleep(_POLL_SECONDS)

    def close_input(self) -> None:
        """Ctrl+D: the face leaves."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def wait_end(self) -> None:
        """Wait until it has ended and all that it printed is read. Raises EngineUnavailable if it does not end."""
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise EngineUnavailable(f"the face {self.pid} does not end{self._last_words()}") from error
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def kill(self) -> None:
        """SIGKILL, and wait for the end of it."""
        self.process.kill()
        self.wait_end()

    def _last_words(self) -> str:
        return f"; its last words were: {self.errors.text()[-1500:].decode(errors='replace')}"


def is_running(pid: int) -> bool:
    """Whether the process lives; one that has ended and was not asked for its exit code does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_gone(pid: int, seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether the process has ended within `seconds`."""
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
