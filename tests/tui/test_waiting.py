"""Messages sent while the model is busy: seen, changed, sent in order, and never lost."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from localkv.chat.store import ConversationStore
from localkv.commands.waiting import brief, listed, number_in
from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import ConfigError, ConversationError, NotWritable
from localkv.service.turn_events import Saved, Unsaved
from localkv.tui.desk import Desk
from localkv.tui.queue import Queue
from localkv.tui.waiting import Waiting
from tests.tui.conftest import notices, play, rows_of, text_of, until


async def say(pilot, text):
    pilot.app.chat_screen.composer.insert(text)
    await pilot.press("enter")
    await pilot.pause()


def stored(world, name="first"):
    return list(world.store.by_name(name).queue)


def busy(world):
    """A conversation in which an answer is being written."""
    world.talk("first", "hello", "Hi.")


async def fill(pilot, world, *texts):
    await say(pilot, "a question")
    await until(pilot, lambda: world.chat.turns and world.chat.turns[0].started.is_set(), "a turn")
    for text in texts:
        await say(pilot, text)
    await until(pilot, lambda: stored(world) == list(texts), "the queue")


def test_what_is_sent_while_it_answers_is_asked_in_order(world):
    """Each message waits until the answer before it is finished; none is asked twice."""
    busy(world)

    async def scene(pilot):
        await fill(pilot, world, "second", "third\nwith two lines", "fourth")
        screen = text_of(pilot.app)
        assert "3 messages wait: sent after this answer" in screen
        assert screen.index("1  second") < screen.index("2  third") < screen.index("3  fourth")
        for number in range(4):
            turn = world.chat.turns[number]
            turn.write("Yes.")
            turn.end()
            await until(pilot, lambda: len(world.chat.turns) == min(4, number + 2), "the next turn")  # noqa: B023
        await until(pilot, lambda: not pilot.app.chat_screen.stage.runs.moving, "rest")
        assert [turn.question for turn in world.chat.turns] == ["a question", "second", "third\nwith two lines", "fourth"]
        assert stored(world) == []
        assert not pilot.app.chat_screen.queue.has_class("-open")

    play(world.app(session="first"), scene)


def test_it_goes_on_behind_another_conversation(world):
    """What waits in a conversation is asked there, also while the person looks at another one."""
    busy(world)
    world.talk("other", "q", "a")

    async def scene(pilot):
        await fill(pilot, world, "second")
        pilot.app.chat_screen.open(world.store.by_name("other").id)
        assert not pilot.app.chat_screen.queue.has_class("-open")
        world.chat.turns[0].end()
        await until(pilot, lambda: len(world.chat.turns) == 2, "the next turn")
        assert world.chat.turns[1].conversation == world.store.by_name("first").id
        await until(pilot, lambda: stored(world) == [], "an empty queue")
        assert [entry.text for entry in pilot.app.chat_screen.transcript.entries] == ["q", "a"]

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_after_a_stop_a_person_decides(world, state):
    """Esc or a failure holds the queue; enter with nothing written lets it go on, and so does the next message."""
    busy(world)

    async def scene(pilot):
        await fill(pilot, world, "second", "third")
        world.chat.turns[0].end(state)
        await until(pilot, lambda: "2 messages wait: enter sends" in text_of(pilot.app), "a held queue")
        assert len(world.chat.turns) == 1
        await pilot.press("enter")
        await until(pilot, lambda: len(world.chat.turns) == 2, "a turn")
        world.chat.turns[1].end(state)
        await until(pilot, lambda: "one message waits: enter sends" in text_of(pilot.app), "a held queue")
        await say(pilot, "fourth")
        await until(pilot, lambda: len(world.chat.turns) == 3, "a turn")
        assert [turn.question for turn in world.chat.turns[1:]] == ["second", "third"]
        assert stored(world)[-1] == "fourth"

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_the_queue_outlives_the_program(world):
    """After a quit or a crash what waited still waits, with the draft; nothing is sent before a person says so."""
    busy(world)

    async def write(pilot):
        await fill(pilot, world, "second", "third")
        await pilot.press(*"draft")
        pilot.app.chat_screen.store_draft()

    async def read(pilot):
        assert "2 messages wait: enter sends" in text_of(pilot.app)
        assert pilot.app.chat_screen.composer.text == "draft"
        assert len(world.chat.turns) == 1

    play(world.app(session="first"), write)
    world.chat.finish_all()
    play(world.app(session="first"), read)


def test_up_takes_the_last_one_back(world):
    """With nothing written, up edits what waits last; enter puts it back in its place. Its text is always stored somewhere."""
    busy(world)

    async def scene(pilot):
        await fill(pilot, world, "second", "third")
        await pilot.press("up")
        composer = pilot.app.chat_screen.composer
        await until(pilot, lambda: composer.text == "third", "the message")
        assert stored(world) == ["second"]
        assert world.store.by_name("first").draft == "third"
        await pilot.press(*"!", "enter")
        await until(pilot, lambda: stored(world) == ["second", "third!"], "the queue")

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_any_of_them_is_edited_or_forgotten(world):
    """In the queue's pane enter edits and d forgets; an edited message keeps its place; a forgotten one is in the history."""
    busy(world)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await fill(pilot, world, "second", "third", "fourth")
        await say(pilot, "/queue")
        await until(pilot, lambda: screen.focused is screen.queue, "the queue's focus")
        assert rows_of(screen.queue)[1].startswith("> 1  second")
        await pilot.press("down", "d")
        await until(pilot, lambda: stored(world) == ["second", "fourth"], "two")
        await pilot.press("up", "enter", "x", "enter")
        await until(pilot, lambda: stored(world) == ["secondx", "fourth"], "the edited one in its place")
        screen.composer.insert("words")
        await pilot.pause()
        screen.composer.clear()
        screen.composer.focus()
        await say(pilot, "/queue clear")
        await until(pilot, lambda: stored(world) == [], "none")
        assert screen.composer.past[-2:] == ["secondx", "fourth"]
        assert "third" in screen.composer.past

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["the answer ends", "another question", "away and back"])
def test_a_forgotten_message_stays_in_reach(world, then):
    """Up brings back what was forgotten, in its place among the questions, whatever has happened since."""
    busy(world)
    other = world.talk("other", "q", "a")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await fill(pilot, world, "second")
        world.clock.now += 1.0
        screen.drop_waiting(0, "second")
        recalled = ["second", "a question"]
        if then != "away and back":
            world.chat.turns[0].end()
            await until(pilot, lambda: not screen.stage.runs.moving, "rest")
        else:
            screen.open(other)
            assert "second" not in screen.composer.past
            screen.open(world.store.by_name("first").id)
        if then == "another question":
            world.clock.now += 1.0
            await say(pilot, "next")
            await until(pilot, lambda: len(world.chat.turns) == 2, "a turn")
            world.chat.turns[1].end()
            await until(pilot, lambda: not screen.stage.runs.moving, "rest")
            recalled = ["next", *recalled]
        screen.composer.focus()
        for text in recalled:
            await pilot.press("home", "up")
            assert screen.composer.text == text

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("wish", [Queue.Dropped, Queue.Edited])
@pytest.mark.parametrize("gone", ["dropped", "asked"])
def test_what_waits_no_longer_changes_nothing(world, wish, gone):
    """A message that was dropped or asked before a key reaches it is told to be gone: no other one is taken for it."""
    busy(world)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await fill(pilot, world, "second", "third")
        if gone == "dropped":
            screen.drop_waiting(0, "second")
        else:
            world.chat.turns[0].end()
            await until(pilot, lambda: stored(world) == ["third"], "the next turn")
        screen.queue.post_message(wish(0, "second"))
        await until(pilot, lambda: "waits no longer" in notices(pilot.app), "a notice")
        assert stored(world) == ["third"]
        assert screen.composer.text == ""

    play(world.app(session="first"), scene)


