"""The screen on a real pseudo-terminal, ended from outside: text kept, terminal sane, nothing left running."""

import contextlib
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import time

import pytest

from localkv.service.wire import peer_process

from .test_ends import SECONDS, ended, messages, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")]

LEAVES_SCREEN = b"\x1b[?1049l"
SHOWS_CURSOR = b"\x1b[?25h"


class Terminal:
    """`localkv chat` on a pseudo-terminal, and all it wrote."""

    def __init__(self, home):
        import fcntl
        import termios

        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        environment = os.environ | {"LOCALKV_HOME": str(home.data_dir.parent), "TERM": "xterm-256color"}
        command = [sys.executable, "-m", "localkv", "chat", "--session", "s"]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.written = b""

    def read(self):
        """What is there to read now."""
        while self.master >= 0 and select.select([self.master], [], [], 0)[0]:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                return
            if not chunk:
                return
            self.written += chunk

    def wait_for(self, text):
        """Until `text` was written."""

        def seen():
            self.read()
            return text in self.written

        until(seen)

    def send(self, text):
        os.write(self.master, text)

    def close_window(self):
        os.close(self.slave)
        os.close(self.master)
        self.slave = self.master = -1

    def wait(self):
        """The exit code; the terminal is read meanwhile, or nothing could be written to it."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it did not end"
            self.read()
            time.sleep(0.01)
        self.read()
        return self.process.returncode


@pytest.fixture
def terminal(home, spawn):
    engine = spawn()
    until(lambda: peer_process(home.socket))
    opened = Terminal(home)
    opened.engine = engine
    yield opened
    opened.process.kill()
    opened.process.wait()
    for fd in (opened.master, opened.slave):
        with contextlib.suppress(OSError):
            os.close(fd)


def begin_answer(terminal):
    terminal.wait_for(b"\x1b[?1049h")
    terminal.wait_for(b"starter")
    terminal.send(b"say Half wait\r")
    terminal.wait_for(b"Half")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_screen_in_order(terminal, home, number):
    """Log-out in the middle of an answer: what came is stored, the terminal is as it was, the engine saves and ends."""
    import termios

    begin_answer(terminal)
    until(lambda: _answer(home) == "Half")
    os.kill(terminal.process.pid, number)
    assert terminal.wait() == 128 + number
    assert LEAVES_SCREEN in terminal.written
    assert SHOWS_CURSOR in terminal.written.rpartition(LEAVES_SCREEN)[0][-200:] + terminal.written.rpartition(LEAVES_SCREEN)[2]
    assert termios.tcgetattr(terminal.slave)[3] == terminal.modes[3], "echo and line mode are back"
    assert messages(home)[1] == ("Half", "stopped")
    ended(terminal.engine, home)


def test_a_closed_window_ends_the_screen(terminal, home):
    """The terminal itself is gone: the process does not spin or stay, and the text is there."""
    begin_answer(terminal)
    until(lambda: _answer(home) == "Half")
    terminal.close_window()
    terminal.wait()
    text, state = messages(home)[1]
    assert (text, state) in [("Half", "stopped"), ("Half", "cut")]
    ended(terminal.engine, home)


def _answer(home):
    stored = messages_without_recovery(home)
    return stored[-1] if len(stored) > 1 else ""


def messages_without_recovery(home):
    from localkv.chat.store import ConversationStore
    from localkv.errors import UnknownConversation

    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as store:
        try:
            return [message.text for message in store.path(store.by_name("s").id)]
        except UnknownConversation:
            return []
