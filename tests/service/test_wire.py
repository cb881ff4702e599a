"""The local socket: who may speak, and how much at once."""

import contextlib
import os
import socket
import stat
import struct
import threading
import time
from pathlib import Path

import pytest

from localkv.errors import ProtocolError
from localkv.service import wire
from localkv.service.wire import Door, dial, make_key, read_key, somebody_listens, trust

KEY = b"k" * 32


@pytest.fixture
def door(home):
    opened = Door(home.socket)
    yield opened
    opened.close()


def meet(home, door, key=KEY, seconds=10.0):
    """Both ends of one connection."""
    ends = []
    thread = threading.Thread(target=lambda: ends.append(trust(door.accept(), KEY, seconds)))
    thread.start()
    ours = dial(home.socket, key, seconds)
    thread.join()
    return ours, ends[0]


def test_frames_pass_whole_both_ways(home, door):
    """What one side sends is what the other receives, empty and large frames included."""
    face, engine = meet(home, door)
    for frame in (b"", b"x", os.urandom(1 << 20)):
        sender = threading.Thread(target=face.send, args=(frame,))
        sender.start()
        assert engine.receive() == frame
        sender.join()
    assert engine.send(b"back")
    assert face.receive() == b"back"
    face.close()
    assert engine.receive() is None
    engine.close()


def test_socket_and_folder_and_key_are_private(home, door):
    """Nobody else on the machine can open the socket, look into its folder, or read the secret."""
    make_key(home.engine_key)
    assert stat.S_IMODE(Path(home.socket).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(home.socket).parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.engine_key.stat().st_mode) == 0o600


def test_a_peer_with_another_key_gets_no_channel(home, door):
    """Knowing the socket is not enough, on either side."""
    face, engine = meet(home, door, key=b"w" * 32)
    assert face is None
    assert engine is None


def test_a_silent_stranger_is_turned_away_in_bounded_time(home, door):
    """A connection that never answers the challenge does not hold its thread for ever."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(home.socket)
        assert trust(door.accept(), KEY, 0.05) is None


def test_a_frame_over_the_cap_is_refused_unread(home, door, monkeypatch):
    """A length over the cap is a ProtocolError before any of its bytes are read."""
    face, engine = meet(home, door)
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 100)
    face.send(b"y" * 101)
    with pytest.raises(ProtocolError, match="100"):
        engine.receive()
    face.close()
    engine.close()


@pytest.mark.parametrize("header", [struct.pack("!i", -1) + struct.pack("!Q", 1 << 62), struct.pack("!i", 0x7FFFFFFF)])
def test_an_absurd_length_is_refused(home, door, header):
    """Gigabytes announced by a header are never allocated."""
    face, engine = meet(home, door)
    os.write(face._connection.fileno(), header)
    with pytest.raises(ProtocolError):
        engine.receive()
    face.close()
    engine.close()


def test_hanging_up_wakes_a_blocked_reader(home, door):
    """The engine can drop a face whose reader thread waits for its next frame."""
    face, engine = meet(home, door)
    got = []
    reader = threading.Thread(target=lambda: got.append(engine.receive()))
    reader.start()
    engine.hang_up()
    reader.join()
    assert got == [None]
    assert face.receive() is None
    assert not engine.send(b"x")
    engine.close()
    engine.hang_up()
    face.close()


def test_a_stale_socket_file_is_replaced(home):
    """The file that a killed engine left does not keep the next one from opening its door."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(home.socket)
    assert not somebody_listens(home.socket)
    door = Door(home.socket)
    assert somebody_listens(home.socket)
    door.close()
    assert not Path(home.socket).exists()


def test_a_door_at_which_nobody_is_let_in_any_more_holds_nobody(home):
    """An engine that is stopped lets nobody in; when those who knocked fill the queue, the next one is told so in bounded time."""
    with socket.socket(socket.AF_UNIX) as door, contextlib.ExitStack() as waiting:
        door.bind(home.socket)
        door.listen(0)
        for _ in range(40):
            knocking = waiting.enter_context(socket.socket(socket.AF_UNIX))
            knocking.setblocking(False)
            if knocking.connect_ex(home.socket):
                break
        began = time.monotonic()
        assert dial(home.socket, make_key(home.engine_key), 0.2) is None
        assert somebody_listens(home.socket)
        assert time.monotonic() - began < 20


def test_closing_wakes_accept_and_spares_the_successor(home):
    """A closing engine lets its accept thread go, and does not unlink the socket of an engine that took its place."""
    first = Door(home.socket)
    got = []
    waiting = threading.Thread(target=lambda: got.append(first.accept()))
    waiting.start()
    first.close()
    waiting.join()
    assert got == [None]
    first = Door(home.socket)
    second = Door(home.socket)
    first.close()
    assert somebody_listens(home.socket)
    second.close()


def test_a_key_is_kept_and_a_broken_or_open_one_is_made_anew(home):
    """Faces that read the key once stay right; a key that others could read is not trusted."""
    assert read_key(home.engine_key) is None
    key = make_key(home.engine_key)
    assert len(key) == 32
    assert make_key(home.engine_key) == read_key(home.engine_key) == key
    home.engine_key.chmod(0o644)
    assert read_key(home.engine_key) is None
    assert make_key(home.engine_key) != key
    home.engine_key.write_bytes(b"short")
    assert len(make_key(home.engine_key)) == 32
