"""A face's live connection to one engine: a thread that reads, a thread that writes, one end.

Torch-free; knows frames' epoch but not what requests mean. `post` never blocks, so a key press that stops an answer is
never held up by a socket. When the connection is over, for whatever reason, `on_end` is called once, on the reader thread.
"""

import queue
import threading
from collections.abc import Callable

from localkv.errors import EngineUnavailable, ProtocolError
from localkv.service.protocol import AnyReply, AnyRequest, Failed, Hello, Welcome, decode_reply, encode
from localkv.service.wire import Channel


class Link:
    """One connection after its Welcome."""

    def __init__(
        self, channel: Channel, welcome: Welcome, on_reply: Callable[[AnyReply], None], on_end: Callable[["Link", str], None]
    ) -> None:
        self.epoch = welcome.epoch
        self.pid = welcome.pid
        self._channel = channel
        self._on_reply = on_reply
        self._on_end = on_end
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="engine-writer", daemon=True)
        self._reader = threading.Thread(target=self._read, name="engine-reader", daemon=True)

    def start(self) -> None:
        """Begin to read and write."""
        self._writer.start()
        self._reader.start()

    def post(self, request: AnyRequest) -> None:
        """Send `request` as soon as the socket takes it; any thread, never blocks. Raises ProtocolError if it is too large."""
        self._frames.put(encode(request))

    def end(self, seconds: float) -> None:
        """Hang up, and wait at most `seconds` until both threads are through."""
        self._channel.hang_up()
        if threading.current_thread() is not self._reader:
            self._reader.join(seconds)

    def _write(self) -> None:
        while (frame := self._frames.get()) is not None:
            if not self._channel.send(frame):
                return

    def _read(self) -> None:
        problem = ""
        try:
            while (frame := self._channel.receive()) is not None:
                self._on_reply(decode_reply(frame))
        except ProtocolError as error:
            problem = str(error)
        self._frames.put(None)
        self._channel.hang_up()
        self._writer.join()
        self._channel.close()
        self._on_end(self, problem)


def greet(channel: Channel, hello: Hello) -> Welcome | None:
    """The engine's Welcome; None if it ended before it gave one. Raises EngineUnavailable if it will not serve us."""
    channel.send(encode(hello))
    try:
        while (frame := channel.receive()) is not None:
            reply = decode_reply(frame)
            if isinstance(reply, Welcome):
                return reply
            if isinstance(reply, Failed):
                raise EngineUnavailable(reply.message)
    except ProtocolError as error:
        raise EngineUnavailable(f"the engine is not understood: {error}; quit every other localkv and start again") from error
    return None
