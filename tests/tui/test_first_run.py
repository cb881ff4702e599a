"""The first time: what this machine can do is on the screen, and no later time."""

import os
import sys

import pytest

from localkv.commands.introduction import Introduction
from localkv.config import load_config
from localkv.tui.settings import take_over
from tests.commands.engine import CountingRuntime, serving
from tests.terminal import Terminal
from tests.tui.conftest import notices, play, text_of, until

FIRST = Introduction(
    (("memory", "31.2 GiB, 16 threads"), ("card", "NVIDIA GeForce RTX 4070, 12.0 GiB")),
    (("in RAM", "6.1 GiB (auto)"), ("on SSD", "20.0 GiB (auto)"), ("SSD left free", "2 GiB"), ("card left free", "1 GiB")),
    True,
    (
        ("localkv models pull Qwen/Qwen3-8B", '12 to 16 GB, with model.quant = "8bit"'),
        ("localkv models pull Qwen/Qwen3-4B-Instruct-2507", '8 GB of GPU memory, with model.quant = "8bit"'),
        ("localkv models pull Qwen/Qwen3-1.7B", "no GPU, 3.4 GB of RAM"),
    ),
)
CHAT = [sys.executable, "-m", "localkv", "chat"]


def introduced(world):
    app = world.app()
    app.introduction = lambda: FIRST
    return app


def test_first_run(world, snap_compare):
    """Machine, budgets, that the starter is a demo, and better models with the lines that fetch them, in 80 columns."""
    app = introduced(world)

    async def act(pilot):
        await until(pilot, lambda: "Qwen3-8B" in text_of(app), "the introduction")
        await until(pilot, lambda: "ready" in text_of(app), "a ready engine")
        await until(pilot, lambda: not app.chat_screen._ticking._active.is_set(), "rest")

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


@pytest.mark.slow
def test_it_is_told_once(home):
    """With no conversation and no settings it is there; once something was said it is not."""
    with serving(home, CountingRuntime()), Terminal(CHAT, dict(os.environ)) as terminal:
        terminal.wait_for("This machine")
        terminal.wait_for("small demo")
        terminal.send("say A\r")
        terminal.wait_for("tok/s")
        terminal.send("\x11")
        assert terminal.wait_for_end() == 0
    with serving(home, CountingRuntime()), Terminal(CHAT, dict(os.environ)) as terminal:
        terminal.wait_for("ready")
        terminal.send("\x0e")
        terminal.wait_for("Write a message and press Enter")
        assert "This machine" not in terminal.text
        terminal.send("\x11")
        assert terminal.wait_for_end() == 0


@pytest.mark.slow
def test_settings_in_the_editor(home, tmp_path):
    """/config hands the terminal to $EDITOR and comes back with the keys and the theme that were written there."""
    script = tmp_path / "ed.py"
    script.write_text(
        "import sys\nprint('EDITING', flush=True)\nassert sys.stdin.isatty() and input() == 'go'\n"
        "open(sys.argv[1], 'a').write('[chat]\\ntheme = \"nord-like\"\\n[keys]\\nhelp = \"f9\"\\n')\n"
    )
    environment = {**os.environ, "VISUAL": f"{sys.executable} {script}"}
    with serving(home, CountingRuntime()), Terminal(CHAT, environment) as terminal:
        terminal.wait_for("ready")
        terminal.send("/config\r")
        terminal.wait_for("EDITING")
        terminal.send("go\r")
        terminal.wait_for("F9 help")
        terminal.send("\x11")
        assert terminal.wait_for_end() == 0
    assert load_config(home.config_file).chat.theme == "nord-like"


def test_wrong_settings_change_nothing(world):
    """The sentence is shown and the chat goes on as it was; where no editor can be opened that is said."""
    app = world.app()

    async def scene(pilot):
        app.config_file.write_text('[chat]\ntheme = "ansi"\n[keys]\nhelp = "f9"\n')
        take_over(app)
        await until(pilot, lambda: app.theme == "ansi", "the theme")
        await pilot.press("f9")
        await until(pilot, lambda: app.screen is not app.chat_screen, "help by its new key")
        await pilot.press("escape")
        app.config_file.write_text("[chat]\nthem = 1\n")
        app.chat_screen.composer.insert("/config")
        await pilot.press("enter")
        await until(pilot, lambda: "no editor can be opened here" in notices(app), "the notice")
        assert app.theme == "ansi"

    play(app, scene)
