"""Manners of the screen in a real terminal: it rests, it goes to the background and comes back, it leaves the mouse alone."""

import os
import signal
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

from tests.commands.engine import CountingRuntime, serving
from tests.terminal import Terminal
from tests.tui.conftest import play, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CHAT = [sys.executable, "-m", "localkv", "chat"]
REST_SECONDS = 10.0
SWITCHES = 20


@pytest.fixture
def engine(home):
    """An engine without a model, that a chat in a terminal finds."""
    with serving(home, CountingRuntime()) as runtime:
        yield runtime


def switches(pid: int) -> int:
    """How often the threads of a process went to sleep by themselves."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        total += next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("voluntary_"))
    return total


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["panel = false", "panel = false\nmouse = false"])
def test_a_core_kept_busy_by_timers_is_prevented_nothing_wakes_while_nothing_moves(home, engine, settings):
    """With the panel hidden and nothing generating, the face sleeps: fewer than 20 voluntary switches in 10 seconds."""
    home.config_file.write_text(f"[chat]\n{settings}\n")
    with Terminal(CHAT, dict(os.environ)) as terminal:
        terminal.wait_for("ready")
        terminal.send("say Half\r")
        terminal.wait_for("tok/s")
        pid = terminal.process.pid
        calm = 0
        while calm < 3:  # until what settles after an answer has settled
            before = switches(pid)
            time.sleep(1.0)
            terminal._read(0.0)
            calm = calm + 1 if switches(pid) - before < 4 else 0
        before = switches(pid)
        time.sleep(REST_SECONDS)
        assert switches(pid) - before < SWITCHES


@pytest.mark.slow
def test_suspending_gives_the_terminal_back_and_returning_finds_the_chat(home, engine):
    """ctrl+z: line mode, echo and the main screen are back and the process stands still; SIGCONT: the chat is drawn again."""
    with Terminal(CHAT, dict(os.environ)) as terminal:
        cooked = termios.tcgetattr(terminal._master)
        terminal.wait_for("Write a message")
        terminal.send("half a thought")
        terminal.wait_for("half a thought")
        face = psutil.Process(terminal.process.pid)
        terminal.send("\x1a")
        deadline = time.monotonic() + 60
        while face.status() != psutil.STATUS_STOPPED or b"\x1b[?1049l" not in terminal.sent_back:
            assert time.monotonic() < deadline, "it goes on"
            terminal._read(0.05)
        assert termios.tcgetattr(terminal._master)[3] == cooked[3]
        terminal.screen.reset()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for("half a thought")
        assert not termios.tcgetattr(terminal._master)[3] & termios.ICANON
        terminal.send("\x11")
        assert terminal.wait_for_end() == 0
        assert termios.tcgetattr(terminal._master)[3] == cooked[3]


@pytest.mark.slow
def test_alt_enter_that_sends_is_prevented(home, engine):
    """Terminals that know no better send Esc and Enter for it: that is a new line."""
    with Terminal(CHAT, dict(os.environ)) as terminal:
        terminal.wait_for("Write a message")
        terminal.send("one")
        terminal.wait_for("> one")
        terminal.send("\x1b\r")
        terminal.wait_for(lambda text: "> one" in text and "one two" not in text)
        terminal.send("two")
        terminal.wait_for("  two")
        assert engine.requests == []
        terminal.send("\x11")
        assert terminal.wait_for_end() == 0


@pytest.mark.slow
def test_a_face_that_spins_without_its_terminal_is_prevented(home, engine):
    """The terminal vanishes and no signal says so: the face ends in order by itself."""
    terminal = Terminal(CHAT, dict(os.environ))
    try:
        terminal.wait_for("ready")
        os.close(terminal._master)
        assert terminal.process.wait(60) == 128 + signal.SIGHUP
    finally:
        terminal.process.kill()
        terminal.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "asked"), [("true", True), ("false", False)])
def test_the_mouse_is_the_terminals_if_the_person_wants_that(home, engine, setting, asked):
    """mouse = false: the terminal is never told to report the mouse, so that it selects text itself."""
    home.config_file.write_text(f"[chat]\nmouse = {setting}\n")
    with Terminal(CHAT, dict(os.environ)) as terminal:
        terminal.wait_for("Write a message")
        assert (b"\x1b[?1000h" in terminal.sent_back) == asked
        assert b"\x1b[?2004h" in terminal.sent_back, "pastes come in brackets"
        terminal.send("\x11")
        assert terminal.wait_for_end() == 0


@pytest.mark.slow
@pytest.mark.parametrize(("bell", "elsewhere", "rings"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_the_bell_rings_for_answers_that_nobody_watches(world, monkeypatch, bell, elsewhere, rings):
    """Off by default; on, an answer in the background rings once, and one on screen does not."""
    app = world.app(bell=bell)
    rung = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))

    async def scene(pilot):
        await pilot.press("a", "enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        if elsewhere:
            await pilot.press("ctrl+n")
        world.chat.turns[0].write("x")
        world.chat.turns[0].end()
        await until(pilot, lambda: not app.chat_screen.stage.runs.moving, "the end of the answer")
        assert len(rung) == rings

    play(app, scene)


def test_the_bell_rings_while_another_window_has_the_focus(world, monkeypatch):
    """An answer on screen that nobody looks at counts as one in the background."""
    app = world.app(bell=True)
    rung = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))

    async def scene(pilot):
        await pilot.press("a", "enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        app.app_focus = False
        world.chat.turns[0].end()
        await until(pilot, lambda: rung, "the bell")

    play(app, scene)
