"""The queue between faces and work."""

from localkv.config import ModelSection
from localkv.service.jobs import Job, Jobs
from localkv.service.protocol import Leave, Prepare


def job(face, request):
    return Job(face, Prepare(request=request, model=ModelSection()))


def test_jobs_come_out_in_the_order_of_arrival():
    """Nobody overtakes, and a queue without jobs says so."""
    jobs = Jobs()
    first, second = job("face", 1), job("face", 2)
    assert jobs.take(0) is None
    jobs.post(first)
    jobs.post(second)
    assert jobs.ahead() == 2
    assert jobs.take(None) is first
    assert jobs.waiting() == (second,)
    assert jobs.ahead() == 2
    jobs.finish()
    assert jobs.ahead() == 1


def test_cancel_finds_the_job_of_that_face_only():
    """Two faces may use the same request numbers; only the own request is stopped."""
    jobs = Jobs()
    running, theirs, mine = job("mine", 1), job("theirs", 2), job("mine", 2)
    for each in (running, theirs, mine):
        jobs.post(each)
    assert jobs.take(0) is running
    assert jobs.cancel("mine", 2) is mine
    assert mine.cancelled.is_set()
    assert not theirs.cancelled.is_set()
    assert jobs.begin(running)
    assert jobs.cancel("mine", 1) is None
    assert running.cancelled.is_set()
    assert jobs.cancel("mine", 9) is None
    assert jobs.waiting() == (theirs,)


def test_a_job_is_begun_or_cancelled_but_not_both():
    """Whoever comes first answers the request, and nobody else does."""
    jobs = Jobs()
    loading = job("face", 1)
    jobs.post(loading)
    jobs.take(0)
    assert jobs.cancel("face", 1) is loading
    assert jobs.cancel("face", 1) is None
    assert not jobs.begin(loading)


def test_dropping_a_face_stops_its_work_and_keeps_its_leaving():
    """A face that is gone wants nothing any more, but the flush at its end must still happen."""
    jobs = Jobs()
    running, queued, theirs = job("gone", 1), job("gone", 2), job("here", 1)
    leaving = Job("gone", Leave(request=3))
    for each in (running, queued, leaving, theirs):
        jobs.post(each)
    jobs.take(0)
    jobs.drop("gone")
    assert running.cancelled.is_set()
    assert queued.cancelled.is_set()
    assert not theirs.cancelled.is_set()
    assert jobs.waiting() == (leaving, theirs)
    jobs.drop(None)
    assert jobs.waiting() == (leaving,)
