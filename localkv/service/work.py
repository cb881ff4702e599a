"""The work thread: takes one request after the other to the runtime, and lets it do background work between them.

Imports no torch itself: the runtime comes from a factory that is called on this thread, after the door is open. Only this
thread calls the runtime, except for `snapshot` and `hint`, which any thread may. Any other exception than localkv's own is logged
with its traceback and becomes one sentence for the face; only those that leave the process unusable end the engine.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from localkv.config import ModelSection
from localkv.errors import LocalKVError
from localkv.kv.record import Head
from localkv.service.faces import Face, Faces
from localkv.service.jobs import Job, Jobs
from localkv.service.launch import EXIT_FATAL, EXIT_OK
from localkv.service.protocol import (
    AnyReply,
    AnyRequest,
    Estimate,
    Estimated,
    Examine,
    Failed,
    Flushed,
    Forget,
    Forgotten,
    Leave,
    Look,
    Phase,
    Prepare,
    Progress,
    Ready,
    Report,
    Snapshot,
    Submit,
    Typing,
    Unload,
    Unloaded,
    Warm,
)
from localkv.service.pulse import Pulse

_log = logging.getLogger(__name__)

FLUSH_SECONDS = 10.0
"""How long the last face waits for records that are not on SSD yet; what is lost then is only computed again."""
FIRST_FACE_SECONDS = 60.0
"""An engine whose face never arrives ends after this time."""

ProgressCall = Callable[[Phase, int, int, str, float], None]


class EngineRuntime(Protocol):
    """What the work thread needs of `localkv.runtime.Runtime`."""

    def prepare(self, model: ModelSection, progress: ProgressCall) -> Ready:
        """Have `model` loaded; at once if it is."""
        ...

    def turn(self, request: Submit, emit: Callable[[AnyReply], None], cancelled: threading.Event) -> None:
        """Answer `request` with Started, Progress, Delta and Done, soon if `cancelled` is set."""
        ...

    def snapshot(self, heads: Sequence[Head] = ()) -> Snapshot:
        """What the panel shows, and how far away the conversations that end in `heads` are; any thread, cheap."""
        ...

    def idle(self) -> bool:
        """Do one bounded slice of background work; whether more remains."""
        ...

    def hint(self, hint: Warm | Typing) -> None:
        """What may be wanted soon: for `idle`, or for nobody; any thread, at once."""
        ...

    def listen(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, on any thread, when `idle` has something to do again."""
        ...

    def flush(self, deadline_seconds: float) -> Flushed:
        """Bring what is worth keeping to SSD."""
        ...

    def estimate(self, report: Callable[[str], None]) -> Estimated:
        """What conversations with the loaded model cost; `report` is told what is being measured."""
        ...

    def forget(self, request: Forget) -> Forgotten:
        """Remove records from RAM and SSD."""
        ...

    def unload(self, *, idle: bool = False) -> Unloaded:
        """Let go of the model; `idle`: only if nothing is lost by that."""
        ...

    def report(self) -> dict[str, dict[str, str | int | float | bool | None]]:
        """What this engine and machine are."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


@dataclass(frozen=True, slots=True)
class Trouble:
    """An exception as the face gets to know it."""

    error: str
    message: str


class Work:
    """The loop of the work thread, and the only owner of the runtime."""

    def __init__(
        self,
        jobs: Jobs,
        faces: Faces,
        make_runtime: Callable[[], EngineRuntime],
        epoch: str,
        linger_seconds: float,
        unload_seconds: float = 0.0,
        housekeeping: Callable[[], None] | None = None,
    ) -> None:
        self._jobs = jobs
        self._faces = faces
        self._make_runtime = make_runtime
        self._epoch = epoch
        self._linger_seconds = linger_seconds
        self._unload_seconds = unload_seconds
        self._unload_at: float | None = None
        """When the model is let go of, if nobody asks it anything until then."""
        self._housekeeping = housekeeping
        self._runtime: EngineRuntime | None = None
        self._stopping = False
        self._parted = False
        """Told to end, and what was to be saved is saved: whatever is asked now comes too late."""
        self._broken = False
        """Nothing can succeed in this process any more."""
        self._end_at: float | None = time.monotonic() + FIRST_FACE_SECONDS
        self.pulse = Pulse(faces, self.snapshot)

    def run(self) -> int:
        """The thread: work until the last face has left or `stop`. Returns the exit code of the process."""
        self._attempt("starting", self._runtime_now)
        while not self._broken and (job := self._next_job()) is not None:
            self._do(job)
            self._jobs.finish()
            if self._broken:
                break
            self._attempt("looking", self.pulse.beat)
            if self._housekeeping is not None:
                self._attempt("housekeeping", self._housekeeping)
        return EXIT_FATAL if self._broken else EXIT_OK

    def stop(self) -> None:
        """Make `run` return soon, after a bounded flush, whoever is here. Any thread."""
        self._stopping = True
        self._jobs.drop(None)
        self._jobs.post(Job(None, Leave(request=0)))

    @property
    def has_runtime(self) -> bool:
        """False while everything heavy is still being imported."""
        return self._runtime is not None

    def snapshot(self, heads: Sequence[Head] = ()) -> Snapshot | None:
        """What the panel shows; None before there is a runtime. Any thread."""
        runtime = self._runtime
        return None if runtime is None else msgspec.structs.replace(runtime.snapshot(heads), request=0, epoch=self._epoch)

    def hint(self, hint: Warm | Typing) -> None:
        """What a face may want soon; nothing before there is a runtime. Any thread."""
        runtime = self._runtime
        if runtime is not None:
            runtime.hint(hint)

    def rescue(self) -> None:
        """Save what is in RAM, after a failure that ends the process: it does not need the device that has failed."""
        if self._broken and self._runtime is not None:
            runtime = self._runtime
            self._attempt("rescuing", lambda: runtime.flush(FLUSH_SECONDS))

    def close(self) -> None:
        """Give the device back."""
        if self._runtime is not None:
            self._attempt("closing", self._runtime.close)

    def _next_job(self) -> Job | None:
        """The oldest job; background work while there is none. None: it is time to end."""
        while not self._parted:
            job = self._jobs.take(0)
            if job is not None:
                return job
            if not self._time_is_up() and self._background_slice():
                continue
            if self._broken:
                return None
            job = self._jobs.take(self._seconds_to_wait())
            if job is not None:
                return job
            if self._unload_at is not None and time.monotonic() >= self._unload_at:
                self._unload_idle()
                if self._broken:
                    return None
                continue
            if self._end_at is None or time.monotonic() < self._end_at:
                continue  # a nudge: there is background work
            if self._faces.close_if_empty():
                return None
            self._end_at = None
        return None

    def _seconds_to_wait(self) -> float | None:
        times = [when for when in (self._end_at, self._unload_at) if when is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _unload_idle(self) -> None:
        """Nobody has asked anything for so long that the memory is better used by others."""
        self._unload_at = None
        if self._runtime is not None:
            runtime, answers = self._runtime, list[Unloaded]()
            self._attempt("unloading", lambda: answers.append(runtime.unload(idle=True)))
            if any(answer.problem for answer in answers):
                self._unload_at = time.monotonic() + self._unload_seconds  # the disk may be well again by then
            self._attempt("looking", self.pulse.beat)

    def _time_is_up(self) -> bool:
        """Whether nobody is here and nobody is waited for: what the flush left unsaved stays unsaved."""
        return self._end_at is not None and time.monotonic() >= self._end_at and not self._faces.count

    def _background_slice(self) -> bool:
        if self._runtime is None:
            return False
        more: list[bool] = []
        runtime = self._runtime
        self.pulse.start()
        self._attempt("background work", lambda: more.append(runtime.idle()))
        if not any(more):
            self.pulse.stop()
            self._attempt("looking", self.pulse.beat)
        return any(more)

    def _do(self, job: Job) -> None:
        match job.request:
            case Leave():
                self._let_go(job)
            case Look() if job.face is not None:
                self._look(job.face, job.request)
            case Prepare() | Submit() | Examine() | Estimate() if job.face is not None:
                self._answer(job, job.face, job.request)
            case Forget() if job.face is not None:
                forget = job.request
                self._reply(job.face, forget, "forgetting", lambda: self._runtime_now().forget(forget))
            case Unload() if job.face is not None:
                self._unload(job.face, job.request)
            case _:
                _log.error("a %s is not work", type(job.request).__name__)

    def _answer(self, job: Job, face: Face, request: Prepare | Submit | Examine | Estimate) -> None:
        self._end_at = self._unload_at = None
        self.pulse.start()
        trouble = self._attempt(type(request).__name__, lambda: self._serve(job, face, request))
        self.pulse.stop()
        self._unload_at = time.monotonic() + self._unload_seconds if self._unload_seconds else None
        if trouble is not None and not (job.cancelled.is_set() and not job.begun):
            self._refuse(face, request, trouble)

    def _serve(self, job: Job, face: Face, request: Prepare | Submit | Examine | Estimate) -> None:
        runtime = self._runtime_now()
        ready = runtime.prepare(request.model, functools.partial(self._show_loading, job))
        if not self._jobs.begin(job):
            return
        match request:
            case Prepare():
                face.send(msgspec.structs.replace(ready, request=request.request, epoch=self._epoch))
            case Submit():
                runtime.turn(request, face.send, job.cancelled)
            case Examine():
                face.send(Report(request=request.request, epoch=self._epoch, sections=runtime.report()))
            case Estimate():
                estimated = runtime.estimate(lambda what: self._show_loading(job, "loading", 0, 0, what, 0.0))
                face.send(msgspec.structs.replace(estimated, request=request.request, epoch=self._epoch))

    def _unload(self, face: Face, request: Unload) -> None:
        if self._reply(face, request, "unloading", lambda: self._runtime_now().unload()):
            self._unload_at = None

    def _reply(self, face: Face, request: AnyRequest, what: str, step: Callable[[], AnyReply]) -> bool:
        """Send `face` what `step` gives, or why it gave nothing; whether it gave something."""

        def send() -> None:
            face.send(msgspec.structs.replace(step(), request=request.request, epoch=self._epoch))

        trouble = self._attempt(what, send)
        if trouble is not None:
            self._refuse(face, request, trouble)
        return trouble is None

    def _refuse(self, face: Face, request: AnyRequest, trouble: Trouble) -> None:
        face.send(Failed(request=request.request, epoch=self._epoch, error=trouble.error, message=trouble.message))

    def _show_loading(self, job: Job, phase: Phase, done: int, total: int, detail: str, per_second: float) -> None:
        """Progress for the request that loads, and for the questions that wait for the same model."""
        for each in (job, *self._jobs.waiting()):
            if each.face is not None and (each is job or isinstance(each.request, Submit)):
                each.face.send(
                    Progress(
                        request=each.request.request, epoch=self._epoch,
                        phase=phase, done=done, total=total, detail=detail, per_second=per_second,
                    )
                )  # fmt: skip

    def _look(self, face: Face, request: Look) -> None:
        """A face looked before there was a runtime."""
        snapshot = self.snapshot(request.heads)
        if snapshot is None:
            message = "the engine has not started yet; see localkv logs"
            face.send(Failed(request=request.request, epoch=self._epoch, error="EngineError", message=message))
        else:
            face.send(msgspec.structs.replace(snapshot, request=request.request))

    def _let_go(self, job: Job) -> None:
        """The last face has left, or the process was told to end: flush, answer, and be ready to end."""
        flushed = Flushed(request=0, epoch=self._epoch, records=0, n_bytes=0, seconds=0.0)
        if self._stopping or not self._faces.count:
            flushed = self._flush(flushed)
            self._end_at = time.monotonic() + (0.0 if self._stopping else self._linger_seconds)
        if job.face is not None:
            job.face.send(msgspec.structs.replace(flushed, request=job.request.request, epoch=self._epoch))
        if self._stopping:
            self._faces.close()
            self._parted = True

    def _flush(self, nothing: Flushed) -> Flushed:
        if self._runtime is None:
            return nothing
        results: list[Flushed] = []
        runtime = self._runtime
        trouble = self._attempt("flushing", lambda: results.append(runtime.flush(FLUSH_SECONDS)))
        if trouble is not None:
            return msgspec.structs.replace(nothing, problem=trouble.message)
        return results[0]

    def _runtime_now(self) -> EngineRuntime:
        if self._runtime is None:
            self._runtime = self._make_runtime()
            self._runtime.listen(self._jobs.nudge)
        return self._runtime

    def _attempt(self, what: str, step: Callable[[], object]) -> Trouble | None:
        """Run `step`; what went wrong, if anything did."""
        try:
            step()
        except LocalKVError as error:
            _log.info("%s: %s: %s", what, type(error).__name__, error)
            return Trouble(type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 - thread root of the work thread: a bug in one request must not end the others
            _log.exception("%s failed", what)
            if leaves_process_unusable(error):
                self._faces.close()  # before anybody hears of it: who comes back at once must find the next engine
                self._broken = True
                return Trouble("EngineDied", f"{what} failed and the engine ends ({error}); the next message starts a new one")
            return Trouble("EngineError", f"{what} failed in the engine ({type(error).__name__}: {error}); see localkv logs")
        return None


def leaves_process_unusable(error: Exception) -> bool:
    """Whether no later request can succeed in this process: out of memory, or a device that has failed.

    After a CUDA fault every later call fails with the same error; torch names it AcceleratorError.
    """
    fault = "CUDA error" in str(error) and "CUBLAS_STATUS_ALLOC_FAILED" not in str(error)
    return isinstance(error, MemoryError) or type(error).__name__ == "AcceleratorError" or fault
