"""One turn as every face does it: stored, asked, streamed, stored, whatever dies or refuses in between."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest

from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError, NotWritable, UnknownConversation
from localkv.kv.record import pack_ids
from localkv.service.launch import EXIT_FATAL
from localkv.service.protocol import Delta, Numbers, Progress, Started
from localkv.service.turn_events import Asked, EngineRestarted, Finished, Saved, Unsaved
from localkv.service.turns import Chat

from .fakes import FakeRuntime


@pytest.fixture
def store(home):
    opened = ConversationStore.open(home.database, home.backups)
    yield opened
    opened.close()


@pytest.fixture
def talk(store):
    return store.create("talk", model=ModelSection(name="m"), sampling=SamplingSection(seed=5)).id


class RefusingStore:
    """The real store, whose writes fail while `refuses` is set."""

    def __init__(self, store):
        self.store = store
        self.refuses = False
        self.tried = []

    def __getattr__(self, name):
        method = getattr(self.store, name)
        if name not in {"ask", "begin_answer", "checkpoint_answer", "finish_answer", "set_ids", "reopen_answer"}:
            return method

        def write(*args, **kwargs):
            self.tried.append(name)
            if self.refuses is True or name == self.refuses:
                raise NotWritable("the disk is full")
            return method(*args, **kwargs)

        return write


def run(turn):
    return list(turn.run())


def kinds(events):
    """The course of a turn, without what may or may not be seen of it."""
    return [type(event).__name__ for event in events if not isinstance(event, Progress | Delta)]


def texts(store, talk):
    return [(message.role, message.text, message.state) for message in store.path(talk)]


@pytest.fixture
def local(start, client, store):
    """A chat with an engine in this process."""
    engine = start()
    face = client()
    chat = Chat(store, face)
    chat.runtime = engine.runtime
    chat.engine = engine
    return chat


def test_a_turn_is_stored_before_it_is_asked_and_after_it_is_answered(local, store, talk):
    """Question, answer, ids, head and numbers are in the database when Finished is seen."""
    turn = local.ask(talk, "say a say b")
    assert store.path(talk) == [], "nothing happens before the turn runs"
    events = turn.run()
    asked = next(events)
    assert isinstance(asked, Asked)
    assert texts(store, talk) == [("user", "say a say b", "complete"), ("assistant", "", "streaming")]
    rest = list(events)
    assert kinds(rest) == ["Started", "Finished"]
    assert "".join(event.text for event in rest if isinstance(event, Delta)) == "ab"
    question, answer = store.path(talk)
    assert (question.id, answer.id) == (asked.question_id, asked.answer_id)
    assert question.ids == pack_ids([7, 11])
    assert (answer.text, answer.ids, answer.state) == ("ab", pack_ids([1, 1]), "complete")
    assert answer.head.name == "head of ab"
    assert msgspec.convert(answer.numbers, Numbers) == rest[-1].numbers
    assert local.unsaved == ()


def test_thoughts_are_counted_as_they_come(local, store, talk):
    """The stored numbers say how many tokens the model thought before it answered, also of an answer that went on."""
    list(local.ask(talk, "say <think> say plan say </think> say yes").run())
    answer = store.path(talk)[-1]
    assert answer.text == "<think>plan</think>yes"
    assert answer.numbers["thought_tokens"] == 3
    assert answer.numbers["thought_seconds"] >= 0.0
    list(local.continue_answer(talk).run())
    assert store.path(talk)[-1].text == "<think>plan</think>yesmore"
    assert store.path(talk)[-1].numbers["thought_tokens"] == 3
    list(local.ask(talk, "say no").run())
    assert store.path(talk)[-1].numbers["thought_tokens"] == 0


def test_the_whole_path_goes_to_the_engine(local, store, talk, monkeypatch):
    """Later questions carry all lines with their ids, the settings of the conversation, and the newest head."""
    run(local.ask(talk, "say a"))
    seen = []
    played = local.runtime.turn
    monkeypatch.setattr(local.runtime, "turn", lambda request, *rest: (seen.append(request), played(request, *rest)))
    run(local.ask(talk, "say b"))
    (request,) = seen
    assert [(line.role, line.text, bool(line.ids)) for line in request.lines] == [
        ("user", "say a", True), ("assistant", "a", True), ("user", "say b", False),
    ]  # fmt: skip
    assert request.head.name == "head of a"
    assert (request.model.name, request.sampling.seed, request.conversation) == ("m", 5, talk)


def test_a_pinned_conversation_asks_to_stay_resident(local, store, talk, monkeypatch):
    """Pinning in the list is what tells the engine that its records are the last to go; unpinning takes it back."""
    seen = []
    played = local.runtime.turn
    monkeypatch.setattr(local.runtime, "turn", lambda request, *rest: (seen.append(request.resident), played(request, *rest)))
    for pinned in (True, False):
        store.set_pinned(talk, pinned)
        run(local.ask(talk, "say a"))
    assert seen == [True, False]


def test_ids_that_the_engine_renders_differently_are_stored(local, store, talk, monkeypatch):
    """A template that writes old turns anew changes the stored ids of exactly those lines."""
    run(local.ask(talk, "say a"))
    played = local.runtime.turn

    def rewrite(request, emit, cancelled):
        def change(reply):
            if isinstance(reply, Started):
                reply = msgspec.structs.replace(reply, line_ids=(pack_ids([1, 2, 3]), *reply.line_ids[1:]), diverged_at=0)
            emit(reply)

        played(request, change, cancelled)

    monkeypatch.setattr(local.runtime, "turn", rewrite)
    run(local.ask(talk, "say b"))
    ids = [message.ids for message in store.path(talk)]
    assert ids == [pack_ids([1, 2, 3]), pack_ids([1]), pack_ids([7, 5]), pack_ids([1])]


def test_cancelling_keeps_what_has_arrived(local, store, talk):
    """Esc: the partial answer stays, marked as stopped, with the head it got; the next turn goes on after it."""
    turn = local.ask(talk, "say a wait say b")
    events = []
    for event in turn.run():
        events.append(event)
        if isinstance(event, Delta):
            turn.cancel()
    assert (events[-1].state, events[-1].reason, events[-1].text) == ("stopped", "cancelled", "a")
    answer = store.path(talk)[-1]
    assert (answer.text, answer.state, answer.head.name) == ("a", "stopped", "head of a")
    assert run(local.ask(talk, "say b"))[-1].state == "complete"


def test_cancelling_before_it_is_sent_asks_nothing(local, store, talk):
    """Esc may come while the engine is still starting."""
    turn = local.ask(talk, "say a")
    turn.cancel()
    assert run(turn)[-1].state == "stopped"
    assert local.runtime.turns == 0
    assert texts(store, talk) == [("user", "say a", "complete"), ("assistant", "", "stopped")]


def test_cancelling_a_queued_question_stops_it(local, store, talk, start):
    """A question that waits for another one's answer is stopped without having begun."""
    other = store.create("other", model=ModelSection(), sampling=SamplingSection()).id
    blocking = local.ask(other, "say a hold").run()
    while not isinstance(next(blocking), Delta):
        pass
    turn = local.ask(talk, "say b")
    for event in turn.run():
        if isinstance(event, Progress) and event.phase == "queued":
            turn.cancel()
    assert event.state == "stopped"
    local.runtime.gate.set()
    assert list(blocking)[-1].text == "a"


