"""The engine's front: lets faces in, reads what they ask, and keeps all but the work off the work thread.

Torch-free. Threads: one accepts, one per face reads (here) and one writes (faces), one works (work), one shows snapshots
(pulse). Cancel and Look are answered on the reader thread, at once, and hints are passed on there. A frame that is not
understood ends that connection and nothing else.
"""

import logging
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import msgspec

from localkv.errors import ProtocolError
from localkv.service.faces import Face, Faces
from localkv.service.jobs import Job, Jobs
from localkv.service.launch import EXIT_FATAL, EXIT_STUCK
from localkv.service.outbox import MAX_OUTBOX_BYTES
from localkv.service.protocol import (
    PROTOCOL_VERSION,
    AnyRequest,
    Cancel,
    Failed,
    Flushed,
    Hello,
    Leave,
    Look,
    Prepare,
    Progress,
    Submit,
    Typing,
    Warm,
    Welcome,
    decode_request,
)
from localkv.service.wire import Door, trust
from localkv.service.work import FLUSH_SECONDS, EngineRuntime, Work

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
STUCK_SECONDS = FLUSH_SECONDS + 15.0
"""After a signal to end, the work thread has this long before the process ends without it."""
ALONE_SECONDS = 300.0
"""When the last face has left, what the work thread has in hand may take so long: loading weights from a slow disk, at most."""
_LOOKS = 10
"""How often in that time it is looked whether somebody has come, or something has been done."""
_ACCEPT_PAUSE_SECONDS = 0.2


class EngineServer:
    """One engine: from the open door to the exit code."""

    def __init__(
        self,
        door: Door,
        key: bytes,
        make_runtime: Callable[[], EngineRuntime],
        *,
        epoch: str,
        pid: int,
        linger_seconds: float = 0.0,
        unload_seconds: float = 0.0,
        outbox_bytes: int = MAX_OUTBOX_BYTES,
        housekeeping: Callable[[], None] | None = None,
        foresee: Callable[[str], object] | None = None,
    ) -> None:
        """`foresee` is told the model of each request that comes before the runtime is there; it must return at once."""
        self._door = door
        self._foresee = foresee
        self._key = key
        self._epoch = epoch
        self._pid = pid
        self._outbox_bytes = outbox_bytes
        self._faces = Faces()
        self._jobs = Jobs()
        self._work = Work(self._jobs, self._faces, make_runtime, epoch, linger_seconds, unload_seconds, housekeeping)
        self._exit_code = EXIT_FATAL
        self._ending = threading.Event()
        self._worked = threading.Event()

    def run(self) -> int:
        """Serve until the last face has left or `stop`; returns the exit code of the process.

        A work thread that hangs (a device, a disk on the network) is left behind when nobody is here who would end it.
        """
        for name, step in (("accept", self._accept), ("work", self._work_to_the_end), ("pulse", self._work.pulse.run)):
            threading.Thread(target=step, name=f"engine-{name}", daemon=True).start()
        alone = 0
        while not self._ending.wait(ALONE_SECONDS / _LOOKS):
            alone = alone + 1 if self._jobs.ahead() and not self._faces.count else 0
            if alone > _LOOKS:
                _log.error("nobody is here, and the work thread has not come back for %.0f s", ALONE_SECONDS)
                return EXIT_STUCK
        if not self._worked.wait(STUCK_SECONDS):
            _log.error("the work thread did not end within %.0f s", STUCK_SECONDS)
            return EXIT_STUCK
        return self._exit_code

    def stop(self) -> None:
        """End after a bounded flush, whoever is here. Any thread."""
        self._work.stop()
        self._ending.set()

    def _work_to_the_end(self) -> None:
        try:
            self._exit_code = self._work.run()
        finally:
            self._ending.set()  # what is left to do is bounded: a device that has failed may hang whoever gives it back
            self._faces.close()
            self._door.close()
            self._faces.end()
            self._work.rescue()
            self._work.close()
            self._work.pulse.end()
            self._worked.set()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._door.accept()
            except OSError as error:
                _log.error("cannot accept a face: %s", error)
                time.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if connection is None:
                return
            threading.Thread(target=self._receive, args=(connection,), name="face-reader", daemon=True).start()

    def _receive(self, connection: Connection) -> None:
        """One face, from its first byte to its last."""
        channel = trust(connection, self._key, HANDSHAKE_SECONDS)
        if channel is None:
            _log.warning("somebody without the key was turned away")
            return
        face = Face(channel, self._outbox_bytes)
        try:
            if self._greet(face):
                while (frame := channel.receive()) is not None:
                    self._take(face, decode_request(frame))
        except ProtocolError as error:
            _log.warning("%s: %s; the connection is closed", type(error).__name__, error)
        finally:
            self._part(face)

    def _greet(self, face: Face) -> bool:
        frame = face.channel.receive()
        if frame is None:
            return False
        hello = decode_request(frame)
        if not isinstance(hello, Hello):
            raise ProtocolError(f"a face must begin with Hello, not with {type(hello).__name__}")
        if hello.version != PROTOCOL_VERSION:
            message = (
                f"the running engine speaks protocol {PROTOCOL_VERSION} and this localkv {hello.version}; "
                "quit every other localkv and start again"
            )
            face.send(Failed(request=hello.request, epoch=self._epoch, error="EngineUnavailable", message=message))
            return False
        if not self._faces.admit(face):
            return False
        face.send(Welcome(request=hello.request, epoch=self._epoch, version=PROTOCOL_VERSION, pid=self._pid))
        return True

    def _take(self, face: Face, request: AnyRequest) -> None:
        match request:
            case Cancel():
                self._cancel(face, request)
            case Look() if (snapshot := self._work.snapshot(request.heads)) is not None:
                face.send(msgspec.structs.replace(snapshot, request=request.request))
            case Leave():
                self._let_leave(face, request)
            case Warm() | Typing():
                self._work.hint(request)
            case Hello():
                raise ProtocolError("a face said Hello twice")
            case _:
                ahead = self._jobs.ahead()
                if ahead and isinstance(request, Submit):
                    face.send(Progress(request=request.request, epoch=self._epoch, phase="queued", done=0, total=ahead))
                if self._foresee is not None and isinstance(request, Prepare | Submit) and not self._work.has_runtime:
                    self._foresee(request.model.name)
                self._jobs.post(Job(face, request))

    def _cancel(self, face: Face, request: Cancel) -> None:
        job = self._jobs.cancel(face, request.target)
        if job is not None:
            message = "stopped before it began"
            face.send(Failed(request=job.request.request, epoch=self._epoch, error="Cancelled", message=message))

    def _let_leave(self, face: Face, request: Leave) -> None:
        self._jobs.drop(face)
        if self._faces.leave(face):
            self._jobs.post(Job(face, request))
        else:
            face.send(Flushed(request=request.request, epoch=self._epoch, records=0, n_bytes=0, seconds=0.0))

    def _part(self, face: Face) -> None:
        """The connection is over: whatever this face still wanted is not wanted any more."""
        self._jobs.drop(face)
        if self._faces.leave(face):
            self._jobs.post(Job(face, Leave(request=0)))
        face.end()
        face.channel.close()
        self._faces.forget(face)
