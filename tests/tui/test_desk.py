"""What is open, without a screen."""

import pytest

from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import NotWritable
from localkv.tui.desk import TAIL, Desk


@pytest.fixture
def desk(world):
    return Desk(world.store, Config(), world.clock)


def test_a_conversation_is_stored_with_its_first_question(desk, world):
    """Until then only the desk knows it; its settings go into the store with it."""
    desk.begin("Be brief.")
    desk.set_sampling(SamplingSection(temperature=0.1))
    desk.set_model(ModelSection(name="other"))
    assert world.store.list() == []
    made = desk.ensure()
    assert (made.system, made.sampling.temperature, made.model.name) == ("Be brief.", 0.1, "other")
    assert desk.ensure() == made


def test_names_never_clash(desk):
    """Two conversations of one second have two names."""
    names = set()
    for _ in range(3):
        desk.begin()
        names.add(desk.ensure().name)
    assert len(names) == 3


def test_a_name_from_the_command_line(desk, world):
    """--session opens what is called so, and names what is new."""
    desk.open_named("journal")
    assert desk.ensure().name == "journal"
    desk.begin()
    desk.open_named("journal")
    assert desk.opened.name == "journal"
    assert len(world.store.list()) == 1


def test_a_name_in_the_trash_comes_back_from_it(desk, world):
    """What is opened by its name is where a list shows it, and undo brings nothing back that is there."""
    conversation = world.talk("journal", "q", "a")
    desk.trash(conversation)
    desk.open_named("journal")
    assert desk.opened.trashed is None
    assert world.store.get(conversation).trashed is None
    assert desk.undo() is None


def test_only_the_end_is_read_first(desk, world):
    """A long conversation opens with its newest messages; the rest comes when asked for."""
    conversation = world.talk("long", *(f"m{i}" for i in range(100)))
    desk.open(conversation)
    assert [m.text for m in desk.messages] == [f"m{i}" for i in range(100 - TAIL, 100)]
    assert not desk.whole
    desk.read_whole()
    assert len(desk.messages) == 100
    assert desk.whole


def test_a_short_one_is_whole_at_once(desk, world):
    """Nothing is read twice where one reading is all."""
    desk.open(world.talk("short", "q", "a"))
    assert desk.whole


def test_a_draft_that_the_store_refuses_is_tried_again(desk, world, monkeypatch):
    """It is there again in its conversation, and is stored with the next call, also of the same text, or at the end."""
    one, two = world.talk("one", "q", "a"), world.talk("two", "q", "a")

    def refuse(*_):
        raise NotWritable("the disk is full")

    for again in ("same", "all"):
        desk.open(one)
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "set_draft", refuse)
            with pytest.raises(NotWritable):
                desk.keep_draft(f"words {again}")
            desk.open(two)
            assert desk.draft == ""
            desk.open(one)
            assert desk.draft == f"words {again}"
        if again == "same":
            desk.keep_draft(f"words {again}")
        else:
            desk.open(two)
            desk.store_drafts()
        assert world.store.get(one).draft == f"words {again}"


def test_an_erased_conversation_keeps_no_other_draft_from_being_stored(desk, world, monkeypatch):
    """Where a draft has nowhere to go any more, the others are stored all the same."""
    conversations = [world.talk(name, "q", "a") for name in ("one", "two")]

    def refuse(*_):
        raise NotWritable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "set_draft", refuse)
        for conversation in conversations:
            desk.open(conversation)
            with pytest.raises(NotWritable):
                desk.keep_draft("words")
    world.store.erase(conversations[0])
    desk.store_drafts()
    assert world.store.get(conversations[1]).draft == "words"


def test_words_in_a_new_conversation_are_its_own(desk, world):
    """They are there again in the next new conversation, belong to no other one, and go with their first question."""
    known = world.talk("known", "q", "a")
    desk.begin()
    desk.keep_draft("words")
    desk.open(known)
    assert desk.draft == ""
    desk.begin()
    assert desk.draft == "words"
    made = desk.ensure()
    desk.begin()
    assert desk.draft == ""
    desk.open(made.id)
    desk.keep_draft("words")
    assert world.store.get(made.id).draft == "words"


@pytest.mark.parametrize("there", [True, False])
def test_words_in_a_new_conversation_outlive_the_program(desk, world, there):
    """When it ends they make it a stored one, also if another one is looked at; without words none is made."""
    known = world.talk("known", "q", "a")
    desk.begin()
    desk.keep_draft(" \n")
    desk.store_drafts()
    assert [each.id for each in world.store.list()] == [known]
    desk.keep_draft("words")
    if not there:
        desk.open(known)
    desk.store_drafts()
    desk.store_drafts()
    (made,) = [each for each in world.store.list() if each.id != known]
    assert made.draft == "words"
    assert desk.key == (made.id if there else known)
    assert world.store.get(known).draft == ""


def test_trash_and_undo_in_order(desk, world):
    """Undo brings back the last one first, and then says that there is nothing."""
    first, second = world.talk("first", "q", "a"), world.talk("second", "q", "a")
    desk.trash(first)
    desk.trash(second)
    assert desk.undo().id == second
    assert desk.undo().id == first
    assert desk.undo() is None


def take_last(desk, world, conversation):
    """Take the newest message of a conversation away; its id."""
    desk.open(conversation)
    message = world.store.path(conversation)[-1].id
    desk.take_away([message])
    return message


def undo(desk):
    """What undo brings back: a message, a conversation, or nothing."""
    if message := desk.bring_back():
        return message
    conversation = desk.undo()
    return conversation.id if conversation is not None else None


def test_undo_goes_back_step_by_step(desk, world):
    """Conversations and messages come back in the order in which they went, the last one first, and stay where one looks."""
    first, second, third = (world.talk(name, "q", "a") for name in ("first", "second", "third"))
    steps = []
    desk.trash(first)
    steps.append(first)
    steps.append(take_last(desk, world, second))
    desk.trash(third)
    steps.append(third)
    steps.append(take_last(desk, world, second))
    while steps:
        assert undo(desk) == steps.pop()
    assert undo(desk) is None


def test_what_came_back_otherwise_changes_no_order(desk, world):
    """A conversation that was taken out of the trash by hand is no step any more; those before and after it are."""
    first, second, third = (world.talk(name, "q", "a") for name in ("first", "second", "third"))
    desk.trash(first)
    message = take_last(desk, world, second)
    desk.untrash(first)
    desk.trash(third)
    assert undo(desk) == third
    assert undo(desk) == message
    assert undo(desk) is None


@pytest.mark.parametrize("what", ["conversation", "messages"])
def test_what_is_gone_for_good_does_not_stand_in_the_way_of_undo(desk, world, what):
    """Erased here or by another program, it is passed over, and what went before it comes back."""
    first, second = world.talk("first", "q", "a"), world.talk("second", "q", "a")
    message = take_last(desk, world, first)
    take_last(desk, world, second)
    if what == "conversation":
        desk.trash(second)
        world.store.erase(second)
    else:
        world.store.bring_back(message)
        world.store.erase_taken()
    assert undo(desk) == message
    assert undo(desk) is None