def test_two_quick_keys_forget_one_message(world):
    """Both mean the row under the cursor: the second, which comes before the row has changed, forgets no other one."""
    busy(world)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await fill(pilot, world, "second")
        screen.queue.action_drop()
        screen.queue.action_drop()
        await until(pilot, lambda: "waits no longer" in notices(pilot.app), "a notice")
        assert stored(world) == []

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("wish", [Queue.Dropped, Queue.Edited])
def test_what_moved_up_is_found_where_it_is(world, wish):
    """If the first message was asked after a key was pressed, the key still means the message that it was pressed for."""
    busy(world)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await fill(pilot, world, "second", "third", "fourth")
        world.chat.turns[0].end()
        await until(pilot, lambda: stored(world) == ["third", "fourth"], "the next turn")
        screen.queue.post_message(wish(1, "third"))
        await until(pilot, lambda: stored(world) == ["fourth"], "the queue")
        assert screen.composer.text == ("third" if wish is Queue.Edited else "")

    play(world.app(session="first"), scene)


def test_an_edited_message_keeps_its_place_while_others_are_asked(world):
    """What waited behind it waits behind it again, also if what waited before it was asked meanwhile."""
    busy(world)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await fill(pilot, world, "second", "third", "fourth")
        screen.edit_waiting(1, "third")
        world.chat.turns[0].end()
        await until(pilot, lambda: stored(world) == ["fourth"], "the next turn")
        await say(pilot, "!")
        await until(pilot, lambda: stored(world) == ["third!", "fourth"], "the queue")

    play(world.app(session="first"), scene)


