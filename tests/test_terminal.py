"""The whole product in a terminal, on the real starter model: type, stream, switch, quit, start, continue, and a killed engine."""

import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from localkv.chat.store import ConversationStore
from localkv.paths import Home
from tests.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CHAT = [sys.executable, "-m", "localkv", "chat"]
CTRL_N, CTRL_Q, CTRL_PAGE_DOWN = "\x0e", "\x11", "\x1b[6;5~"


@pytest.fixture
def starter_home(home: Home, starter_model: Path, engine_lock: None) -> Home:
    """A home with the starter model, short greedy answers and one thread."""
    (home.models_dir / "starter").symlink_to(starter_model, target_is_directory=True)
    home.config_file.write_text("[engine]\nthreads = 1\n[sampling]\ntemperature = 0.0\nmax_tokens = 24\n")
    return home


def _chat() -> Terminal:
    return Terminal(CHAT, dict(os.environ), columns=130)


def _answered(n: int):
    """The panel counts `n` turns and nothing is running."""
    return lambda text: re.search(rf"turns\s+{n}\b", text) is not None and "generating" not in text and "prefill " not in text


def _engine_pid(home: Home) -> int:
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "localkv.service.worker" in line and str(home.cache_dir) in line:
            return process.pid
    raise AssertionError("no engine is running")


def _texts(home: Home) -> list[list[str]]:
    """All conversations' messages, as they are stored."""
    store = ConversationStore.open(home.database, home.backups)
    try:
        return [[message.text for message in store.path(one.id)] for one in store.list()]
    finally:
        store.close()


def test_a_day_in_the_terminal(starter_home: Home) -> None:
    """Two conversations, a switch, quitting, starting again and going on: texts are kept and state comes back from SSD."""
    with _chat() as terminal:
        terminal.wait_for("Write a message")
        terminal.send("Tell me about lighthouses.\r")
        terminal.wait_for(_answered(1))
        terminal.send(CTRL_N)
        terminal.wait_for("another conversation")
        terminal.send("What is a harbour?\r")
        terminal.wait_for(_answered(2))
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
    texts = _texts(starter_home)
    assert sorted(path[0] for path in texts) == ["Tell me about lighthouses.", "What is a harbour?"]
    assert all(len(path) == 2 and path[1] for path in texts)
    with _chat() as terminal:
        terminal.send("And what else?\r")  # a person does not wait for the first frame
        terminal.wait_for("What is a harbour?")
        terminal.wait_for(lambda text: _answered(1)(text) and "SSD" in text)  # a notice may lie on the panel for some seconds
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
    store = ConversationStore.open(starter_home.database, starter_home.backups)
    newest = store.path(store.list()[0].id)
    store.close()
    assert [message.role for message in newest] == ["user", "assistant", "user", "assistant"]
    numbers = newest[-1].numbers
    assert numbers is not None
    assert numbers["restored"]["ssd"] > 0
    assert numbers["exact"] is True


def test_killing_the_engine_in_front_of_the_person(starter_home: Home) -> None:
    """kill -9 of the engine in the middle of an answer: the text stays on screen, another engine comes, the answer goes on."""
    starter_home.config_file.write_text("[engine]\nthreads = 1\n[sampling]\ntemperature = 0.0\nmax_tokens = 160\n")
    with _chat() as terminal:
        terminal.wait_for("Write a message")
        terminal.send("Tell me a long story about the sea.\r")
        terminal.wait_for(lambda text: re.search(r"generating\s+\d\d", text) is not None)
        os.kill(_engine_pid(starter_home), signal.SIGKILL)
        terminal.wait_for("Tell me a long story about the sea.")
        terminal.wait_for(lambda text: "generating" not in text)
        cut = _texts(starter_home)[0][-1]
        assert cut
        terminal.send("/continue\r")
        terminal.wait_for(_answered(1))
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
    whole = _texts(starter_home)[0][-1]
    assert whole.startswith(cut)
    assert len(whole) > len(cut)


def test_resizing_and_a_small_terminal(starter_home: Home) -> None:
    """80x24 and back: the screen redraws and the composer keeps what was typed."""
    with _chat() as terminal:
        terminal.wait_for("Write a message")
        terminal.send("half a thought")
        terminal.wait_for("half a thought")
        terminal.resize(80, 24)
        terminal.wait_for("half a thought")
        terminal.resize(130, 36)
        terminal.wait_for("half a thought")
        terminal.send(CTRL_Q)
        assert terminal.wait_for_end() == 0
