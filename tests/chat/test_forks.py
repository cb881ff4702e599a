"""Branches: versions, what is taken away and brought back, forks that share ids; random histories against a plain tree."""

import random

import pytest

from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError, ConversationExists, UnknownConversation, UnusableName
from localkv.kv.record import Head, pack_ids
from tests.chat import forest
from tests.chat.clock import Clock

HEAD = Head("name", "identity", 12, "fingerprint")


@pytest.fixture
def store(tmp_path):
    opened = ConversationStore.open(tmp_path / "conversations.db", tmp_path / "backups", clock=Clock())
    yield opened
    opened.close()


def begin(store, name="talk", **facts):
    return store.create(name, model=ModelSection(), sampling=SamplingSection(), **facts).id


def turn(store, conversation, parent, question, answer):
    """A question and its answer; the answer's id."""
    asked = store.ask(conversation, parent, question)
    store.set_ids(asked.id, pack_ids([1, len(question)]))
    begun = store.begin_answer(conversation, asked.id)
    store.finish_answer(begun.id, text=answer, ids=pack_ids([2, len(answer)]), state="complete", head=HEAD, numbers={"a": 1})
    return begun.id


def texts(store, conversation):
    return [message.text for message in store.path(conversation)]


def test_versions_are_counted_in_the_order_of_writing(store):
    """Each alternative knows which it is and of how many; what has none is not named."""
    talk = begin(store)
    first = turn(store, talk, None, "q1", "a1")
    question = store.message(first).parent
    second = store.begin_answer(talk, question).id
    other = store.ask(talk, None, "q1 in other words").id
    assert store.versions(talk) == {first: (1, 2), second: (2, 2), question: (1, 2), other: (2, 2)}
    assert store.shown_versions(second) == [first, second]


def test_looking_at_a_version_brings_what_follows_it(store):
    """The path goes on to what was written last below it."""
    talk = begin(store)
    first = turn(store, talk, None, "q1", "a1")
    last = turn(store, talk, first, "q2", "a2")
    store.ask(talk, None, "another q1")
    assert texts(store, talk) == ["another q1"]
    assert store.look_at(store.message(first).parent) == last
    assert texts(store, talk) == ["q1", "a1", "q2", "a2"]


def test_a_fork_shares_ids_records_and_settings(store):
    """The ids up to the fork are equal, so that the cache is reused; the old conversation is as it was."""
    talk = begin(store, system="be brief", title="Talk", private=True)
    first = turn(store, talk, None, "q1", "a1")
    turn(store, talk, first, "q2", "a2")
    store.set_tags(talk, ["rust"])
    before = store.path(talk)
    fork = store.fork(first, "fork", "Talk (fork)")
    assert texts(store, fork.id) == ["be brief", "q1", "a1"]
    shared = store.path(fork.id)
    assert [(m.role, m.ids, m.head, m.numbers, m.created) for m in shared] == [
        (m.role, m.ids, m.head, m.numbers, m.created) for m in before[:3]
    ]
    assert not {m.id for m in shared} & {m.id for m in before}
    assert (fork.title, fork.system, fork.private, fork.tags, fork.n_messages) == (
        "Talk (fork)",
        "be brief",
        True,
        ("rust",),
        2,
    )
    assert store.path(talk) == before
    turn(store, fork.id, fork.leaf, "q2 here", "a2 here")
    assert store.path(talk) == before
    store.erase(talk)
    assert texts(store, fork.id) == ["be brief", "q1", "a1", "q2 here", "a2 here"]


def test_the_token_log_of_a_fork_is_the_beginning_of_the_old_one(store):
    """What decides about reuse, the ids along the path, is byte for byte the same."""
    talk = begin(store)
    first = turn(store, talk, None, "q1", "a1")
    turn(store, talk, first, "q2", "a2")
    fork = store.fork(first, "fork")
    [(_, old)] = store.token_logs(talk)
    [(_, new)] = store.token_logs(fork.id)
    assert new
    assert old.startswith(new)


def test_a_fork_of_an_answer_that_is_being_written_can_be_gone_on_with(store):
    """The copy is nobody's to finish, so it is a stopped answer."""
    talk = begin(store)
    question = store.ask(talk, None, "q").id
    answer = store.begin_answer(talk, question).id
    store.checkpoint_answer(answer, "so far", pack_ids([5]))
    fork = store.fork(answer, "fork")
    assert [m.state for m in store.path(fork.id)] == ["complete", "stopped"]
    assert store.message(answer).state == "streaming"


def test_forks_are_refused_whole(store):
    """A taken or unusable name, or a message that is gone, leaves no half conversation."""
    talk = begin(store)
    first = turn(store, talk, None, "q1", "a1")
    for name, error in (("talk", ConversationExists), ("", UnusableName)):
        with pytest.raises(error):
            store.fork(first, name)
    with pytest.raises(UnknownConversation):
        store.fork("nothing", "fork")
    assert [each.name for each in store.list(include_trashed=True)] == ["talk"]


