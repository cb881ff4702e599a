"""What a person is told who opens localkv for the first time: this machine, what the tiers may take, which models fit.

Torch-free; reads what `doctor` reads, and changes nothing; imports that only when asked, so that the first frame does not wait
for it. Thread: any; `find_cards` may take a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localkv.config import Config
from localkv.paths import Home
from localkv.units import format_bytes

if TYPE_CHECKING:
    from localkv.commands.machine import Card

STEPS = (0, 7 << 30, 11 << 30, 22 << 30)
"""From how much memory of a card on each of BETTER_MODELS fits; cards have a little less than their name says."""

DEMO = "The starter model is a small demo that fits any machine; its answers are often wrong."


@dataclass(frozen=True, slots=True)
class Introduction:
    """Names and what they stand for, and models with the line that fetches them."""

    machine: tuple[tuple[str, str], ...]
    budgets: tuple[tuple[str, str], ...]
    is_starter: bool
    """The starter model answers."""
    models: tuple[tuple[str, str], ...]
    """The best that fits this machine first: the line that fetches it, and for which machine it is."""


def introduce(config: Config, home: Home) -> Introduction:
    """The introduction for this machine. Raises ConfigError for budgets that are none."""
    import psutil

    from localkv.commands.machine import budget_section, classify, find_cards, find_facts, usable_cpus

    facts = find_facts()
    cards = find_cards(facts)
    total = psutil.virtual_memory().total
    machine = (
        ("memory", f"{format_bytes(total)}, {usable_cpus()} threads"),
        ("card", ", ".join(f"{card.name}, {format_bytes(card.memory)}" for card in cards) or _no_card(classify(facts))),
    )
    budgets = budget_section(config.memory, home)
    names = {"ram_pool": "in RAM", "ssd_store": "on SSD", "ssd_free_floor": "SSD left free", "vram_margin": "card left free"}
    shown = tuple((name, str(budgets[key])) for key, name in names.items() if cards or key != "vram_margin")
    return Introduction(machine, shown, config.model.name == "starter", better_models(cards))


def better_models(cards: Sequence["Card"]) -> tuple[tuple[str, str], ...]:
    """The models that fit, the best first, with the line that fetches each."""
    from localkv.models.starter import BETTER_MODELS

    memory = max((card.memory for card in cards), default=0)
    fitting = [row for row, least in zip(BETTER_MODELS, STEPS, strict=True) if memory >= least]
    return tuple((f"localkv models pull {name}", f"{for_whom}, {remark}") for for_whom, name, remark in reversed(fitting))


def _no_card(kind: str) -> str:
    return (
        "an NVIDIA card that does not answer; `localkv doctor` says more" if kind == "linux-cuda" else "none that is supported"
    )