def test_what_is_being_written_is_not_lost_to_an_edit(world):
    """Editing what waits is refused while something is written, and says what to do."""
    busy(world)

    async def scene(pilot):
        await fill(pilot, world, "second")
        pilot.app.chat_screen.composer.insert("words")
        pilot.app.chat_screen.queue.post_message(Queue.Edited(0, "second"))
        await until(pilot, lambda: "send it or clear it" in notices(pilot.app), "a notice")
        assert stored(world) == ["second"]
        assert pilot.app.chat_screen.composer.text == "words"

    play(world.app(session="first"), scene)


def test_a_refused_write_keeps_the_message_in_the_composer(world, monkeypatch):
    """If the queue cannot be stored, the text is still there."""
    busy(world)

    async def scene(pilot):
        await fill(pilot, world)

        def refuse(*_):
            raise NotWritable("the disk is full")

        monkeypatch.setattr(world.store, "set_queue", refuse)
        await say(pilot, "second")
        await until(pilot, lambda: "disk is full" in notices(pilot.app), "a notice")
        assert pilot.app.chat_screen.composer.text == "second"

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("saved", ["while it is answered", "after the answer"])
def test_a_message_waits_until_it_is_stored_as_a_question(world, monkeypatch, saved):
    """While the database refuses the question, the message stays stored, is not shown as waiting and is not asked again."""
    busy(world)
    monkeypatch.setattr("localkv.tui.refused.RETRY_SECONDS", 0.01)

    async def scene(pilot):
        stage = pilot.app.chat_screen.stage
        await fill(pilot, world, "second", "third")
        world.chat.stores = False
        world.chat.turns[0].end()
        await until(pilot, lambda: len(world.chat.turns) == 2, "the next turn")
        turn = world.chat.turns[1]
        turn.put(Unsaved("the disk is full"))
        await until(pilot, lambda: stage.runs.of(stage.desk.key).unsaved, "the mark")
        assert stored(world) == ["second", "third"]
        assert stage.waiting.shown == ("third",)
        if saved == "while it is answered":
            turn.put(Saved())
            await until(pilot, lambda: stored(world) == ["third"], "the shorter queue")
            turn.end()
        else:
            turn.end(unsaved="the disk is full")
            await until(pilot, lambda: world.chat.retries, "another try")
            assert stored(world) == ["second", "third"]
            world.chat.unsaved = ()
            await until(pilot, lambda: stored(world) == ["third"], "the shorter queue")
            await pilot.press("enter")
        await until(pilot, lambda: len(world.chat.turns) == 3, "the next turn")
        assert world.chat.turns[2].question == "third"

    play(world.app(session="first"), scene)


def test_a_message_whose_turn_failed_at_once_waits_again(world):
    """What became no question is neither forgotten nor hidden."""
    busy(world)

    async def scene(pilot):
        stage = pilot.app.chat_screen.stage
        await fill(pilot, world, "second")
        world.chat.failure = ConversationError("the database cannot be read")
        world.chat.turns[0].end()
        await until(pilot, lambda: "cannot be read" in notices(pilot.app), "a notice")
        await until(pilot, lambda: stage.waiting.shown == ("second",), "the message")
        assert stored(world) == ["second"]

    play(world.app(session="first"), scene)


