"""Hints: read from the store beside everything else, sent when hands rest, lost without harm."""

import threading

import pytest

from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import Head
from localkv.service.client import Resume
from localkv.service.hints import Hints
from localkv.service.protocol import Look


class Listener:
    """An engine that keeps what it was told."""

    def __init__(self):
        self.alive = True
        self.resumes = {}
        self.heard = []
        self.told = threading.Semaphore(0)

    def next_request(self):
        return len(self.heard) + 1

    def hint(self, request):
        self.heard.append(request)
        self.told.release()

    def wait(self):
        assert self.told.acquire(timeout=30)
        return self.heard[-1]


@pytest.fixture
def store(home):
    opened = ConversationStore.open(home.database, home.backups)
    yield opened
    opened.close()


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def hints(store, listener):
    made = Hints(store, listener, rest_seconds=0.0)
    yield made
    made.close()


def told(store, name, *heads):
    """A conversation with a question and an answer for each of `heads`; its id."""
    conversation = store.create(name, model=ModelSection(), sampling=SamplingSection()).id
    leaf = None
    for i, head in enumerate(heads):
        question = store.ask(conversation, leaf, f"question {i}")
        answer = store.begin_answer(conversation, question.id)
        store.finish_answer(answer.id, text="answer", ids=b"", state="complete", head=head, numbers=None)
        leaf = answer.id
    return conversation


def test_resume_times_are_asked_for_by_newest_head_and_known_by_conversation(store, listener, hints):
    """The newest record that the path to a conversation's leaf names is what coming back is predicted from."""
    near, far = Head("near", "i", 5), Head("far", "i", 9)
    a = told(store, "a", Head("old", "i", 2), near)
    b = told(store, "b", far, None)
    told(store, "never answered", None)
    hints.look()
    request = listener.wait()
    assert isinstance(request, Look)
    assert {head.name for head in request.heads} == {"near", "far"}
    listener.resumes = {"near": Resume(0.0, "slot"), "far": Resume(2.0, "ssd"), "else": Resume(1.0, "ram")}
    assert hints.resumes == {a: Resume(0.0, "slot"), b: Resume(2.0, "ssd")}


def test_without_an_engine_no_hint_is_made(store, listener, hints):
    """A hint never starts an engine, nor reads the store for nothing."""
    listener.alive = False
    told(store, "a", Head("a", "i", 1))
    hints.look()
    hints.close()
    assert listener.heard == []
    assert not any(thread.name == "hints" for thread in threading.enumerate())


def test_a_store_that_fails_costs_only_the_hint(store, listener, hints, monkeypatch):
    """The next hint is given all the same."""
    from localkv.errors import ConversationError

    told(store, "a", Head("a", "i", 1))
    refused = threading.Event()

    def refuse():
        refused.set()
        raise ConversationError("locked")

    with monkeypatch.context() as patch:
        patch.setattr(store, "list", refuse)
        hints.look()
        assert refused.wait(30)
    hints.look()
    assert listener.wait().heads[0].name == "a"
