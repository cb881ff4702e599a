"""How likely a record is to be wanted again: decayed counts of its uses, and which decay fits this person. Pure.

Each use counts 1 and fades with a half-life h, so that P(reuse) is proportional to the sum of 2 ** -((now - use) / h) over all
uses. A *warmth* is that sum as a point in time: the moment at which one single use would weigh as much,

    warmth = h * log2(sum of 2 ** (use / h))         P(reuse) ~ 2 ** ((warmth - now) / h)

It does not change while time passes, so records can be compared, sorted and stored by it. With a short half-life this is nearly
"least recently used", with a long one nearly "least often used". Neither is right for everybody: over 60 simulated days recency
alone waits up to 1.35 x as long where favourites exist, frequency alone 1.6 x as long where tasks end and are never opened
again. So both are kept, and a `Habit` follows the one that foretold better what was opened.

Times are seconds since the epoch, wall clock: what was used last week must still be comparable after a reboot.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

SITTING_SECONDS = 1800.0
"""Uses closer together than this are one: twenty messages in one evening do not make a favourite of twenty days."""

FAST_SHARE = 1 / 12
"""The short half-life, as a share of the long one."""

WORST_GUESS = -8.0
"""log2 of the least probability that a foretelling is charged for: a guess among 256. Unbounded, one surprise would decide."""

MEMORY = 100
"""Uses after which a good or bad foretelling weighs 1/e."""

Pace = Literal["fast", "slow"]


@dataclass(frozen=True, slots=True)
class Warmth:
    """The warmths of one record, for both half-lives, and when it was last used."""

    fast: float
    slow: float
    used: float

    def at(self, pace: Pace) -> float:
        return self.fast if pace == "fast" else self.slow


@dataclass(frozen=True, slots=True)
class HalfLives:
    """In seconds."""

    slow: float = 72 * 3600.0

    @property
    def fast(self) -> float:
        return self.slow * FAST_SHARE

    def at(self, pace: Pace) -> float:
        return self.fast if pace == "fast" else self.slow


def first_use(now: float) -> Warmth:
    """The warmth of what is used for the first time."""
    return Warmth(now, now, now)


def stored(slow: float, now: float) -> Warmth:
    """What is known of a record of an earlier life, of which only the slow warmth was stored."""
    return Warmth(min(slow, now), slow, min(slow, now))


def used_again(warmth: Warmth, now: float, half_lives: HalfLives) -> Warmth:
    """The warmth after another use."""
    if is_same_sitting(warmth, now):
        return Warmth(max(warmth.fast, now), max(warmth.slow, now), now)
    return Warmth(_add(warmth.fast, now, half_lives.fast), _add(warmth.slow, now, half_lives.slow), now)


def is_same_sitting(warmth: Warmth, now: float) -> bool:
    """Whether a use at `now` belongs to the last one. A clock that was set back makes no new sitting."""
    return now - warmth.used < SITTING_SECONDS


@dataclass(frozen=True, slots=True)
class Habit:
    """Which half-life foretells this person's choices better."""

    half_lives: HalfLives
    total: Warmth | None = None
    """The warmth of all uses together: what a probability is a share of."""
    lead: float = 0.0
    """By how many bits, fading, the slow one foretold better than the fast one."""

    @property
    def pace(self) -> Pace:
        return "fast" if self.lead < 0 else "slow"

    @property
    def half_life(self) -> float:
        return self.half_lives.at(self.pace)

    def after(self, before: Warmth | None, now: float) -> "Habit":
        """The habit after a conversation was used whose newest record had warmth `before` (None: a new conversation)."""
        if before is not None and is_same_sitting(before, now):
            return self
        lead = self.lead
        if before is not None and self.total is not None:
            bits = {pace: self._bits(before, self.total, pace) for pace in ("fast", "slow")}
            lead = lead * (1 - 1 / MEMORY) + bits["slow"] - bits["fast"]
        return replace(self, total=_together(self.total, now, self.half_lives), lead=lead)

    def _bits(self, one: Warmth, total: Warmth, pace: Literal["fast", "slow"]) -> float:
        """log2 of the probability that this one was foretold with."""
        return max(WORST_GUESS, (one.at(pace) - total.at(pace)) / self.half_lives.at(pace))


def _together(total: Warmth | None, now: float, half_lives: HalfLives) -> Warmth:
    if total is None:
        return first_use(now)
    return Warmth(_add(total.fast, now, half_lives.fast), _add(total.slow, now, half_lives.slow), now)


def _add(a: float, b: float, half_life: float) -> float:
    """log-sum-exp in units of time: the warmth of both together."""
    return max(a, b) + half_life * math.log2(1 + 2.0 ** (-abs(a - b) / half_life))