def test_a_message_that_was_asked_is_not_asked_again_if_the_queue_cannot_be_stored(tmp_path, monkeypatch):
    """The store goes on having it for a while; the next write or the next message takes it out."""
    store = ConversationStore.open(tmp_path / "c.db", tmp_path / "backups")
    desk = Desk(store, Config())
    desk.open(store.create("c", model=ModelSection(), sampling=SamplingSection()).id)
    waiting = Waiting(desk)
    for text in ("one", "two", "three"):
        waiting.add(text)

    def refuse(*_):
        raise NotWritable("the disk is full")

    for given, rest in (("one", ("two", "three")), ("two", ("three",))):
        assert waiting.give(desk.key) == given
        with monkeypatch.context() as patch:
            patch.setattr(store, "set_queue", refuse)
            with pytest.raises(NotWritable):
                waiting.asked(desk.key)
            assert waiting.shown == waiting.of(desk.key) == rest
            with pytest.raises(NotWritable):
                waiting.give(desk.key)
        waiting.ended(desk.key)
        assert waiting.of(desk.key) == rest
    waiting.add("four")
    assert store.get(desk.key).queue == waiting.shown == ("three", "four")
    store.close()


def test_queue_commands_say_what_they_take(world):
    """Numbers that are none, words that are unknown, an empty queue: each is a sentence."""
    busy(world)

    async def scene(pilot):
        for line, part in {
            "/queue": "no message waits",
            "/queue delete 1": "no message waits",
            "/queue foo": "/queue delete N",
        }.items():
            pilot.app.chat_screen.composer.clear()
            await say(pilot, line)
            await until(pilot, lambda: part in notices(pilot.app), part)  # noqa: B023

    play(world.app(session="first"), scene)


def test_numbers_and_lines():
    """What plain mode prints, and which number means which message."""
    assert listed(()) == ["no message waits"]
    assert listed(("a", "b\nc")) == ["1  a", "2  b c  (2 lines)"]
    assert brief("\x1b[2J" + "x" * 100, 10) == "^[[2Jxxxx…"
    assert number_in("delete 2", ("a", "b")) == 1
    for wrong in ("delete", "delete 0", "delete 3", "delete x"):
        with pytest.raises(ConfigError, match="1 to 2"):
            number_in(wrong, ("a", "b"))


class Queues(RuleBasedStateMachine):
    """Adding, taking, giving out and asking in any order: the stored queue is what a plain list says, at every moment."""

    folder = None

    def __init__(self):
        super().__init__()
        self.count = getattr(type(self), "count", 0) + 1
        type(self).count = self.count
        self.store = ConversationStore.open(self.folder / f"{self.count}.db", self.folder / "backups")
        self.desk = Desk(self.store, Config())
        self.key = self.store.create("c", model=ModelSection(), sampling=SamplingSection()).id
        self.desk.open(self.key)
        self.waiting = Waiting(self.desk)
        self.given = None
        self.texts = []

    def teardown(self):
        self.store.close()

    @rule(text=st.sampled_from(["a", "b", "c"]), behind=st.none() | st.integers(0, 4))
    def add(self, text, behind):
        self.waiting.add(text, behind)
        self.texts.insert(max(0, len(self.texts) - (behind or 0)), text)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def take(self, data):
        index = data.draw(st.integers(0, len(self.texts) - 1))
        assert self.waiting.take(index) == self.texts.pop(index)

    @rule()
    def give(self):
        text = self.waiting.give(self.key)
        if self.given is None and self.texts:
            self.given = self.texts.pop(0)
            assert text == self.given
        else:
            assert text is None

    @rule()
    def asked(self):
        self.waiting.asked(self.key)
        self.given = None

    @invariant()
    def it_is_as_a_list(self):
        given = [] if self.given is None else [self.given]
        assert list(self.waiting.shown) == self.texts
        assert list(self.waiting.of(self.key)) == self.texts
        assert list(self.store.get(self.key).queue) == [*given, *self.texts]


def test_queues_are_lists(tmp_path):
    """Whatever is done to a queue, it is stored at once, in order, and what was given out stays until it is durable."""
    Queues.folder = tmp_path
    run = settings(max_examples=20, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck))
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Queues, settings=run)
