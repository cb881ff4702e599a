"""Copying: which program of a machine reaches the person's clipboard, and that the notice names what was used."""

import stat
import sys

import pytest

from localkv.errors import ClipboardRefused
from localkv.tui.clipboard import Tool, find_tool, give
from tests.tui.conftest import notices, play, until

ALL = lambda name: True  # noqa: E731


@pytest.mark.parametrize(
    ("environ", "platform", "name"),
    [
        ({}, "linux", None),
        ({"DISPLAY": ":0"}, "linux", "xclip"),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, "linux", "wl-copy"),
        ({"DISPLAY": ":0", "TMUX": "/tmp/t"}, "linux", "xclip"),
        ({"TMUX": "/tmp/t"}, "linux", "tmux"),
        ({"TMUX": "/tmp/t", "SSH_TTY": "/dev/pts/1"}, "linux", "tmux"),
        ({"DISPLAY": ":10", "SSH_TTY": "/dev/pts/1"}, "linux", None),
        ({"DISPLAY": ":10", "SSH_CONNECTION": "1 2 3 4"}, "linux", None),
        ({}, "darwin", "pbcopy"),
        ({"SSH_TTY": "/dev/ttys1"}, "darwin", None),
        ({"WSL_DISTRO_NAME": "Ubuntu"}, "linux", "clip.exe"),
        ({}, "win32", "clip.exe"),
    ],
)
def test_the_clipboard_of_the_person_is_chosen(environ, platform, name):
    """A local program where there is one; over SSH only what reaches the other end."""
    tool = find_tool(environ, platform, ALL)
    assert (tool.name if tool else None) == name


def test_programs_that_are_missing_are_not_chosen():
    """The next one is taken, or the terminal."""
    environ = {"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}
    assert find_tool(environ, "linux", lambda name: name == "xclip").name == "xclip"
    assert find_tool(environ, "linux", lambda name: False) is None


def program(tmp_path, body):
    """A clipboard program that does `body`."""
    file = tmp_path / "taker"
    file.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return Tool(str(file))


def test_a_program_takes_every_character(tmp_path):
    """Emoji, newlines, and what is half of a character."""
    tool = program(tmp_path, f"open({str(tmp_path / 'taken')!r}, 'wb').write(sys.stdin.buffer.read())")
    give(tool, "a\n漢 🙂\ud800")
    assert (tmp_path / "taken").read_bytes() == "a\n漢 🙂?".encode()


@pytest.mark.parametrize("body", ["sys.exit(1)", None])
def test_a_program_that_fails_is_named(tmp_path, body):
    """Its name and what happened."""
    tool = program(tmp_path, body) if body else Tool(str(tmp_path / "none"))
    with pytest.raises(ClipboardRefused, match=tool.name):
        give(tool, "text")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.stdin.read()", "answer: 3 characters copied"),
        ("sys.exit(3)", "OSC 52"),
        (None, "answer: 3 characters sent to the terminal's clipboard (OSC 52)"),
    ],
)
def test_copying_that_silently_does_nothing_is_prevented_by_naming_the_method(world, tmp_path, body, said):
    """The notice says whether a program or the terminal took the text; when a program fails the terminal is asked."""
    world.talk("first", "hello", "Hi.")
    app = world.app(session="first")

    async def scene(pilot):
        app.chat_screen.copy_tool = program(tmp_path, body) if body else None
        await pilot.press("f6")
        await until(pilot, lambda: said in notices(app), said)
        assert (app.clipboard == "Hi.") == ("OSC 52" in said)

    play(app, scene)


def test_a_long_text_through_the_terminal_says_that_it_may_be_cut(world):
    """Terminals cut what is long without a word."""
    world.talk("first", "hello", "a" * 80_000)
    app = world.app(session="first")

    async def scene(pilot):
        await pilot.press("f6")
        await until(pilot, lambda: "many terminals take only" in notices(app), "the notice")

    play(app, scene)
