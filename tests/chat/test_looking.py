"""What a conversation is looked at: never hidden, and below the prompt that it is said to have; any order of doings against a dict."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from localkv.chat.export import exported
from localkv.chat.imports.incoming import arrive
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.errors import UnknownConversation
from tests.chat import forest
from tests.chat.clock import Clock


@pytest.fixture
def store(tmp_path):
    opened = ConversationStore.open(tmp_path / "conversations.db", tmp_path / "backups", clock=Clock())
    yield opened
    opened.close()


def begin(store, **facts):
    return store.create("talk", model=ModelSection(), sampling=SamplingSection(), **facts).id


def texts(store, conversation):
    return [message.text for message in store.path(conversation)]


def three(store):
    """A talk of three messages, one below the other: its id, and theirs."""
    talk = begin(store)
    first = store.ask(talk, None, "one").id
    second = store.ask(talk, first, "two").id
    return talk, first, second, store.ask(talk, second, "three").id


WAYS = {
    "brought back": lambda store, talk, second: store.bring_back(second),
    "looked at": lambda store, talk, second: store.look_at(second),
    "ended at": lambda store, talk, second: store.set_leaf(talk, second),
    "asked below": lambda store, talk, second: store.ask(talk, second, "there"),
    "answered": lambda store, talk, second: store.begin_answer(talk, second),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_below_something_hidden_stays(store, way):
    """Whoever goes on where it was taken away twice over has it all back: in the branches, in search, and after the trash."""
    talk, first, second, _ = three(store)
    store.take_away(second)
    store.take_away(first)
    WAYS[way](store, talk, second)
    store.ask(talk, store.get(talk).leaf, "written since")
    assert texts(store, talk)[:2] == ["one", "two"]
    assert [each.text for each in store.branches(talk) if each.shown] == ["written since"]
    assert [hit.message for hit in store.search("written")] == [store.get(talk).leaf]
    assert store.erase_taken() == 0
    assert texts(store, talk)[-1] == "written since"


def test_a_file_that_looks_below_something_hidden_loses_nothing_of_it(store):
    """What the person sees is not in the trash, whatever the table of hidden messages says."""
    talk, first, second, third = three(store)
    aside = store.ask(talk, first, "aside").id
    store.take_away(aside)
    store.set_leaf(talk, third)
    with store._database.writing() as connection:
        connection.execute("INSERT INTO hidden (message, since) VALUES (?, 0)", (second,))
    assert store.erase_taken() == 1
    assert texts(store, talk) == ["one", "two", "three"]


def test_an_import_hides_nothing_that_is_there(store):
    """A file in which a branch was taken away does not take it away again, with what was said there since."""
    talk, first, second, _ = three(store)
    store.take_away(second)
    elsewhere = store.ask(talk, first, "said elsewhere").id
    file = exported(store.get(talk), store.messages(talk), store.taken_away(talk))
    with store._database.writing() as connection:
        connection.execute("UPDATE conversations SET leaf = ? WHERE id = ?", (first, talk))
        connection.execute("DELETE FROM messages WHERE id = ?", (elsewhere,))
    store.bring_back(second)
    written = store.ask(talk, second, "written since").id
    assert store.take_in([arrive(file.incoming(), ModelSection(), SamplingSection(), 0.0)]) == [1]
    store.erase_taken()
    assert store.message(written).text == "written since"


def test_an_import_that_ends_in_something_hidden_shows_it(store):
    """A file may say that the path it ends in was taken away: what is said there next is not erased with it."""
    talk, _, second, third = three(store)
    file = exported(store.get(talk), store.messages(talk), [second])
    store.erase(talk)
    store.take_in([arrive(file.incoming(), ModelSection(), SamplingSection(), 0.0)])
    store.ask(talk, third, "written since")
    assert store.erase_taken() == 0
    assert texts(store, talk) == ["one", "two", "three", "written since"]


class Doings(RuleBasedStateMachine):
    """The store and a dict of messages, with a set of those hidden beside it."""

    @initialize(system=st.sampled_from(["", "A"]))
    def begin(self, system):
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        self.store = ConversationStore.open(folder / "c.db", folder / "b")
        self.talk = begin(self.store, system=system)
        self.model, self.hidden, self.leaf = {}, set(), None
        self.learn()

    def learn(self):
        """Take in what the store has written anew, and what it looks at."""
        self.model |= {each.id: each for each in self.store.messages(self.talk) if each.id not in self.model}
        self.leaf = self.store.get(self.talk).leaf

    def path(self, key):
        return [message.id for message in forest.path_to(self.model, key)]

    def shown(self):
        return {key for key in self.model if not self.hidden & set(self.path(key))}

    def pick(self, data, *roles):
        return data.draw(st.sampled_from([key for key, each in self.model.items() if each.role in roles]))

    @rule(data=st.data(), above=st.sampled_from(["what is looked at", "anything", "nothing"]))
    def ask(self, data, above):
        parent = {"what is looked at": self.leaf, "nothing": None}.get(above)
        if above == "anything" and self.model:
            parent = self.pick(data, "system", "user")
        asked = self.store.ask(self.talk, parent, f"{len(self.model)}")
        self.learn()
        assert self.leaf == asked.id
        self.hidden -= set(self.path(asked.id))

    @rule(system=st.sampled_from(["", "A", "B"]))
    def set_system(self, system):
        self.store.set_system(self.talk, system)
        self.learn()

    @precondition(lambda self: any(each.role == "user" for each in self.model.values()))
    @rule(data=st.data())
    def prune(self, data):
        key = self.pick(data, "user")
        self.store.take_away(key)
        self.hidden.add(key)
        self.learn()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), way=st.sampled_from(["look_at", "bring_back", "set_leaf"]))
    def look(self, data, way):
        key = self.pick(data, "system", "user")
        self.store.set_leaf(self.talk, key) if way == "set_leaf" else getattr(self.store, way)(key)
        self.hidden -= set(self.path(key))
        self.learn()
        assert key in self.path(self.leaf)

    @rule(where=st.data())
    def fork(self, where):
        if self.leaf is not None:
            key = self.pick(where, "system", "user")
            fork = self.store.fork(key, self.store.free_name("fork"))
            assert texts(self.store, fork.id) == [self.model[each].text for each in self.path(key)]
            assert fork.system == prompt_of(self.store, fork.id)

    @rule()
    def empty_trash(self):
        kept = self.shown()
        assert self.store.erase_taken() == len(self.model) - len(kept)
        assert {each.id for each in self.store.messages(self.talk)} == kept
        self.model = {key: self.model[key] for key in self.model if key in kept}
        self.hidden.clear()
        self.learn()

    @invariant()
    def agree(self):
        if hasattr(self, "store"):
            known = self.store.get(self.talk)
            assert known.leaf is None or known.leaf in self.shown()
            assert known.system == prompt_of(self.store, self.talk)
            parents = {self.model[key].parent for key in self.shown()}
            assert {each.leaf for each in self.store.branches(self.talk)} == self.shown() - parents

    def teardown(self):
        self.store.close()
        self.folder.cleanup()


def prompt_of(store, conversation):
    return "".join(message.text for message in store.path(conversation) if message.role == "system")


TestDoings = Doings.TestCase
TestDoings.__doc__ = (
    "In any order of doings nothing that is visible is erased with the trash, and the prompt is that of the path."
)
TestDoings.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# ---- the system prompt of what is looked at ----


def two_prompts(store):
    """A talk below A, then below B, which is looked at: its id, and the ids of both questions."""
    talk = begin(store, system="A")
    old = store.ask(talk, None, "q").id
    store.set_system(talk, "B")
    return talk, old, store.get(talk).leaf


PROMPTS = {
    "a fork of the old branch": ("A", lambda store, talk, old, new: store.fork(old, "fork").id),
    "a fork of the new branch": ("B", lambda store, talk, old, new: (store.look_at(old), store.fork(new, "fork").id)[1]),
    "brought back": ("A", lambda store, talk, old, new: (store.take_away(old), store.bring_back(old), talk)[2]),
    "looked at": ("A", lambda store, talk, old, new: (store.look_at(old), talk)[1]),
    "ended at": ("A", lambda store, talk, old, new: (store.set_leaf(talk, old), talk)[1]),
    "asked below": ("A", lambda store, talk, old, new: (store.ask(talk, old, "r"), talk)[1]),
    "answered": ("A", lambda store, talk, old, new: (store.begin_answer(talk, old), talk)[1]),
}


@pytest.mark.parametrize("way", PROMPTS)
def test_the_prompt_is_that_of_the_path(store, way):
    """What `/system` shows is what the model hears, and accepting another one is a change."""
    expected, do = PROMPTS[way]
    conversation = do(store, *two_prompts(store))
    assert (store.get(conversation).system, texts(store, conversation)[0]) == (expected, expected)
    other = {"A": "B", "B": "A"}[expected]
    assert store.set_system(conversation, other).system == texts(store, conversation)[0] == other


def test_taking_away_what_has_no_prompt_leaves_the_prompt_beside_it(store):
    """Where the newest root is taken away, the one beside it is looked at, with its prompt; and with none where none is left."""
    talk = begin(store, system="A")
    store.ask(talk, None, "q")
    store.set_system(talk, "")
    root = store.path(talk)[0].id
    store.take_away(root)
    assert (store.get(talk).system, texts(store, talk)) == ("A", ["A", "q"])
    store.bring_back(root)
    assert (store.get(talk).system, texts(store, talk)) == ("", ["q"])


def test_a_prompt_that_disagrees_with_the_path_can_be_set_right(store):
    """A file in which both differ is mended by naming the prompt that the model hears; no branch is made for that."""
    talk, _, _ = two_prompts(store)
    with store._database.writing() as connection:
        connection.execute("UPDATE conversations SET system = 'A'")
    n_messages = store.get(talk).n_messages
    known = store.set_system(talk, "B")
    assert (known.system, known.n_messages) == ("B", n_messages)


def test_looking_is_one_step(store):
    """A process that is killed while it looks elsewhere leaves path and prompt as they were, or both new."""
    _, old, _ = two_prompts(store)
    statements = []
    store._database._connection.set_trace_callback(statements.append)
    store.look_at(old)
    assert statements.count("COMMIT") == 1


def test_a_message_that_is_gone_is_not_looked_at(store):
    """The sentence, and nothing changed."""
    talk, _, new = two_prompts(store)
    with pytest.raises(UnknownConversation):
        store.bring_back("nothing")
    assert (store.get(talk).leaf, store.get(talk).system) == (new, "B")
