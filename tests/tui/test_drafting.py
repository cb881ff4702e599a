"""The message in the person's own editor: what it leaves is the message, and nothing else changes."""

import os
import stat
import sys
from pathlib import Path

import pytest

from localkv.errors import ConfigError, UnusableFile
from localkv.tui.drafting import edited
from tests.commands.engine import CountingRuntime, serving
from tests.terminal import Terminal
from tests.tui.conftest import notices, play, text_of, until

CHAT = [sys.executable, "-m", "localkv", "chat"]


@pytest.fixture
def editor(tmp_path, monkeypatch):
    """Sets $VISUAL to a script that is given here."""

    def use(body):
        script = tmp_path / "ed.py"
        script.write_text(f"import sys, os\nfile = sys.argv[1]\nopen({str(tmp_path / 'seen')!r}, 'w').write(file)\n{body}\n")
        monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    use.seen = tmp_path / "seen"
    return use


@pytest.mark.parametrize(("left", "text"), [
    ("open(file, 'a').write(' and more\\n')", "one\ntwo and more"),
    ("open(file, 'w').write('')", ""),
    ("open(file, 'wb').write(b'caf\\xe9')", "caf\ufffd"),
    ("pass", "one\ntwo"),
])  # fmt: skip
def test_what_the_editor_leaves_is_the_text(editor, left, text):
    """With the line's end that editors add taken off; what is no UTF-8 is still there; the file is gone afterwards."""
    editor(left)
    assert edited("one\ntwo") == text
    assert not Path(editor.seen.read_text()).exists()


def test_nobody_else_can_read_the_file_meanwhile(editor):
    """The message is on the disk for the person alone."""
    editor("assert open(file).read() == 'secret'\nopen(file, 'w').write(oct(os.stat(file).st_mode))")
    assert stat.S_IMODE(int(edited("secret"), 8)) == 0o600


@pytest.mark.parametrize(("body", "error"), [("sys.exit(1)", ConfigError), ("os.unlink(file)", UnusableFile)])
def test_an_editor_that_fails_is_said(editor, body, error):
    """It ended with a code, or took the file away: a sentence, and no file is left behind."""
    editor(body)
    with pytest.raises(error, match="editor"):
        edited("text")
    assert not Path(editor.seen.read_text()).exists()


def test_where_no_editor_can_be_opened_the_message_stays(world):
    """The notice says so, and what was written is still there."""

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")
        await pilot.press(*"half", "ctrl+g")
        await until(pilot, lambda: "no editor can be opened here" in notices(pilot.app), "the notice")
        assert pilot.app.chat_screen.composer.text == "half"

    play(world.app(), scene)


@pytest.mark.slow
def test_a_message_written_in_the_editor(home, tmp_path):
    """^g hands the terminal over with what is written so far, and comes back with what was written there, ready to be sent."""
    script = tmp_path / "ed.py"
    script.write_text(
        "import sys\nprint('EDITING', flush=True)\nassert sys.stdin.isatty() and input() == 'go'\n"
        "text = open(sys.argv[1]).read()\nopen(sys.argv[1], 'w').write(text + ' the rest\\nof it\\n')\n"
    )
    environment = {**os.environ, "VISUAL": f"{sys.executable} {script}"}
    with serving(home, CountingRuntime()), Terminal(CHAT, environment) as terminal:
        terminal.wait_for("ready")
        terminal.send("half")
        terminal.wait_for("> half")
        terminal.send("\x07")
        terminal.wait_for("EDITING")
        terminal.send("go\r")
        terminal.wait_for(lambda text: "> half the rest" in text and "  of it" in text)
        terminal.send("\x11")
        assert terminal.wait_for_end() == 0
