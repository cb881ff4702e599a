"""What is told the first time: facts of this machine, budgets in force, models that fit."""

import pytest

from localkv.commands.introduction import STEPS, better_models, introduce
from localkv.commands.machine import Card, read_cards
from localkv.config import Config, MemorySection, ModelSection
from localkv.errors import ConfigError
from localkv.models.starter import BETTER_MODELS

GIB = 1 << 30


@pytest.mark.parametrize(
    ("gib", "names"),
    [(None, ["1.7B"]), (6, ["1.7B"]), (8, ["4B", "1.7B"]), (12, ["8B", "4B", "1.7B"]), (24, ["14B", "8B", "4B", "1.7B"])],
)
def test_models_that_fit(gib, names):
    """The best first; none that the card can't hold."""
    cards = () if gib is None else (Card("a card", gib * GIB - 300 * (1 << 20)),)
    found = better_models(cards)
    assert [name in line for (line, _), name in zip(found, names, strict=True)] == [True] * len(names)
    assert all(line.startswith("localkv models pull ") for line, _ in found)


def test_every_model_has_its_step():
    """A model that is added to the advice needs its memory here."""
    assert len(STEPS) == len(BETTER_MODELS)
    assert sorted(STEPS) == list(STEPS)


def test_cards_are_read_from_the_drivers_list():
    """Names with commas, several cards, and lines that are none."""
    assert read_cards("NVIDIA H200, 143771\nOdd, Ltd. X, 8192\nNo devices were found\n, \n") == (
        Card("NVIDIA H200", 143771 << 20),
        Card("Odd, Ltd. X", 8192 << 20),
    )


def test_this_machine(home):
    """Memory, card or none, the budgets of the settings; the demo is named only where it answers."""
    config = Config(memory=MemorySection(ram_pool="3 GiB"))
    told = introduce(config, home)
    assert [name for name, _ in told.machine] == ["memory", "card"]
    assert dict(told.budgets)["in RAM"].startswith("3.0 GiB")
    assert told.is_starter
    assert not introduce(Config(model=ModelSection(name="other")), home).is_starter


def test_budgets_that_are_none_are_refused(home):
    """A setting that cannot be used is said, not guessed."""
    with pytest.raises(ConfigError):
        introduce(Config(memory=MemorySection(ram_pool="lots")), home)
