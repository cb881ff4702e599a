"""The queue between faces and work."""

from localkv.config import ModelSection
from localkv.service.mailbox import Job, Mailbox
from localkv.service.protocol import Leave, Prepare


def job(face, request):
    return Job(face, Prepare(request=request, model=ModelSection()))


def test_jobs_come_out_in_the_order_of_arrival():
    """Nobody overtakes, and a queue without jobs says so."""
    mailbox = Mailbox()
    first, second = job("face", 1), job("face", 2)
    assert mailbox.take(0) is None
    mailbox.post(first)
    mailbox.post(second)
    assert mailbox.ahead() == 2
    assert mailbox.take(None) is first
    assert mailbox.waiting() == (second,)
    assert mailbox.ahead() == 2
    mailbox.finish()
    assert mailbox.ahead() == 1


def test_cancel_finds_the_job_of_that_face_only():
    """Two faces may use the same request numbers; only the own request is stopped."""
    mailbox = Mailbox()
    running, theirs, mine = job("mine", 1), job("theirs", 2), job("mine", 2)
    for each in (running, theirs, mine):
        mailbox.post(each)
    assert mailbox.take(0) is running
    assert mailbox.cancel("mine", 2) is mine
    assert mine.cancelled.is_set()
    assert not theirs.cancelled.is_set()
    assert mailbox.begin(running)
    assert mailbox.cancel("mine", 1) is None
    assert running.cancelled.is_set()
    assert mailbox.cancel("mine", 9) is None
    assert mailbox.waiting() == (theirs,)


def test_a_job_is_begun_or_cancelled_but_not_both():
    """Whoever comes first answers the request, and nobody else does."""
    mailbox = Mailbox()
    loading = job("face", 1)
    mailbox.post(loading)
    mailbox.take(0)
    assert mailbox.cancel("face", 1) is loading
    assert mailbox.cancel("face", 1) is None
    assert not mailbox.begin(loading)


def test_dropping_a_face_stops_its_work_and_keeps_its_leaving():
    """A face that is gone wants nothing any more, but the flush at its end must still happen."""
    mailbox = Mailbox()
    running, queued, theirs = job("gone", 1), job("gone", 2), job("here", 1)
    leaving = Job("gone", Leave(request=3))
    for each in (running, queued, leaving, theirs):
        mailbox.post(each)
    mailbox.take(0)
    mailbox.drop("gone")
    assert running.cancelled.is_set()
    assert queued.cancelled.is_set()
    assert not theirs.cancelled.is_set()
    assert mailbox.waiting() == (leaving, theirs)
    mailbox.drop(None)
    assert mailbox.waiting() == (leaving,)
