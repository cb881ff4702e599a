"""What still has to go to one face: a bounded queue that merges what may be merged.

Torch-free; knows no sockets. `put` never blocks, so a face that does not read never holds up decoding. Invariants: the
Deltas of one request that wait with nothing of that request between them are one Delta; of Progress and Snapshot only the
newest waits; nothing else is ever dropped or overtaken by a later reply to the same request.
"""

import threading
from dataclasses import dataclass, field

from localkv.service.protocol import AnyReply, Delta, Done, Progress, Snapshot, Started

MAX_OUTBOX_BYTES = 64 << 20
"""A face that leaves more than this unread is dropped."""
_FRAME_BYTES = 256
"""What a reply without text and ids weighs, roughly."""


@dataclass(slots=True)
class _Waiting:
    reply: AnyReply
    weight: int
    more: list[Delta] = field(default_factory=list)
    """Deltas that came after `reply` and go out with it."""

    def whole(self) -> AnyReply:
        if not self.more:
            return self.reply
        parts = [part for part in (self.reply, *self.more) if isinstance(part, Delta)]
        return Delta(
            request=self.reply.request,
            epoch=self.reply.epoch,
            text="".join(part.text for part in parts),
            ids=b"".join(part.ids for part in parts),
        )


class Outbox:
    """Replies to one face, from any thread to the thread that writes to its socket."""

    def __init__(self, limit_bytes: int = MAX_OUTBOX_BYTES) -> None:
        self._limit = limit_bytes
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, reply: AnyReply) -> bool:
        """Queue `reply`; False if the face has left too much unread. A closed outbox swallows it."""
        with self._changed:
            if self._closed:
                return True
            self._merge(reply)
            self._changed.notify()
            return self._bytes <= self._limit

    def take(self) -> AnyReply | None:
        """The next reply, waiting for one; None once the outbox is closed and empty."""
        with self._changed:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            first = self._waiting.pop(0)
            self._bytes -= first.weight
            return first.whole()

    def close(self) -> None:
        """Take nothing more in; what waits still goes out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _merge(self, reply: AnyReply) -> None:
        weight = _weigh(reply)
        self._bytes += weight
        if isinstance(reply, Delta):
            last = next((item for item in reversed(self._waiting) if item.reply.request == reply.request), None)
            if last is not None and isinstance(last.reply, Delta):
                last.more.append(reply)
                last.weight += weight
                return
        elif isinstance(reply, Progress | Snapshot):
            self._drop_older(type(reply), reply.request)
        self._waiting.append(_Waiting(reply, weight))

    def _drop_older(self, kind: type[AnyReply], request: int) -> None:
        for place, item in enumerate(self._waiting):
            if type(item.reply) is kind and item.reply.request == request:
                self._bytes -= item.weight
                del self._waiting[place]
                return


def _weigh(reply: AnyReply) -> int:
    if isinstance(reply, Delta | Done):
        return _FRAME_BYTES + len(reply.text) + len(reply.ids)
    if isinstance(reply, Started):
        return _FRAME_BYTES + sum(map(len, reply.line_ids))
    return _FRAME_BYTES
