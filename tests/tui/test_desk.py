"""What is open, without a screen."""

import pytest

from localkv.config import Config, ModelSection, SamplingSection
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


def test_trash_and_undo_in_order(desk, world):
    """Undo brings back the last one first, and then says that there is nothing."""
    first, second = world.talk("first", "q", "a"), world.talk("second", "q", "a")
    desk.trash(first)
    desk.trash(second)
    assert desk.undo().id == second
    assert desk.undo().id == first
    assert desk.undo() is None