def test_giving_up_does_not_wait_for_the_engine(local, store, talk):
    """A hung engine costs neither the prompt nor the text that had arrived."""
    turn = local.ask(talk, "say a hold")
    for event in turn.run():
        if isinstance(event, Delta):
            turn.give_up()
    assert (event.state, event.text) == ("stopped", "a")
    local.runtime.gate.set()
    assert store.path(talk)[-1].state == "stopped"


def test_abandoning_a_turn_keeps_what_has_arrived_and_stops_the_engine(local, store, talk):
    """A face that breaks out of the loop, by Ctrl+C or an error, loses no text and leaves no engine decoding."""
    events = local.ask(talk, "say a wait").run()
    while not isinstance(next(events), Delta):
        pass
    events.close()
    assert texts(store, talk)[-1] == ("assistant", "a", "stopped")
    assert run(local.ask(talk, "say b"))[-1].text == "b"


def test_an_error_of_the_engine_ends_the_turn_and_is_named(local, store, talk):
    """The question stays, the answer is marked as failed with what had arrived."""
    finished = run(local.ask(talk, "full"))[-1]
    assert (finished.state, finished.error) == ("failed", "ContextFull")
    finished = run(local.ask(talk, "say a crash"))[-1]
    assert (finished.state, finished.error, finished.text) == ("failed", "EngineError", "a")
    assert texts(store, talk)[-1] == ("assistant", "a", "failed")


