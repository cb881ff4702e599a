"""One question, one answer: what comes before it, and what comes in its place."""

import pytest

from localkv.errors import EngineError
from localkv.service.answers import answer_to
from localkv.service.protocol import Failed, Flushed, Progress, Unload, Unloaded


class Saying:
    """A client whose engine says what it is given."""

    def __init__(self, *said):
        self._said = said
        self.sent = []

    def connect(self):
        pass

    def next_request(self):
        return 7

    def send(self, request):
        self.sent.append(request)

    def replies(self, request_id, timeout=None):
        yield from self._said


QUESTION = Unload(request=7)
LOADING = Progress(request=7, epoch="e", phase="loading", done=0, total=0)
DONE = Unloaded(request=7, epoch="e", model="m")


def test_the_answer_is_given_and_progress_is_shown_before_it():
    """Whoever waits sees how far it is, and gets the one reply that was asked for."""
    client, shown = Saying(LOADING, DONE), []
    assert answer_to(client, QUESTION, Unloaded, progress=shown.append) is DONE
    assert client.sent == [QUESTION]
    assert shown == [LOADING]


def test_a_refusal_keeps_the_engines_words():
    """What the engine says of a failure reaches the person, after what was tried."""
    client = Saying(LOADING, Failed(request=7, epoch="e", error="StoreError", message="the disk is full"))
    with pytest.raises(EngineError, match="^not unloaded: the disk is full$"):
        answer_to(client, QUESTION, Unloaded, refused="not unloaded: ")


def test_an_end_without_an_answer_is_an_error():
    """A reply of another kind is never taken for the answer."""
    client = Saying(Flushed(request=7, epoch="e", records=0, n_bytes=0, seconds=0.0))
    with pytest.raises(EngineError, match="did not answer Unload"):
        answer_to(client, QUESTION, Unloaded)
