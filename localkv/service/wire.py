"""The local socket: a door that the engine opens, and channels of whole frames between it and the faces.

Torch-free; knows no messages, only bytes. POSIX: a Unix socket of mode 0600 in a folder of mode 0700; Windows: a named
pipe. Both sides prove that they know the secret in `Home.engine_key` before a frame counts. A frame over the cap is never
read into memory. Only the holder of the engine lock may open the door or make the key; it replaces what a dead engine left.

Threads: one may receive and another send on the same channel; any may hang up. Nothing is ever pickled: only send_bytes
and recv_bytes are used.
"""

import contextlib
import os
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path

from localkv.errors import PathError, ProtocolError
from localkv.files import Files, replace_durably
from localkv.service.protocol import MAX_FRAME_BYTES

KEY_BYTES = 32
_BACKLOG = 16
_QUEUE_SECONDS = 1.0
"""For finding out whether a door is open: so many wait before it that this takes longer, or nobody does."""

# AssertionError: before Python 3.12 answer_challenge asserts that the other side speaks the same language.
_STRANGER = (AuthenticationError, AssertionError, EOFError, OSError, ValueError)


class Channel:
    """Whole frames to and from one peer that knew the secret."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._gone = False

    def receive(self) -> bytes | None:
        """The next frame; None when the peer is gone. Raises ProtocolError for a frame over the cap."""
        try:
            return self._connection.recv_bytes(MAX_FRAME_BYTES)
        except EOFError:
            return None
        except OSError as error:
            if "bad message length" in str(error):
                raise ProtocolError(f"a frame is over the limit of {MAX_FRAME_BYTES:,} bytes") from error
            return None

    def send(self, frame: bytes) -> bool:
        """Pass `frame` to the peer; blocks while it does not read. False when it is gone."""
        try:
            self._connection.send_bytes(frame)
        except OSError:
            return False
        return True

    def hang_up(self) -> None:
        """End the conversation; wakes whoever receives or sends on this channel, at both ends."""
        with self._lock:
            if self._gone:
                return
            self._gone = True
            if os.name == "nt":
                self._connection.close()
                return
            # Closing the descriptor would not wake a blocked read, and its number could be reused under that reader.
            with socket.socket(fileno=os.dup(self._connection.fileno())) as twin, contextlib.suppress(OSError):
                twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor back. Only when no other thread is in receive or send."""
        with self._lock:
            self._gone = True
            self._connection.close()


class Door:
    """Where faces come in. Opening it replaces a socket file that a dead engine left behind."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._closed = False
        if os.name == "nt":
            self._listener = Listener(address, "AF_PIPE")
            return
        # Bound under another name: no face sees it before its mode is right, and the old file is replaced in one step.
        hidden = Path(f"{address}.{os.getpid()}")
        hidden.unlink(missing_ok=True)
        self._listener = Listener(str(hidden), "AF_UNIX", backlog=_BACKLOG)
        hidden.chmod(0o600)
        hidden.replace(address)
        self._inode = Path(address).stat().st_ino

    def accept(self) -> Connection | None:
        """The next connection, not yet trusted (see `trust`); None once the door is closed. Raises OSError."""
        try:
            connection = self._listener.accept()
        except OSError:
            if self._closed:
                return None
            raise
        if self._closed:
            connection.close()
            return None
        return connection

    def close(self) -> None:
        """Let nobody in any more, and wake the thread in `accept`. A socket file that is not ours any more stays."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(*_STRANGER):
            Client(self._address).close()
        if os.name != "nt":
            with contextlib.suppress(FileNotFoundError):
                if Path(self._address).stat().st_ino == self._inode:
                    Path(self._address).unlink()
        # The listener unlinks the name it was bound under, which is gone since the rename.
        with contextlib.suppress(FileNotFoundError):
            self._listener.close()


def trust(connection: Connection, key: bytes, seconds: float) -> Channel | None:
    """A channel to the face behind `connection` if it proves within `seconds` that it knows `key`; else None."""
    channel = Channel(connection)
    with _bounded(channel, seconds):
        try:
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
        except _STRANGER:
            connection.close()
            return None
    return channel


def dial(address: str, key: bytes, seconds: float) -> Channel | None:
    """A channel to the engine at `address`; None if none is there that knows `key` and answers within `seconds`."""
    try:
        connection = _connect(address, seconds)
    except OSError:
        return None
    channel = Channel(connection)
    with _bounded(channel, seconds):
        try:
            answer_challenge(connection, key)
            deliver_challenge(connection, key)
        except _STRANGER:
            channel.close()
            return None
    return channel


def somebody_listens(address: str) -> bool:
    """Whether an engine has its door open at `address`, even one before which so many wait that nobody more can."""
    try:
        _connect(address, _QUEUE_SECONDS).close()
    except (TimeoutError, BlockingIOError):
        return True
    except OSError:
        return False
    return True


def _connect(address: str, seconds: float) -> Connection:
    """Stand before the door, within `seconds`. Raises OSError; TimeoutError if those who wait there are too many already.

    Without a bound, the 18th who knocks at the door of an engine that is stopped would wait for ever.
    """
    if sys.platform == "win32":
        return Client(address)
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(seconds)
        door.connect(address)
        door.setblocking(True)
        return Connection(door.detach())


def peer_process(address: str) -> int | None:
    """The process that has its door open at `address`; None where the system does not tell, or nobody has."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    try:
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(1.0)
            door.connect(address)
            pid, _, _ = struct.unpack("3i", door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
            return int(pid)
    except OSError:
        return None


def read_key(file: Path) -> bytes | None:
    """The engine's secret; None if there is none yet that only we can read. Raises PathError."""
    try:
        key = file.read_bytes()
        open_to_others = os.name != "nt" and file.stat().st_mode & 0o077
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PathError(f"cannot read {file}: {error.strerror}; remove it and start again") from error
    return None if open_to_others or len(key) != KEY_BYTES else key


def make_key(file: Path) -> bytes:
    """The engine's secret, made if there is none. Only for the holder of the engine lock. Raises PathError."""
    key = read_key(file)
    if key is None:
        key = secrets.token_bytes(KEY_BYTES)
        try:
            replace_durably(Files(), file, key)
        except OSError as error:
            raise PathError(f"cannot write {file}: {error.strerror}; make room or set LOCALKV_HOME") from error
    return key


@contextlib.contextmanager
def _bounded(channel: Channel, seconds: float) -> Iterator[None]:
    """Hang up if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, channel.hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
