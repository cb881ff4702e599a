"""The control thread: order, answers, errors, what is told for later, the end."""

import threading

import pytest

from localkv.errors import CacheClosed
from localkv.placement.mailbox import Mailbox


@pytest.fixture
def reports():
    return []


@pytest.fixture
def box(reports):
    made = Mailbox("test", reports.append)
    yield made
    made.close()


def test_first_come_first_served(box):
    """What is told runs in order, on one thread that is not the caller's."""
    ran = []
    for i in range(100):
        box.tell(lambda i=i: ran.append((i, threading.current_thread().name)))
    assert box.ask(lambda: list(ran)) == [(i, "test") for i in range(100)]


def test_an_error_is_raised_where_the_answer_is_awaited(box, reports):
    """Who asks gets the error; it is not reported as well."""
    with pytest.raises(ZeroDivisionError):
        box.ask(lambda: 1 // 0)
    assert reports == []


def test_an_error_in_what_was_told_is_reported_and_the_thread_goes_on(box, reports):
    """One failed message does not end the control thread."""
    box.tell(lambda: {}["none"])
    assert box.ask(lambda: 5) == 5
    assert [type(error) for error in reports] == [KeyError]


def test_what_is_told_for_later_runs_later_in_order_of_time(box):
    """It waits its time while other messages run, and the sooner runs first."""
    ran, done = [], threading.Event()
    box.tell_later(0.10, lambda: (ran.append("late"), done.set()))
    box.tell_later(0.02, lambda: ran.append("soon"))
    box.tell(lambda: ran.append("now"))
    assert done.wait(30)
    assert ran == ["now", "soon", "late"]


def test_a_full_box_does_not_keep_what_is_due_waiting(box):
    """What is due runs even if there is always something else to run."""
    due, rounds = threading.Event(), []

    def again():
        rounds.append(1)
        if not due.is_set() and len(rounds) < 1_000_000:
            box.tell(again)

    box.tell_later(0.01, due.set)
    box.tell(again)
    assert due.wait(30)


def test_closing_runs_what_was_told_and_forgets_what_was_told_for_later(reports):
    """The end waits for the messages before it, and for nothing that lies in the future."""
    box, ran = Mailbox("test", reports.append), []
    box.tell_later(1000.0, lambda: ran.append("later"))
    box.tell(lambda: ran.append("told"))
    assert box.close()
    assert ran == ["told"]


def test_a_thread_that_asks_itself_is_told_so(box):
    """Waiting for oneself would be for ever."""
    with pytest.raises(AssertionError):
        box.ask(lambda: box.ask(lambda: 1))


def test_asking_a_closed_one_fails_at_once(reports):
    """Whoever looks at a cache that is closed that moment would wait for ever; what was asked before is still answered."""
    box = Mailbox("test", reports.append)
    gate, answers = threading.Event(), []
    box.tell(gate.wait)
    asker = threading.Thread(target=lambda: answers.append(box.ask(lambda: "answered")))
    asker.start()
    closer = threading.Thread(target=box.close)
    while box._queue.empty():
        pass  # until the question is in
    closer.start()
    gate.set()
    closer.join(60)
    asker.join(60)
    assert answers == ["answered"]
    with pytest.raises(CacheClosed):
        box.ask(lambda: "never")
