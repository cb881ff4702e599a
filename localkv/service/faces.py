"""The faces that this engine serves, each with its own writer thread.

Torch-free. Owner: the engine's server; methods may be called from any thread. Invariant: whether the last face has left
and whether a new one comes in is decided under one lock, so an engine never ends under a face that it has let in.
"""

import logging
import threading

from localkv.errors import ProtocolError
from localkv.service.outbox import MAX_OUTBOX_BYTES, Outbox
from localkv.service.protocol import AnyReply, Failed, encode
from localkv.service.wire import Channel

_log = logging.getLogger(__name__)
_LAST_WORDS_SECONDS = 2.0
"""How long an end waits for a face to read what was written to it."""


class Face:
    """One connected face: replies go in at any thread and out at its writer thread."""

    def __init__(self, channel: Channel, outbox_bytes: int = MAX_OUTBOX_BYTES) -> None:
        self.channel = channel
        self._outbox = Outbox(outbox_bytes)
        self._writer = threading.Thread(target=self._write, name="face-writer", daemon=True)
        self._writer.start()

    def send(self, reply: AnyReply) -> None:
        """Queue `reply`; never blocks. A face that leaves too much unread is dropped."""
        if not self._outbox.put(reply):
            _log.warning("a face left too much unread and is dropped")
            self.channel.hang_up()
            self._outbox.close()

    def end(self) -> None:
        """Let what is queued go out, for a bounded time, then hang up."""
        self._outbox.close()
        self._writer.join(_LAST_WORDS_SECONDS)
        self.channel.hang_up()
        self._writer.join()

    def _write(self) -> None:
        while (reply := self._outbox.take()) is not None:
            try:
                frame = encode(reply)
            except ProtocolError as error:
                _log.error("%s", error)
                frame = encode(Failed(request=reply.request, epoch=reply.epoch, error="ProtocolError", message=str(error)))
            if not self.channel.send(frame):
                break
        self._outbox.close()


class Faces:
    """Who is here. A face counts from `admit` to `leave`; its channel may live longer, for last words."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._present: set[Face] = set()
        self._connected: set[Face] = set()
        self._closed = False

    @property
    def count(self) -> int:
        """How many faces are here."""
        return len(self._present)

    def admit(self, face: Face) -> bool:
        """Count `face` in; False if the engine is ending and lets nobody in."""
        with self._lock:
            if self._closed:
                return False
            self._present.add(face)
            self._connected.add(face)
            return True

    def leave(self, face: Face) -> bool:
        """Count `face` out; True if it was the last one. A face that left already changes nothing."""
        with self._lock:
            if face not in self._present:
                return False
            self._present.remove(face)
            return not self._present

    def forget(self, face: Face) -> None:
        """The channel of `face` is closed."""
        with self._lock:
            self._present.discard(face)
            self._connected.discard(face)

    def send_all(self, reply: AnyReply) -> None:
        """Queue `reply` for every face that is here."""
        with self._lock:
            present = tuple(self._present)
        for face in present:
            face.send(reply)

    def close_if_empty(self) -> bool:
        """Let nobody in any more, unless somebody is here."""
        with self._lock:
            self._closed = self._closed or not self._present
            return self._closed

    def close(self) -> None:
        """Let nobody in any more, whoever is here."""
        with self._lock:
            self._closed = True

    def end(self) -> None:
        """Hang up on everybody, after what was said to them has gone out."""
        with self._lock:
            connected = tuple(self._connected)
        for face in connected:
            face.end()
