"""What the faces have asked and the work thread has not finished: one queue, in order of arrival.

Torch-free. Faces' reader threads post and cancel, the work thread takes. Invariant: at most one job is running; a job that
was cancelled before it began is never begun, and whoever cancelled it answers it.
"""

import threading
from collections import deque
from dataclasses import dataclass, field

from localkv.service.faces import Face
from localkv.service.protocol import AnyRequest, Leave, Look


@dataclass(slots=True, eq=False)
class Job:
    """One request of one face. Without a face: the engine asks itself to end."""

    face: Face | None
    request: AnyRequest
    cancelled: threading.Event = field(default_factory=threading.Event)
    begun: bool = False
    """Its answer is being made: from now on the work thread replies to a cancel, before that the canceller does."""


class Jobs:
    """The queue between the faces and the work thread."""

    def __init__(self) -> None:
        self._queue: deque[Job] = deque()
        self._running: Job | None = None
        self._nudged = False
        self._changed = threading.Condition()

    def post(self, job: Job) -> None:
        """Queue `job` behind all others."""
        with self._changed:
            self._queue.append(job)
            self._changed.notify()

    def take(self, seconds: float | None) -> Job | None:
        """The oldest job, which is running from now on; waits for one, for ever if `seconds` is None. None: a nudge, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._nudged, seconds)
            self._nudged = False
            self._running = self._queue.popleft() if self._queue else None
            return self._running

    def nudge(self) -> None:
        """Let whoever waits for a job look at something else: what is done between jobs has more to do."""
        with self._changed:
            self._nudged = True
            self._changed.notify()

    def begin(self, job: Job) -> bool:
        """Make the answer of the running job, its model being loaded; False if it was cancelled and is answered already."""
        with self._changed:
            job.begun = not job.cancelled.is_set()
            return job.begun

    def finish(self) -> None:
        """The running job is done."""
        with self._changed:
            self._running = None

    def ahead(self) -> int:
        """How many jobs a new one would wait for; a look takes no time."""
        with self._changed:
            return sum(not isinstance(job.request, Look) for job in self._queue) + (self._running is not None)

    def waiting(self) -> tuple[Job, ...]:
        """The jobs that are queued, oldest first."""
        with self._changed:
            return tuple(self._queue)

    def cancel(self, face: Face, target: int) -> Job | None:
        """Tell the job `target` of `face` to stop. Returns it if it had not begun and never will: the caller answers it."""
        with self._changed:
            known = (self._running, *self._queue)
            job = next((job for job in known if job is not None and self._is(job, face, target)), None)
            if job is None or job.cancelled.is_set():
                return None
            job.cancelled.set()
            if job in self._queue:
                self._queue.remove(job)
            return None if job.begun else job

    def drop(self, face: Face | None) -> None:
        """Stop and forget what `face` has asked (None: what anyone has asked), other than to leave."""
        with self._changed:
            mine = [job for job in self._queue if face is None or job.face is face]
            for job in mine:
                if not isinstance(job.request, Leave):
                    job.cancelled.set()
                    self._queue.remove(job)
            if self._running is not None and (face is None or self._running.face is face):
                self._running.cancelled.set()

    def _is(self, job: Job, face: Face, target: int) -> bool:
        return job.face is face and job.request.request == target
