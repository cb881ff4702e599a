"""Transfers: the order of the lanes, and exactly one outcome for every job."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localkv.errors import BadRecord, Cancelled, StoreError
from localkv.tiers.transfer import Lane, Outcome, Transfers

LONG = 20.0
"""Seconds after which a test that waits has failed."""


class Gate:
    """A job that says when it has begun and ends when it is let."""

    def __init__(self):
        self.begun = threading.Event()
        self.open = threading.Event()

    def __call__(self):
        self.begun.set()
        assert self.open.wait(LONG)
        return "gate"


class Outcomes:
    """Collects outcomes by name, in the order in which they come."""

    def __init__(self):
        self._changed = threading.Condition()
        self.found: list[tuple[object, Outcome]] = []

    def named(self, name):
        def done(outcome):
            with self._changed:
                self.found.append((name, outcome))
                self._changed.notify_all()

        return done

    def wait(self, n):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.found) >= n, LONG), [name for name, _ in self.found]
        return self.found

    @property
    def names(self):
        return [name for name, _ in self.found]


@pytest.fixture
def outcomes():
    return Outcomes()


@pytest.fixture
def start():
    started = []

    def make(*args, **kwargs):
        started.append(Transfers(*args, **kwargs))
        return started[-1]

    yield make
    for transfers in started:
        assert transfers.close(LONG)


def busy(transfers, outcomes, lane, n_bytes=0):
    """Keep one worker of `lane` busy until the returned gate is opened."""
    gate = Gate()
    transfers.submit(lane, n_bytes, gate, outcomes.named("gate"))
    assert gate.begun.wait(LONG)
    return gate


def test_values_and_errors_come_back(start, outcomes):
    """A job's value, its own error and an unforeseen one each reach `done`, and the worker goes on after all of them."""
    transfers = start(1)

    def bad():
        raise BadRecord("a" * 40, "checksum", "a bit flipped")

    transfers.submit(Lane.URGENT, 10, lambda: 42, outcomes.named("value"))
    transfers.submit(Lane.URGENT, 20, bad, outcomes.named("bad"))
    transfers.submit(Lane.URGENT, 30, lambda: 1 // 0, outcomes.named("bug"))
    transfers.submit(Lane.URGENT, 40, lambda: None, outcomes.named("last"))
    found = dict(outcomes.wait(4))
    assert (found["value"].value, found["value"].error, found["value"].n_bytes) == (42, None, 10)
    assert found["value"].seconds >= 0
    assert isinstance(found["bad"].error, BadRecord)
    assert found["bad"].error.reason == "checksum"
    assert isinstance(found["bug"].error, StoreError)
    assert isinstance(found["bug"].error.__cause__, ZeroDivisionError)
    assert found["last"].error is None
    assert transfers.stats()[Lane.URGENT].failed == 2


@pytest.mark.parametrize(("first", "second"), [(Lane.URGENT, Lane.PRELOAD), (Lane.SAVE, Lane.DELETE)])
def test_lanes_go_in_order(start, outcomes, first, second):
    """Whatever was submitted first, the more urgent lane goes first; within a lane, first come first served."""
    transfers = start(1)
    gate = busy(transfers, outcomes, first)
    for name, lane in (("s1", second), ("f1", first), ("s2", second), ("f2", first)):
        transfers.submit(lane, 1, lambda: None, outcomes.named(name))
    gate.open.set()
    outcomes.wait(5)
    assert outcomes.names == ["gate", "f1", "f2", "s1", "s2"]


def test_readers_and_writers_do_not_wait_for_each_other(start, outcomes):
    """A save that takes its time does not hold up a read."""
    transfers = start(1)
    gate = busy(transfers, outcomes, Lane.SAVE)
    transfers.submit(Lane.URGENT, 1, lambda: None, outcomes.named("read"))
    outcomes.wait(1)
    assert outcomes.names == ["read"]
    gate.open.set()


def test_a_cancelled_job_never_runs(start, outcomes):
    """Cancelled before it began: the work is not done, `done` hears of it at once, and only once."""
    transfers = start(1)
    gate = busy(transfers, outcomes, Lane.URGENT)
    ran = []
    ticket = transfers.submit(Lane.URGENT, 1, lambda: ran.append(1), outcomes.named("cancelled"))
    while not transfers._changed._waiters:
        pass  # until the writer sleeps: it must be woken
    assert ticket.cancel()
    assert ticket.cancel()
    outcomes.wait(1)  # a writer tells it, while the only reader is still busy
    assert isinstance(outcomes.found[0][1].error, Cancelled)
    gate.open.set()
    transfers.submit(Lane.URGENT, 1, lambda: None, outcomes.named("after"))
    outcomes.wait(3)
    assert outcomes.names == ["cancelled", "gate", "after"]
    assert ran == []
    assert transfers.stats()[Lane.URGENT].cancelled == 1


def test_a_job_that_began_is_not_cancelled(start, outcomes):
    """Once at work a job ends with its value, and `cancel` says that it came too late."""
    transfers = start(1)
    gate = Gate()
    ticket = transfers.submit(Lane.URGENT, 1, gate, outcomes.named("gate"))
    assert gate.begun.wait(LONG)
    assert not ticket.cancel()
    gate.open.set()
    assert outcomes.wait(1)[0][1].value == "gate"
    assert not ticket.cancel()


def test_preloads_at_work_are_bounded(start, outcomes):
    """Preloads beyond the bound wait though readers are free, so that an urgent read finds one; an oversize one runs alone."""
    transfers = start(3, preload_bytes=100)
    first = busy(transfers, outcomes, Lane.PRELOAD, 60)
    second = Gate()
    transfers.submit(Lane.PRELOAD, 60, second, outcomes.named("second"))
    transfers.submit(Lane.URGENT, 500, lambda: None, outcomes.named("urgent"))
    outcomes.wait(1)
    assert outcomes.names == ["urgent"]
    assert not second.begun.is_set()
    first.open.set()
    assert second.begun.wait(LONG)
    oversize = Gate()
    transfers.submit(Lane.PRELOAD, 500, oversize, outcomes.named("oversize"))
    transfers.submit(Lane.URGENT, 1, lambda: None, outcomes.named("urgent"))
    outcomes.wait(3)
    assert not oversize.begun.is_set()
    second.open.set()
    assert oversize.begun.wait(LONG)
    oversize.open.set()
    outcomes.wait(5)


def test_preloads_without_bytes_leave_the_bound_as_it_is(start, outcomes):
    """A record may have none: after many of them no more bytes are at work than before."""
    transfers = start(3, preload_bytes=100)
    for i in range(50):
        transfers.submit(Lane.PRELOAD, 0, lambda: None, outcomes.named(i))
    outcomes.wait(50)
    first, second = busy(transfers, outcomes, Lane.PRELOAD, 60), Gate()
    transfers.submit(Lane.PRELOAD, 60, second, outcomes.named("second"))
    transfers.submit(Lane.URGENT, 1, lambda: None, outcomes.named("urgent"))
    outcomes.wait(51)
    assert not second.begun.is_set()
    first.open.set()
    second.open.set()
    outcomes.wait(53)


def test_paused_saves_wait_and_deletes_do_not(start, outcomes):
    """While saves are paused none begins, deletes go on; after resuming they run."""
    transfers = start(0, save_wait_seconds=1e6)
    transfers.pause_saves()
    transfers.submit(Lane.SAVE, 1, lambda: None, outcomes.named("save"))
    transfers.submit(Lane.DELETE, 1, lambda: None, outcomes.named("delete"))
    outcomes.wait(1)
    assert outcomes.names == ["delete"]
    assert transfers.stats()[Lane.SAVE].waiting == 1
    transfers.resume_saves()
    outcomes.wait(2)


def test_no_save_waits_for_ever(start, outcomes):
    """A pause that is never lifted delays a save by the maximum wait and no longer."""
    transfers = start(0, save_wait_seconds=0.05)
    transfers.pause_saves()
    begun = time.monotonic()
    transfers.submit(Lane.SAVE, 1, lambda: None, outcomes.named("save"))
    outcomes.wait(1)
    assert time.monotonic() - begun >= 0.05


def test_draining_ignores_a_pause(start, outcomes):
    """Before an end all saves and deletes run, paused or not, and their `done` has been called when it returns."""
    transfers = start(1, save_wait_seconds=1e6)
    transfers.pause_saves()
    for i in range(5):
        transfers.submit(Lane.SAVE, 1, lambda: None, outcomes.named(i))
        transfers.submit(Lane.DELETE, 1, lambda: None, outcomes.named(10 + i))
    assert transfers.drain(LONG)
    assert sorted(outcomes.names) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert transfers.drain(0.0)


def test_draining_ends_at_its_deadline(start, outcomes):
    """A save that hangs does not hold up the end: the answer is no, and the job is still there."""
    transfers = start(0)
    gate = busy(transfers, outcomes, Lane.SAVE)
    assert not transfers.drain(0.02)
    gate.open.set()
    assert transfers.drain(LONG)


def test_closing_cancels_what_waits(outcomes):
    """At the end each waiting job hears Cancelled, the running one ends, and nothing new is taken."""
    transfers = Transfers(1, save_wait_seconds=1e6)
    transfers.pause_saves()
    gate = busy(transfers, outcomes, Lane.URGENT)
    transfers.submit(Lane.PRELOAD, 1, lambda: None, outcomes.named("preload"))
    transfers.submit(Lane.SAVE, 1, lambda: None, outcomes.named("save"))
    assert not transfers.close(0.02)
    with pytest.raises(StoreError, match="closed"):
        transfers.submit(Lane.SAVE, 1, lambda: None, outcomes.named("late"))
    gate.open.set()
    assert transfers.close(LONG)
    outcomes.wait(3)
    found = dict(outcomes.found)
    assert found["gate"].value == "gate"
    assert isinstance(found["preload"].error, Cancelled)
    assert isinstance(found["save"].error, Cancelled)


def test_a_bug_in_done_does_not_stop_the_worker(start, outcomes, monkeypatch):
    """A callback that raises is told to the interpreter's thread hook, and the next job runs."""
    told = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    transfers = start(1)
    transfers.submit(Lane.URGENT, 1, lambda: 1, lambda outcome: 1 // 0)
    transfers.submit(Lane.URGENT, 1, lambda: 2, outcomes.named("next"))
    outcomes.wait(1)
    assert told == [ZeroDivisionError]
    assert transfers.stats()[Lane.URGENT].running <= 1


def test_numbers_per_lane(start, outcomes):
    """Counts, bytes and seconds add up once all is quiet."""
    transfers = start(2)
    for i in range(6):
        transfers.submit(Lane.SAVE if i % 2 else Lane.URGENT, 100, lambda: None, outcomes.named(i))
    outcomes.wait(6)
    assert transfers.close(LONG)
    stats = transfers.stats()
    for lane in (Lane.URGENT, Lane.SAVE):
        one = stats[lane]
        assert (one.done, one.n_bytes, one.waiting, one.running, one.failed, one.cancelled) == (3, 300, 0, 0, 0, 0)
        took = [outcome.seconds for i, outcome in outcomes.found if (Lane.SAVE if i % 2 else Lane.URGENT) is lane]
        assert one.seconds == pytest.approx(sum(took))
        assert one.seconds > 0


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(Lane)), st.integers(0, 200), st.sampled_from(["run", "fail", "cancel"])), max_size=40
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_job_ends_exactly_once(jobs, readers, pause):
    """Whatever is submitted, cancelled, paused and closed: each job has one outcome, and a cancelled one never ran."""
    outcomes, ran = Outcomes(), []
    transfers = Transfers(readers, preload_bytes=100, save_wait_seconds=1e6)
    if pause:
        transfers.pause_saves()

    def work(i, how):
        def act():
            ran.append(i)
            if how == "fail":
                raise StoreError("as asked")

        return act

    cancelled = set()
    for i, (lane, n_bytes, how) in enumerate(jobs):
        ticket = transfers.submit(lane, n_bytes, work(i, how), outcomes.named(i))
        if how == "cancel" and ticket.cancel():
            cancelled.add(i)
    assert transfers.drain(LONG)
    assert transfers.close(LONG)
    outcomes.wait(len(jobs))
    assert sorted(outcomes.names) == list(range(len(jobs)))
    assert cancelled.isdisjoint(ran)
    for i, outcome in outcomes.found:
        assert (i in ran) == (not isinstance(outcome.error, Cancelled))


def test_a_shorter_pause_frees_those_that_wait_already(start, outcomes):
    """A maximum wait that is set anew counts for saves that were submitted before it."""
    transfers = start(1, save_wait_seconds=1e6)
    transfers.pause_saves()
    transfers.submit(Lane.SAVE, 1, lambda: 1, outcomes.named("save"))
    transfers.submit(Lane.DELETE, 1, lambda: 1, outcomes.named("delete"))
    outcomes.wait(1)
    assert outcomes.names == ["delete"]
    transfers.limit_pause(0.0)
    outcomes.wait(2)
    assert outcomes.names == ["delete", "save"]