def test_regenerate_adds_a_sibling_with_another_seed(local, store, talk, monkeypatch):
    """The old answer stays; the new one is drawn anew and is what the person looks at."""
    run(local.ask(talk, "say a"))
    seen = []
    played = local.runtime.turn
    monkeypatch.setattr(local.runtime, "turn", lambda request, *rest: (seen.append(request), played(request, *rest)))
    run(local.regenerate(talk))
    run(local.regenerate(talk))
    assert [request.sampling.seed for request in seen] == [6, 7]
    assert [line.role for line in seen[0].lines] == ["user"]
    question = store.path(talk)[0]
    assert len(store.children(question.id, talk)) == 3
    assert store.path(talk)[-1].id == store.children(question.id, talk)[-1].id


def test_a_question_without_an_answer_can_be_answered(local, store, talk):
    """After a crash between question and answer there is only a question."""
    store.ask(talk, None, "say a")
    run(local.regenerate(talk))
    assert texts(store, talk) == [("user", "say a", "complete"), ("assistant", "a", "complete")]


def test_edit_asks_on_a_branch_of_its_own(local, store, talk):
    """The old question and its answer stay where they were."""
    run(local.ask(talk, "say a"))
    question = store.path(talk)[0]
    run(local.edit(talk, question.id, "say b"))
    assert texts(store, talk) == [("user", "say b", "complete"), ("assistant", "b", "complete")]
    assert [message.text for message in store.children(None, talk)] == ["say a", "say b"]


def test_a_fork_begins_with_the_same_ids_and_record(local, store, talk, monkeypatch):
    """The engine gets the shared part byte for byte, with the same newest record, and is told to keep that record."""
    list(local.ask(talk, "say a").run())
    sent = []
    real = local.runtime.turn
    monkeypatch.setattr(local.runtime, "turn", lambda request, *rest: (sent.append(request), real(request, *rest))[1])
    list(local.ask(talk, "say b").run())
    shared = store.path(talk)[1]
    fork = store.fork(shared.id, "fork")
    list(local.ask(fork.id, "say b").run())
    assert sent[1].lines[:2] == sent[0].lines[:2]
    assert all(line.ids for line in sent[1].lines[:2])
    assert sent[1].head == sent[0].head == shared.head
    assert (sent[0].keep_head, sent[1].keep_head) == (False, True)
    store.look_at(shared.id)
    list(local.edit(talk, store.path(talk)[2].id, "say c").run())
    assert sent[2].keep_head
    list(local.ask(fork.id, "say d").run())
    assert not sent[3].keep_head, "what only the fork has is its own to replace"


def test_what_cannot_be_done_is_an_error_before_anything_is_written(local, store, talk):
    """Nothing to answer, nothing to continue, no such conversation."""
    for make in (local.regenerate, local.continue_answer):
        with pytest.raises(ConversationError, match="talk"):
            make(talk)
    with pytest.raises(UnknownConversation):
        local.ask("nowhere", "say a")


def test_the_partial_answer_is_stored_at_least_once_a_second(start, client, store, talk, monkeypatch):
    """Also when no token comes after the second is over; and not more often than that."""
    engine = start()
    watched = RefusingStore(store)
    face = client()
    now = [0.0]
    wait = face.next_reply

    def next_reply(request, timeout=None):
        if "checkpoint_answer" in watched.tried:
            engine.runtime.gate.set()
        reply = wait(request, None if timeout is None else 0.0)
        now[0] += timeout if reply is None else 0.0  # a test's second passes at once
        return reply

    monkeypatch.setattr(face, "next_reply", next_reply)
    events = run(Chat(watched, face, clock=lambda: now[0]).ask(talk, "say a say b hold say c"))
    assert 1 <= watched.tried.count("checkpoint_answer") <= now[0]
    assert events[-1].text == "abc"


