"""Snapshots on their way to the panels."""

import threading

from localkv.service.pulse import Pulse

from .fakes import snapshot


class Crowd:
    """Faces that keep what they are sent and let the test wait for it."""

    def __init__(self, count=1):
        self.count = count
        self.sent = []
        self.arrived = threading.Semaphore(0)

    def send_all(self, reply):
        self.sent.append(reply.turns)
        self.arrived.release()


def test_equal_snapshots_are_sent_once():
    """A panel that shows the truth already is not bothered."""
    crowd = Crowd()
    turns = [1]
    pulse = Pulse(crowd, lambda: snapshot(turns=turns[0]))
    assert [pulse.beat(), pulse.beat()] == [True, False]
    turns[0] = 2
    pulse.beat()
    assert crowd.sent == [1, 2]


def test_nobody_is_looked_at_for_nobody():
    """Without faces, and before there is a runtime, nothing is sent."""
    assert not Pulse(Crowd(count=0), lambda: 1 / 0).beat()
    assert not Pulse(Crowd(), lambda: None).beat()


def test_it_beats_until_things_come_to_rest_and_again_when_they_move():
    """What is saved after an answer still shows; then no timer runs until the next request."""
    crowd = Crowd()
    looks = []

    def look():
        looks.append(None)
        return snapshot(turns=min(len(looks), 5))

    pulse = Pulse(crowd, look, interval=0.0)
    thread = threading.Thread(target=pulse.run)
    thread.start()
    pulse.start()
    pulse.stop()
    for _ in range(5):
        crowd.arrived.acquire()
    while pulse._moving.is_set():
        pass
    assert crowd.sent == [1, 2, 3, 4, 5]
    looks.clear()
    pulse.start()
    crowd.arrived.acquire()
    pulse.end()
    thread.join()
