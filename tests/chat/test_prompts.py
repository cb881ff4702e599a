"""Another system prompt for a conversation that has begun: a branch from the start, with nothing of the old one lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.audit import audit_conversations
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import pack_ids


@pytest.fixture
def store(home):
    made = ConversationStore.open(home.database, home.backups)
    yield made
    made.close()


def talk(store, name, system, *said):
    conversation = store.create(name, model=ModelSection(), sampling=SamplingSection(), system=system).id
    leaf = None
    for index in range(0, len(said), 2):
        question = store.ask(conversation, store.get(conversation).leaf, said[index])
        store.set_ids(question.id, pack_ids([1, 2]))
        leaf = store.begin_answer(conversation, question.id).id
        store.finish_answer(leaf, text=said[index + 1], ids=pack_ids([3, 4]), state="complete", head=None, numbers=None)
    return conversation


def texts(store, conversation):
    return [message.text for message in store.path(conversation)]


@pytest.mark.parametrize(("before", "after"), [("One.", "Two."), ("", "Two."), ("One.", "")])
def test_the_words_go_on_below_the_other_prompt(store, before, after):
    """Same questions and answers, another beginning; the path as it was is a version of it and comes back with its prompt."""
    conversation = talk(store, "c", before, "q", "a", "r", "b")
    old = store.path(conversation)
    assert store.set_system(conversation, after).system == after
    assert texts(store, conversation) == [*filter(None, [after]), "q", "a", "r", "b"]
    assert store.get(conversation).n_messages == 8
    assert len(store.shown_versions(store.path(conversation)[0].id)) == 2
    store.look_at(old[0].id)
    assert store.path(conversation) == old
    assert store.get(conversation).system == before


def test_answers_keep_their_ids_and_questions_do_not(store):
    """What was sampled stays as ids; a question's ids may hold the old prompt, and no record of the old branch is named."""
    conversation = talk(store, "c", "One.", "q", "a")
    store.set_system(conversation, "Two.")
    assert [message.ids for message in store.path(conversation)] == [b"", b"", pack_ids([3, 4])]
    assert all(message.head is None for message in store.path(conversation))


def test_the_same_prompt_again_changes_nothing(store):
    """No branch is made for nothing."""
    conversation = talk(store, "c", "One.", "q", "a")
    store.set_system(conversation, "One.")
    assert store.get(conversation).n_messages == 2


def test_a_first_question_goes_below_the_prompt_of_now(store):
    """Asking at the start again finds the newest prompt, and none where it was taken away."""
    conversation = talk(store, "c", "One.", "q", "a")
    store.set_system(conversation, "Two.")
    assert store.message(store.ask(conversation, None, "again").parent).text == "Two."
    store.set_system(conversation, "")
    assert store.ask(conversation, None, "again").parent is None


@pytest.mark.slow
@given(st.lists(st.sampled_from(["", "One.", "Two."]), max_size=6))
def test_any_number_of_changes_leaves_a_sound_store(tmp_path_factory, prompts):
    """After every change the words are the same, the path begins with the prompt, and the audit finds no flaw."""
    folder = tmp_path_factory.mktemp("store")
    store = ConversationStore.open(folder / "c.db", folder / "backups")
    try:
        conversation = talk(store, "c", "", "q", "a")
        for prompt in prompts:
            store.set_system(conversation, prompt)
            assert texts(store, conversation) == [*filter(None, [prompt]), "q", "a"]
    finally:
        store.close()
    assert not audit_conversations(folder / "c.db").flaws