def test_continuing_opens_the_old_answer_again(local, store, talk, monkeypatch):
    """The same message grows, keeps its head until it gets a new one, and is "streaming" meanwhile."""
    turn = local.ask(talk, "say a wait")
    for event in turn.run():
        if isinstance(event, Delta):
            turn.cancel()
    seen = []
    played = local.runtime.turn
    monkeypatch.setattr(local.runtime, "turn", lambda request, *rest: (seen.append(request), played(request, *rest)))
    events = local.continue_answer(talk).run()
    assert isinstance(next(events), Asked)
    assert texts(store, talk)[-1] == ("assistant", "a", "streaming")
    assert list(events)[-1].text == "amore"
    assert [(line.role, line.text) for line in seen[0].lines] == [("user", "say a wait"), ("assistant", "a")]
    assert (seen[0].lines[1].ids, seen[0].head.name) == (pack_ids([1]), "head of a")
    assert texts(store, talk)[-1] == ("assistant", "amore", "complete")
    assert store.path(talk)[-1].head.name == "head of amore"


def test_a_continued_answer_is_opened_again_once(start, client, store, talk):
    """Checkpoints of a continued answer are checkpoints, not new beginnings."""
    engine = start()
    watched = RefusingStore(store)
    now = [0.0]
    chat = Chat(watched, client(), clock=lambda: now[0])
    run(chat.ask(talk, "say a"))
    for event in chat.continue_answer(talk).run():
        now[0] += 10.0
    assert event.text == "amore"
    assert watched.tried.count("reopen_answer") == 1
    assert "checkpoint_answer" in watched.tried
    assert engine.runtime.turns == 2


def test_continuing_into_a_failure_keeps_head_and_numbers(local, store, talk, monkeypatch):
    """What the old part of an answer had is not lost when going on fails."""
    run(local.ask(talk, "say a"))
    monkeypatch.setattr(local.runtime, "turn", lambda *_: 1 / 0)
    assert run(local.continue_answer(talk))[-1].state == "failed"
    answer = store.path(talk)[-1]
    assert (answer.text, answer.state, answer.head.name) == ("a", "failed", "head of a")
    assert answer.numbers["generated_tokens"] == 1


def test_a_database_that_refuses_stops_no_answer(start, client, store, talk):
    """The answer streams, marked unsaved; the next turn continues after it; when the disk has room all is stored in order."""
    start()
    full = RefusingStore(store)
    chat = Chat(full, client())
    full.refuses = True
    events = run(chat.ask(talk, "say a"))
    assert kinds(events) == ["Unsaved", "Asked", "Started", "Finished"]
    assert events[-1].text == "a"
    assert "full" in events[-1].unsaved
    assert (events[-1].question_id, store.path(talk), chat.unsaved) == (None, [], (talk,))
    assert "full" in chat.retry_unsaved()
    second = run(chat.ask(talk, "say b"))
    assert second[-1].text == "b"
    for make in (chat.regenerate, chat.continue_answer):
        with pytest.raises(NotWritable, match="not saved"):
            make(talk)
    full.refuses = False
    assert chat.retry_unsaved() == ""
    assert chat.unsaved == ()
    assert texts(store, talk) == [
        ("user", "say a", "complete"), ("assistant", "a", "complete"),
        ("user", "say b", "complete"), ("assistant", "b", "complete"),
    ]  # fmt: skip
    assert all(message.ids for message in store.path(talk))
    assert store.path(talk)[1].head.name == "head of a"


