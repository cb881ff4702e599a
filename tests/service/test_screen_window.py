"""The screen in a window that changes, with an editor beside it, and with pastes of any kind, over an engine without a model."""

import os
import signal
import sys

import pytest

from tests.terminal import Terminal

from .test_ends import engine, messages  # noqa: F401  a fixture

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")]


@pytest.fixture
def window(home, engine):  # noqa: F811
    """Open `localkv chat` in a window; it is closed after the test."""
    windows = []

    def open_window(columns=80, rows=24, **more):
        environment = os.environ | {"LOCALKV_HOME": str(home.data_dir.parent)}
        command = [sys.executable, "-m", "localkv", "chat", "--session", "s"]
        windows.append(Terminal(command, environment, columns, rows, more))
        windows[-1].wait_for(lambda text: "Write a message" in text and "ready" in text)
        return windows[-1]

    yield open_window
    for each in windows:
        each.__exit__(None, None, None)


def whole(terminal, columns):
    """Whether header, keys and a line across the whole window are there."""

    def shows(text):
        return "ready" in text and "^q quit" in text and "\u2500" * columns in text

    return terminal.wait_for(shows)


def test_a_window_that_has_its_old_size_again_is_drawn_whole(window):
    """What a terminal forgot while it was small comes back, although the size that the chat sees is the one it knew."""
    terminal = window()
    whole(terminal, 80)
    for _ in range(5):
        terminal.resize(40, 10)
        terminal.resize(80, 24)
        whole(terminal, 80)


def test_the_window_counts_and_not_what_the_environment_says_of_it(window):
    """COLUMNS and LINES stay what they were when the window changes."""
    terminal = window(COLUMNS="80", LINES="24")
    terminal.resize(90, 30)
    whole(terminal, 90)


def test_an_interrupt_ends_the_screen_in_order(home, window):
    """`kill -INT`: what has come is stored, the terminal is as it was, and the exit code says why."""
    terminal = window()
    terminal.send("say one wait\r")
    terminal.wait_for(lambda text: "generating" in text and "\n one" in text)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait_for_end() == 128 + signal.SIGINT
    assert b"\x1b[?1049l" in terminal.sent_back
    assert messages(home) == [("say one wait", "complete"), ("one", "stopped")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_ctrl_c_in_the_editor_is_the_editors(tmp_path, window, number):
    """The terminal sends it to all programs that it runs: the chat goes on with what was being written."""
    script = tmp_path / "editor.py"
    script.write_text("print('EDITING', flush=True); input()")
    terminal = window(EDITOR=f"{sys.executable} {script}")
    terminal.send("/config\r")
    terminal.wait_for("EDITING")
    terminal.process.send_signal(number)
    terminal.send("\n")
    whole(terminal, 80)
    terminal.send("still here")
    terminal.wait_for("> still here")  # in the composer: a terminal that the chat has left shows what is typed as well
    terminal.send("\x11")
    assert terminal.wait_for_end() == 0


def test_a_paste_sends_nothing_and_is_sent_as_it_is(home, window):
    """Escape characters and ends of lines in a paste are text: no key is made of them."""
    pasted = "one\x1b[31mtwo\x1b\rthree\x1b[Afour"
    terminal = window()
    terminal.send(f"\x1b[200~{pasted}\x1b[201~")
    terminal.wait_for("four")
    terminal.send(" end\r")
    terminal.wait_for("Assistant")
    assert messages(home)[0][0] == pasted.replace("\r", "\n") + " end"
