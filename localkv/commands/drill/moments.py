"""When to kill whom: the plan of a rehearsal, drawn from a seed.

Pure. Every moment gets its even share of the kills, in a random order, so that none of them depends on luck. Invariant: of seven kills or
more each moment has at least 5 %.
"""

import random
from dataclasses import dataclass
from typing import Literal, get_args

Moment = Literal["start", "prefill", "answer", "save", "evict", "migration", "exit"]
Victim = Literal["engine", "face"]

MOMENTS: tuple[Moment, ...] = get_args(Moment)

VICTIMS: dict[Moment, tuple[Victim, ...]] = {
    "start": ("engine", "face"),
    "prefill": ("engine", "face"),
    "answer": ("engine", "face"),
    "save": ("engine", "engine", "face"),
    "evict": ("engine", "engine", "face"),
    "migration": ("face",),
    "exit": ("engine", "face"),
}
"""Whose end can hurt in a moment. Records are saved and evicted by the engine alone; the face owns the conversations."""


@dataclass(frozen=True, slots=True)
class Stroke:
    """One kill: in which moment, of whom, and how far into the moment (0 to 1)."""

    moment: Moment
    victim: Victim
    when: float


def plan(kills: int, seed: int) -> tuple[Stroke, ...]:
    """`kills` strokes, the same ones for the same seed."""
    rng = random.Random(seed)
    even, rest = divmod(kills, len(MOMENTS))
    moments = [*MOMENTS * even, *rng.sample(MOMENTS, rest)]
    rng.shuffle(moments)
    return tuple(Stroke(moment, rng.choice(VICTIMS[moment]), rng.random()) for moment in moments)