def test_unsaved_lines_go_to_the_engine_all_the_same(start, client, store, talk, monkeypatch):
    """The engine sees the conversation that the person sees, saved or not."""
    engine = start()
    full = RefusingStore(store)
    chat = Chat(full, client())
    run(chat.ask(talk, "say a"))
    full.refuses = True
    run(chat.ask(talk, "say b"))
    seen = []
    played = engine.runtime.turn
    monkeypatch.setattr(engine.runtime, "turn", lambda request, *rest: (seen.append(request), played(request, *rest)))
    run(chat.ask(talk, "say c"))
    assert [line.text for line in seen[0].lines] == ["say a", "a", "say b", "b", "say c"]
    assert seen[0].lines[2].ids == pack_ids([7, 5])
    assert seen[0].head.name == "head of b"


@pytest.mark.parametrize("step", ["ask", "begin_answer", "set_ids", "checkpoint_answer", "finish_answer"])
def test_each_write_may_fail_once_and_is_made_up_for(start, client, store, talk, step):
    """Whichever step the disk refuses, what was written stays and the rest follows; nothing is written twice."""
    engine = start()
    full = RefusingStore(store)
    now = [0.0]
    chat = Chat(full, client(), clock=lambda: now[0])
    full.refuses = step
    events = []
    for event in chat.ask(talk, "say a hold say b").run():
        events.append(event)
        if isinstance(event, Delta):
            now[0] += 10.0
            engine.runtime.gate.set()
    assert any(isinstance(event, Unsaved) for event in events)
    assert chat.unsaved == (() if step == "checkpoint_answer" else (talk,))
    full.refuses = False
    assert chat.retry_unsaved() == ""
    assert texts(store, talk) == [("user", "say a hold say b", "complete"), ("assistant", "ab", "complete")]
    assert len(store.children(None, talk)) == 1


def test_saving_that_recovers_during_the_answer_is_told(start, client, store, talk):
    """The mark UNSAVED goes away by itself."""
    engine = start()
    full = RefusingStore(store)
    now = [0.0]
    chat = Chat(full, client(), clock=lambda: now[0])
    full.refuses = True
    events = []
    for event in chat.ask(talk, "say a hold say b").run():
        events.append(event)
        if isinstance(event, Delta):
            full.refuses = False
            now[0] += 10.0
            engine.runtime.gate.set()
    assert [kind for kind in kinds(events) if kind in {"Unsaved", "Saved"}] == ["Unsaved", "Saved"]
    assert (events[-1].unsaved, chat.unsaved) == ("", ())
    assert isinstance([event for event in events if isinstance(event, Saved)][0], Saved)


def test_a_conversation_erased_meanwhile_ends_in_peace(local, store, talk):
    """Another window may erase it while the answer streams: nothing can be saved, and quitting need not ask."""
    events = []
    for event in local.ask(talk, "say a").run():
        if isinstance(event, Asked):
            store.erase(talk)
        events.append(event)
    assert events[-1].text == "a"
    assert events[-1].unsaved
    assert local.unsaved == ()


@pytest.fixture
def mortal(client, spawn, store):
    """A chat with an engine process that can die."""
    face = client(spawn)
    chat = Chat(store, face)
    chat.client = face
    return chat


def test_an_engine_killed_in_the_middle_costs_only_the_rest_of_the_answer(mortal, store, talk, spawn):
    """kill -9 while it streams: the text is there, marked cut, another engine is up, and "continue" goes on from it."""
    events = []
    for event in mortal.ask(talk, "say a wait").run():
        events.append(event)
        if isinstance(event, Delta):
            os.kill(mortal.client.engine_pid, signal.SIGKILL)
        if isinstance(event, EngineRestarted):
            assert texts(store, talk)[-1] == ("assistant", "a", "cut"), "stored before the engine is cared for"
    assert kinds(events) == ["Asked", "Started", "EngineRestarted", "Finished"]
    assert not events[-2].repeated
    assert (events[-1].state, events[-1].error, events[-1].text) == ("cut", "EngineDied", "a")
    assert store.path(talk)[-1].ids == pack_ids([1])
    finished = run(mortal.continue_answer(talk))[-1]
    assert (finished.state, finished.text) == ("complete", "amore")
    assert texts(store, talk)[-1] == ("assistant", "amore", "complete")
    assert store.path(talk)[-1].ids == pack_ids([1, 4])
    assert len(store.path(talk)) == 2


