"""Threads that move records, and the order in which they do.

    readers   URGENT before PRELOAD; the bytes of PRELOAD jobs at work are bounded, so that an urgent one finds the disk free
    writers   SAVE before DELETE; saves can be paused while tokens are decoded, but none waits longer than a set time

Knows jobs as functions and byte counts; nothing of records, files or devices. Each job ends in exactly one call of its
`done`, on a worker thread: with its value, its error, or Cancelled. Thread: all methods may be called from any thread.
Times are monotonic seconds, which stand still while the machine sleeps.
"""

import enum
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from localkv.errors import Cancelled, LocalKVError, StoreError

PRELOAD_BYTES = 64 << 20
"""PRELOAD jobs at work together move at most so much; a larger one runs alone."""

SAVE_WAIT_SECONDS = 30.0
"""A paused save runs after so long all the same."""

T = TypeVar("T")


class Lane(enum.IntEnum):
    """What a job is for; the smaller number goes first."""

    URGENT = 0
    PRELOAD = 1
    SAVE = 2
    DELETE = 3


READ_LANES = (Lane.URGENT, Lane.PRELOAD)
WRITE_LANES = (Lane.SAVE, Lane.DELETE)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How a job ended: with a value, or with an error."""

    value: T | None
    error: LocalKVError | None
    seconds: float
    """Time at work; 0 for a job that never ran."""
    n_bytes: int


@dataclass(slots=True)
class LaneStats:
    """What went through one lane so far."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    n_bytes: int = 0
    """Of the jobs that are done."""
    seconds: float = 0.0
    """At work, of all jobs that ran."""


class _State(enum.Enum):
    WAITING = enum.auto()
    RUNNING = enum.auto()
    CANCELLED = enum.auto()
    ENDED = enum.auto()


@dataclass(slots=True, eq=False)
class _Job:
    lane: Lane
    n_bytes: int
    work: Callable[[], Any]
    done: Callable[[Outcome[Any]], None]
    submitted: float
    state: _State = _State.WAITING


class Ticket:
    """A job that was submitted."""

    def __init__(self, cancel: Callable[[], bool]) -> None:
        self._cancel = cancel

    def cancel(self) -> bool:
        """True if the job will never run: its `done` gets Cancelled, soon. False if it has begun or ended."""
        return self._cancel()


