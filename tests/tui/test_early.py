"""The first frame: the same list where the chat draws it, and a terminal that is left as it was."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
import time

import pyte
import pytest

from localkv.config import ChatSection, Config
from localkv.tui.early import LIST_CELLS, Ink, first_frame, picture
from localkv.tui.glyphs import DRAWN, PLAIN
from tests.tui.conftest import play, text_of, until
from tests.tui.fakes import NOON

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

SIZE = (130, 36)


def plain(row):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", row)


def furnish(world):
    for index in range(40):
        world.talk(f"Conversation {index} 漢字 with a long title", "q", "a", age=100.0 * index)
    world.talk("short", "q", "a", age=7_200)


@pytest.mark.slow
@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN], ids=["drawn", "ascii"])
def test_the_list_is_where_the_chat_draws_it(world, glyphs):
    """When the chat takes over, nothing of the list moves: the left columns of both are the same, character for character."""
    furnish(world)
    early = [plain(row)[: LIST_CELLS + 1] for row in picture(world.store.list(), SIZE, NOON, Ink(), glyphs, panel=True)]

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")
        shown = [row[: LIST_CELLS + 1] for row in text_of(pilot.app).splitlines()]
        bar = re.compile("[▁-█]")  # the end of the scroll bar
        assert [bar.sub(" ", row) for row in shown[:-1]] == early[:-1]

    play(world.app(glyphs=glyphs), scene, size=SIZE)


class Terminal:
    """A pseudo-terminal and what is on its screen."""

    def __init__(self, width, height):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.screen = pyte.Screen(width, height)
        self.raw = b""
        # A frame may be larger than the kernel's buffer: without a reader the writer would wait for ever.
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self):
        with contextlib.suppress(OSError):
            while chunk := os.read(self.master, 1 << 16):
                self.raw += chunk

    def read(self):
        """What came since the last time, on the screen."""
        self.stream.flush()
        termios.tcdrain(self.stream.fileno())
        known = -1
        while known != len(self.raw):
            known = len(self.raw)
            time.sleep(0.05)
        pyte.ByteStream(self.screen).feed(self.raw)
        return "\n".join(self.screen.display)

    def close(self):
        self.stream.close()
        os.close(self.master)


@pytest.fixture
def terminal(request):
    made = Terminal(*getattr(request, "param", SIZE))
    yield made
    made.close()


def test_it_is_drawn_before_the_body(world, terminal):
    """The list is there when the body starts, in the alternate screen."""
    furnish(world)
    with first_frame(world.home, Config(), stream=terminal.stream) as drawn:
        assert drawn
        assert "Conversation 0" in terminal.read()
        assert b"\x1b[?1049h" in terminal.raw
    terminal.read()
    assert b"\x1b[?1049l" not in terminal.raw, "the chat has left the alternate screen itself"


def test_a_chat_that_cannot_start_leaves_the_main_screen(world, terminal):
    """If the body fails, its message must be seen: the terminal is back on its main screen with a cursor."""
    furnish(world)
    with pytest.raises(ValueError, match="no"), first_frame(world.home, Config(), stream=terminal.stream):
        raise ValueError("no")
    terminal.read()
    assert terminal.raw.endswith(b"\x1b[?25h\x1b[?1049l")


@pytest.mark.parametrize("terminal", [(99, 36), (130, 19)], indirect=True, ids=["narrow", "short"])
def test_small_terminals_get_no_picture(world, terminal):
    """Where the chat begins without its list, nothing is drawn ahead of it."""
    furnish(world)
    with first_frame(world.home, Config(), stream=terminal.stream) as drawn:
        assert not drawn
    terminal.read()
    assert terminal.raw == b""


def test_nothing_is_made_before_the_chat_is(home, terminal):
    """On the first start there is no list, and no file is made for the picture's sake."""
    with first_frame(home, Config(), stream=terminal.stream) as drawn:
        assert not drawn
    assert not home.database.exists()


def test_a_database_that_cannot_be_read_is_left_to_the_chat(home, terminal):
    """A damaged database draws nothing and raises nothing here."""
    home.database.write_bytes(b"nonsense" * 1_000)
    with first_frame(home, Config(), stream=terminal.stream) as drawn:
        assert not drawn


def test_colours_are_the_theme_s_own(world, terminal, monkeypatch):
    """With all colours the grounds are those of the theme; without, or with NO_COLOR, there are none."""
    furnish(world)
    monkeypatch.setenv("COLORTERM", "truecolor")
    with first_frame(world.home, Config(chat=ChatSection(theme="localkv-light")), stream=terminal.stream):
        terminal.read()
    assert b"\x1b[48;2;243;241;237m" in terminal.raw  # #f3f1ed
    monkeypatch.setenv("NO_COLOR", "1")
    before = len(terminal.raw)
    with first_frame(world.home, Config(), stream=terminal.stream):
        terminal.read()
    assert b"8;2;" not in terminal.raw[before:]


def test_hostile_titles_are_harmless(world, terminal):
    """A title cannot speak to the terminal."""
    conversation = world.talk("x", "q", "a")
    world.store.rename(conversation, title="a\x1b[2Jb")
    rows = picture(world.store.list(), SIZE, NOON, Ink("", "", "", "", "", "", ""), DRAWN, panel=False)
    assert not any("\x1b" in row for row in rows)