def test_a_request_that_kills_two_engines_is_not_sent_to_a_third(mortal, store, talk, spawn, home):
    """It is repeated once by itself, then it is over, and the next question finds a living engine."""
    events = run(mortal.ask(talk, "die"))
    assert [event.repeated for event in events if isinstance(event, EngineRestarted)] == [True, False]
    assert (events[-1].state, events[-1].error) == ("cut", "EngineDied")
    assert (home.data_dir / "diary.txt").read_text().count("turn die") == 2
    assert len(spawn.children) == 3
    assert run(mortal.ask(talk, "say hi"))[-1].text == "hi"
    assert len(spawn.children) == 3


def test_a_device_that_did_not_survive_a_suspend_costs_nothing(mortal, store, talk, spawn, home):
    """The engine says that it cannot go on, saves and ends; the same question goes to a new one by itself."""
    events = run(mortal.ask(talk, "slept say back"))
    assert [event.repeated for event in events if isinstance(event, EngineRestarted)] == [True]
    assert (events[-1].state, events[-1].text) == ("complete", "back")
    assert texts(store, talk) == [("user", "slept say back", "complete"), ("assistant", "back", "complete")]
    assert len(spawn.children) == 2
    assert spawn.children[0].wait(30) == EXIT_FATAL
    assert (home.data_dir / "diary.txt").read_text().split("close")[0].split()[-1] == "flush"


def test_a_device_that_fails_in_the_middle_leaves_the_answer_cut(mortal, store, talk, spawn):
    """What had come is there and can be continued, in a new engine."""
    finished = run(mortal.ask(talk, "say a fault"))[-1]
    assert (finished.state, finished.error, finished.text) == ("cut", "EngineDied", "a")
    assert run(mortal.continue_answer(talk))[-1].text == "amore"
    assert texts(store, talk)[-1] == ("assistant", "amore", "complete")


def test_a_cache_directory_that_is_not_ours_any_more_is_a_sentence(mortal, store, talk, home):
    """Found out when an engine is to be started: the question is kept, the turn fails with what to do."""
    home.cache_dir.chmod(0o777)
    finished = run(mortal.ask(talk, "say a"))[-1]
    assert (finished.state, finished.error) == ("failed", "PathError")
    assert "chmod 700" in finished.message
    assert texts(store, talk) == [("user", "say a", "complete"), ("assistant", "", "failed")]
    home.cache_dir.chmod(0o700)
    assert run(mortal.ask(talk, "say b"))[-1].text == "b"


def test_an_engine_that_died_between_turns_is_replaced_without_a_word(mortal, store, talk, spawn):
    """Nothing was lost, so nothing is said."""
    run(mortal.ask(talk, "say a"))
    os.kill(mortal.client.engine_pid, signal.SIGKILL)
    while mortal.client.alive:
        pass
    assert kinds(run(mortal.ask(talk, "say b"))) == ["Asked", "Started", "Finished"]


def test_an_engine_that_cannot_start_leaves_the_question(client, store, talk):
    """The question is stored, the turn fails with the reason."""
    face = client(lambda: subprocess.Popen([sys.executable, "-c", "raise SystemExit(9)"]))
    finished = run(Chat(store, face).ask(talk, "say a"))[-1]
    assert (finished.state, finished.error) == ("failed", "EngineUnavailable")
    assert texts(store, talk) == [("user", "say a", "complete"), ("assistant", "", "failed")]


def test_a_question_asked_while_the_engine_loads_is_answered(start, client, store, talk):
    """The face may ask as soon as it is on screen; it sees the loading and then the answer."""
    runtime = FakeRuntime()
    runtime.load_gate.clear()
    start(runtime)
    events = []
    for event in Chat(store, client()).ask(talk, "say a").run():
        events.append(event)
        if isinstance(event, Progress):
            runtime.load_gate.set()
    assert events[1].phase == "loading"
    assert isinstance(events[-1], Finished)
    assert events[-1].text == "a"