def test_the_system_prompt_is_no_branch(store):
    """What everything hangs on is not taken away by one key."""
    talk = begin(store, system="be brief")
    turn(store, talk, None, "q1", "a1")
    with pytest.raises(ConversationError, match="trash the conversation"):
        store.take_away(store.path(talk)[0].id)


def test_taking_the_only_question_away_leaves_an_empty_path(store):
    """The conversation goes on from its start, and the question comes back."""
    talk = begin(store)
    first = turn(store, talk, None, "q1", "a1")
    question = store.message(first).parent
    assert store.take_away(question) == 2
    assert texts(store, talk) == []
    assert store.branches(talk) == []
    store.bring_back(question)
    assert texts(store, talk) == ["q1", "a1"]


def test_branches_name_their_ends(store):
    """Each end of a path is there once, the one last written first, and the one that is looked at is marked."""
    talk = begin(store, system="s")
    first = turn(store, talk, None, "q1", "a1")
    second = turn(store, talk, first, "q2", "a2")
    third = turn(store, talk, first, "q2 again", "a2 again")
    found = store.branches(talk)
    assert [(each.leaf, each.n_messages, each.shown) for each in found] == [(third, 4, True), (second, 4, False)]
    assert found[0].text == "a2 again"


@pytest.mark.parametrize("seed", range(8))
def test_random_histories_lose_nothing(store, seed):
    """However branches are taken away and brought back: the path is whole and visible, versions count what is there, and at
    the end everything that was ever said is still there."""
    source = random.Random(seed)
    talk = begin(store)
    said, hidden = [], []
    for n in range(60):
        wish = source.choice(["ask", "ask", "edit", "away", "back", "look"])
        if wish == "ask" or not said:
            said.append(store.ask(talk, store.get(talk).leaf, f"m{n}").id)
        elif wish == "edit":
            said.append(store.ask(talk, store.message(source.choice(said)).parent, f"m{n}").id)
        elif wish == "away":
            if left := [key for key in said if key not in hidden]:
                hidden.append(source.choice(left))
                assert store.take_away(hidden[-1]) >= 1
                assert hidden[-1] not in {message.id for message in store.path(talk)}
        elif wish == "back" and hidden:
            store.bring_back(source.choice(hidden))
        elif wish == "look":
            store.look_at(source.choice(said))
        looked_at = {message.id for message in store.path(talk)}
        hidden = [key for key in hidden if key not in looked_at or wish == "away"]
        check(store, talk, said, set(hidden))
    for each in hidden:
        store.bring_back(each)
    assert len(store.branches(talk)) == len([m for m in said if not store.children(m, talk)])


def check(store, talk, said, hidden):
    """Versions and branches are those of the tree without the hidden subtrees."""
    messages = {key: store.message(key) for key in said}
    shown = {key for key in said if not hidden & {m.id for m in forest.path_to(messages, key)}}
    families = {}
    for key in said:
        if key not in hidden:
            families.setdefault(messages[key].parent, []).append(key)
    expected = {key: (n, len(keys)) for keys in families.values() if len(keys) > 1 for n, key in enumerate(keys, start=1)}
    assert store.versions(talk) == expected
    parents = {messages[key].parent for key in shown}
    assert {each.leaf for each in store.branches(talk)} == shown - parents


def test_the_record_where_conversations_part_is_known(store):
    """What both share last is named, and nothing else: it must not be replaced when one of them goes on."""
    talk = begin(store)
    first = turn(store, talk, None, "q1", "a1")
    other = Head("later", "identity", 20, "fingerprint")
    assert not store.is_forked(HEAD)
    store.fork(first, "fork")
    assert store.is_forked(HEAD)
    assert not store.is_forked(other)
    store.fork(store.message(first).parent, "without a record")


@pytest.mark.parametrize("seed", range(4))
def test_what_was_taken_away_can_be_erased(store, tmp_path, seed):
    """Its words are gone from the file; all else is as it was, counted right, and the path ends in something that is there."""
    source = random.Random(seed)
    talk, said = begin(store, title="A title of its own"), []
    for n in range(40):
        parent = source.choice([None, *said])
        said.append(store.ask(talk, parent, f"secretword{n}x").id)
    hidden = source.sample(said, 5)
    for each in hidden:
        store.take_away(each)
    messages = {key: store.message(key) for key in said}
    kept = {key for key in said if not set(hidden) & {m.id for m in forest.path_to(messages, key)}}
    assert store.erase_taken() == len(said) - len(kept)
    assert {key for key in said if gone(store, key)} == set(said) - kept
    assert store.get(talk).n_messages == len(kept)
    assert {message.id for message in store.path(talk)} <= kept
    assert store.erase_taken() == 0
    store.close()
    written = (tmp_path / "conversations.db").read_bytes()
    assert {key for key in said if messages[key].text.encode() in written} == kept


def gone(store, key):
    """Whether there is no such message."""
    try:
        store.message(key)
    except UnknownConversation:
        return True
    return False