class Transfers:
    """The worker threads. With more than one writer, jobs of the write lanes may run side by side."""

    def __init__(
        self,
        readers: int,
        writers: int = 1,
        *,
        preload_bytes: int = PRELOAD_BYTES,
        save_wait_seconds: float = SAVE_WAIT_SECONDS,
    ) -> None:
        self._preload_bytes = preload_bytes
        self._save_wait_seconds = save_wait_seconds
        self._changed = threading.Condition()
        self._lanes: dict[Lane, deque[_Job]] = {lane: deque() for lane in Lane}
        self._cancelled: deque[_Job] = deque()
        self._stats = {lane: LaneStats() for lane in Lane}
        self._preloading = 0
        self._paused = False
        self._draining = 0
        self._closed = False
        self._threads = [self._start(READ_LANES, f"read-{i}") for i in range(readers)]
        self._threads += [self._start(WRITE_LANES, f"write-{i}") for i in range(writers)]

    def _start(self, lanes: tuple[Lane, ...], name: str) -> threading.Thread:
        thread = threading.Thread(target=self._work, args=(lanes,), name=f"transfer-{name}", daemon=True)
        thread.start()
        return thread

    # ---- jobs ----

    def submit(self, lane: Lane, n_bytes: int, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Ticket:
        """Have `work` run on a worker thread when `lane` allows, then `done` on the same thread. Raises StoreError if closed."""
        job = _Job(lane, n_bytes, work, done, time.monotonic())
        with self._changed:
            if self._closed:
                raise StoreError("the transfers are closed; nothing can be moved any more")
            self._lanes[lane].append(job)
            self._stats[lane].waiting += 1
            self._changed.notify_all()
        return Ticket(lambda: self._cancel(job))

    def _cancel(self, job: _Job) -> bool:
        with self._changed:
            if job.state is _State.WAITING:
                self._strike(job)
                self._changed.notify_all()
            return job.state is _State.CANCELLED

    def _strike(self, job: _Job) -> None:
        """The job leaves its lane when its turn comes; its `done` is owed at once."""
        job.state = _State.CANCELLED
        self._stats[job.lane].waiting -= 1
        self._cancelled.append(job)

    # ---- control ----

    def pause_saves(self) -> None:
        """Begin no save until `resume_saves`, except those that have waited too long."""
        with self._changed:
            self._paused = True

    def resume_saves(self) -> None:
        """Saves may begin again."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def limit_pause(self, seconds: float) -> None:
        """From now on a paused save waits for so long at most, those that wait already among them."""
        with self._changed:
            self._save_wait_seconds = seconds
            self._changed.notify_all()

    def drain(self, deadline_seconds: float) -> bool:
        """Run all saves and deletes now, paused or not; True if none is left when this returns."""
        with self._changed:
            self._draining += 1
            self._changed.notify_all()
            drained = self._changed.wait_for(self._writers_idle, deadline_seconds)
            self._draining -= 1
        return drained

    def _writers_idle(self) -> bool:
        return all(self._stats[lane].waiting + self._stats[lane].running == 0 for lane in WRITE_LANES)

    def close(self, deadline_seconds: float = 5.0) -> bool:
        """Cancel what waits, let what runs end; False if a job still ran at the deadline (its thread ends with the process)."""
        until = time.monotonic() + deadline_seconds
        with self._changed:
            self._closed = True
            for lane in self._lanes.values():
                for job in lane:
                    if job.state is _State.WAITING:
                        self._strike(job)
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def stats(self) -> dict[Lane, LaneStats]:
        """Counts, bytes and seconds per lane, as they are now."""
        with self._changed:
            return {
                lane: LaneStats(one.waiting, one.running, one.done, one.failed, one.cancelled, one.n_bytes, one.seconds)
                for lane, one in self._stats.items()
            }

    # ---- workers ----

    def _work(self, lanes: tuple[Lane, ...]) -> None:
        while (job := self._next(lanes)) is not None:
            if job.state is _State.CANCELLED:
                outcome: Outcome[Any] = Outcome(
                    None, Cancelled("the transfer was cancelled before it began"), 0.0, job.n_bytes
                )
            else:
                outcome = _run(job)
            _report(job, outcome)
            self._end(job, outcome)

    def _next(self, lanes: tuple[Lane, ...]) -> _Job | None:
        """Wait for the next job that may run; None when there is no more to come."""
        with self._changed:
            while True:
                if self._cancelled:
                    return self._cancelled.popleft()
                for lane in lanes:
                    job = self._admissible(lane)
                    if job is not None:
                        self._begin(job)
                        return job
                if self._closed:
                    return None
                self._changed.wait(self._seconds_to_next_save(lanes))

    def _admissible(self, lane: Lane) -> _Job | None:
        queue = self._lanes[lane]
        while queue and queue[0].state is not _State.WAITING:
            queue.popleft()
        if not queue:
            return None
        job = queue[0]
        if lane is Lane.PRELOAD and self._preloading and self._preloading + job.n_bytes > self._preload_bytes:
            return None
        if lane is Lane.SAVE and self._save_delay(job) > 0:
            return None
        return job

    def _save_delay(self, job: _Job) -> float:
        """Seconds that a save must still wait because of a pause."""
        if not self._paused or self._draining:
            return 0.0
        return job.submitted + self._save_wait_seconds - time.monotonic()

    def _seconds_to_next_save(self, lanes: tuple[Lane, ...]) -> float | None:
        waiting = self._lanes[Lane.SAVE]
        if Lane.SAVE not in lanes or not waiting or not self._paused:
            return None
        return max(0.0, self._save_delay(waiting[0]))

    def _begin(self, job: _Job) -> None:
        self._lanes[job.lane].popleft()
        job.state = _State.RUNNING
        self._stats[job.lane].waiting -= 1
        self._stats[job.lane].running += 1
        if job.lane is Lane.PRELOAD:
            self._preloading += max(1, job.n_bytes)

    def _end(self, job: _Job, outcome: Outcome[Any]) -> None:
        with self._changed:
            stats = self._stats[job.lane]
            stats.seconds += outcome.seconds
            if job.state is _State.CANCELLED:
                stats.cancelled += 1
            else:
                stats.running -= 1
                job.state = _State.ENDED
                self._preloading -= max(1, job.n_bytes) if job.lane is Lane.PRELOAD else 0
                stats.failed += outcome.error is not None
                if outcome.error is None:
                    stats.done += 1
                    stats.n_bytes += job.n_bytes
            self._changed.notify_all()


def _run(job: _Job) -> Outcome[Any]:
    began = time.monotonic()
    try:
        value = job.work()
        return Outcome(value, None, time.monotonic() - began, job.n_bytes)
    except LocalKVError as error:
        return Outcome(None, error, time.monotonic() - began, job.n_bytes)
    except Exception as error:  # noqa: BLE001  thread root: the worker goes on, and whoever submitted the job is told
        wrapped = StoreError(f"a transfer failed in an unforeseen way: {error!r}; its record stays where it was")
        wrapped.__cause__ = error
        return Outcome(None, wrapped, time.monotonic() - began, job.n_bytes)


def _report(job: _Job, outcome: Outcome[Any]) -> None:
    try:
        job.done(outcome)
    except Exception:  # noqa: BLE001  thread root: a bug in one callback must not stop all later transfers
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
