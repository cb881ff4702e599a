"""Hints: read from the store beside everything else, sent when hands rest, lost without harm."""

import threading

import pytest

from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import Head
from localkv.service.client import Resume
from localkv.service.hints import Draft, Hints
from localkv.service.protocol import Look, Typing, Warm


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
        store.set_ids(question.id, b"ask.")
        answer = store.begin_answer(conversation, question.id)
        store.finish_answer(answer.id, text="answer", ids=b"say.", state="complete", head=head, numbers=None)
        leaf = answer.id
    return conversation


def test_resume_times_are_asked_for_by_newest_head_and_known_by_conversation(store, listener, hints):
    """The newest record that the path to a conversation's leaf names is what coming back is predicted from."""
    near, far = Head("near", "i", 5), Head("far", "i", 9)
    a = told(store, "a", Head("old", "i", 2), near)
    b = told(store, "b", far, None)
    silent = told(store, "never answered", None)
    told(store, "not in view", Head("elsewhere", "i", 7))
    hints.look([a, b, silent])
    request = listener.wait()
    assert isinstance(request, Look)
    assert {head.name for head in request.heads} == {"near", "far"}
    listener.resumes = {"near": Resume(0.0, "slot"), "far": Resume(2.0, "ssd"), "else": Resume(1.0, "ram")}
    assert hints.resumes == {a: Resume(0.0, "slot"), b: Resume(2.0, "ssd")}


def test_without_an_engine_no_hint_is_made(store, listener, hints):
    """A hint never starts an engine, nor reads the store for nothing."""
    listener.alive = False
    hints.look([told(store, "a", Head("a", "i", 1))])
    hints.close()
    assert listener.heard == []
    assert not any(thread.name == "hints" for thread in threading.enumerate())


def test_a_store_that_fails_costs_only_the_hint(store, listener, hints, monkeypatch):
    """The next hint is given all the same."""
    from localkv.errors import ConversationError

    a = told(store, "a", Head("a", "i", 1))
    refused = threading.Event()

    def refuse(conversation):
        refused.set()
        raise ConversationError("locked")

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", refuse)
        hints.look([a])
        assert refused.wait(30)
    hints.look([a])
    assert listener.wait().heads[0].name == "a"


def test_an_opened_conversation_is_told_with_all_its_ids_and_its_newest_head(store, listener, hints):
    """The engine keeps no conversations: what it needs to find the records travels with the hint."""
    a = told(store, "a", Head("one", "i", 2), Head("two", "i", 4))
    hints.open(a)
    request = listener.wait()
    assert isinstance(request, Warm)
    (want,) = request.wants
    assert (request.why, want.conversation, want.ids, want.head.name) == ("open", a, b"ask.say.ask.say.", "two")


def test_a_conversation_without_a_record_is_not_worth_a_hint(store, listener, hints):
    """There is nothing to bring of what was never answered."""
    hints.open(told(store, "empty"))
    b = told(store, "b", Head("b", "i", 2))
    hints.open(b)
    assert listener.wait().wants[0].conversation == b


def test_what_follows_hands_waits_for_rest_and_only_the_newest_is_said(store, listener):
    """Keys that are still being struck say nothing but where they stop."""
    talks = [told(store, f"t{i}", Head(f"h{i}", "i", 2)) for i in range(3)]
    hints = Hints(store, listener, rest_seconds=0.05)
    for text in ("h", "he", "hello"):
        hints.type(Draft(talks[0], ModelSection(), "", text))
    request = listener.wait()
    hints.close()
    assert isinstance(request, Typing)
    assert (request.text, request.conversation, request.head.name, len(request.lines)) == ("hello", talks[0], "h0", 2)
    assert len(listener.heard) == 1


def test_what_is_sent_is_not_told_as_typed(store, listener):
    """Once a message goes its own way, nothing more is said of its having been written; nor after another one was opened."""
    a, b = told(store, "a", Head("a", "i", 2)), told(store, "b", Head("b", "i", 2))
    hints = Hints(store, listener, rest_seconds=0.05)
    hints.type(Draft(a, ModelSection(), "", "secret"))
    hints.drop("typing")
    hints.type(Draft(a, ModelSection(), "", "secret"))
    hints.open(b)
    assert listener.wait().why == "open"
    hints.rest(b)
    assert listener.wait().why == "rest"
    hints.close()
    assert len(listener.heard) == 2


def test_a_new_conversation_begins_with_its_system_prompt(store, listener, hints):
    """What is typed in it is read behind the system prompt that it will have."""
    hints.type(Draft("", ModelSection(), "Be brief.", "hello"))
    request = listener.wait()
    assert [(line.role, line.text) for line in request.lines] == [("system", "Be brief.")]
    assert (request.conversation, request.head) == ("", None)


def test_likely_are_those_of_the_same_model_that_were_used_last_pinned_ones_first(store, listener, hints):
    """The open one, archived and trashed ones and those of other models are not thought of."""
    talks = {
        name: told(store, name, Head(name, "i", 2))
        for name in ("old", "pinned", "archived", "trashed", "other", "open", "new")
    }
    store.set_pinned(talks["pinned"], True)
    store.set_model(talks["other"], ModelSection(name="another"))
    store.trash(talks["trashed"])
    store.set_archived(talks["archived"], True)
    hints.think(ModelSection(), talks["open"])
    request = listener.wait()
    assert (request.why, [want.head.name for want in request.wants]) == ("likely", ["pinned", "new", "old"])
