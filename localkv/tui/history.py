"""What the engine's figures were, since this face started: for sparklines and plots.

Knows no widgets and asks nobody: it is given each Snapshot that the face saw. Counters are continued over an engine that was
started again, so that they only rise. Invariants: memory is bounded, because the older half is thinned when there is too much,
and the first and the newest moment stay; times only rise, whatever the system's clock does. Thread: the UI's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from localkv.figures import Numbers
from localkv.messages import Snapshot

LIMIT = 600
"""Moments kept: ten minutes second by second; of a day, one in some minutes at its beginning."""

SPACING = 1.0
"""Seconds between two moments; what comes sooner replaces the one before."""

FLOW_BINS, FLOW_SECONDS = 16, 15.0
"""A sparkline is of the last four minutes, and changes every quarter of one."""

T = TypeVar("T")
PerTier = tuple[int, int, int]
"""Of VRAM, RAM, SSD."""

NOTHING: PerTier = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stood; counters are of what happened since the face started."""

    at: float
    used: PerTier = NOTHING
    """Bytes."""
    swaps_in: PerTier = NOTHING
    swaps_out: PerTier = NOTHING
    written: int = 0
    """Bytes of record files."""


@dataclass(frozen=True, slots=True)
class Turned:
    """One turn that was over; if several were between two looks, the last of them."""

    at: float
    tokens_per_second: float
    ttft_seconds: float
    restored_share: float
    """Of its prompt's tokens."""


@dataclass(frozen=True, slots=True)
class Flows:
    """Records moved in the last minutes, oldest first: for each tier what came and what went."""

    swaps_in: tuple[tuple[int, ...], ...] = ()
    swaps_out: tuple[tuple[int, ...], ...] = ()


class History:
    """Moments and turns, oldest first."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.turns: list[Turned] = []
        self.newest: Snapshot | None = None
        self._flows: tuple[tuple[int, int], Flows] = ((0, 0), Flows())
        self._changes = 0

    def note(self, snapshot: Snapshot | None, at: float) -> None:
        """The engine's state is this, as of `at`; one that was seen before is not noted again."""
        before = self.newest
        if snapshot is None or snapshot is before:
            return
        self.newest = snapshot
        self._changes += 1
        if self.moments:
            at = max(at, self.moments[-1].at)
        moment = _next(self.moments[-1] if self.moments else None, before, snapshot, at)
        if len(self.moments) > 1 and at - self.moments[-2].at < SPACING:
            self.moments[-1] = moment
        else:
            self.moments.append(moment)
        if turned := _turned(before, snapshot, at):
            self.turns.append(turned)
        self.moments, self.turns = thinned(self.moments), thinned(self.turns)

    def flows(self, now: float) -> Flows:
        """What moved in the last minutes; the same until something moves or the next quarter of a minute begins."""
        edge = int(now // FLOW_SECONDS) + 1
        key = (edge, self._changes)
        if key != self._flows[0]:
            self._flows = (key, _flows(self.moments, edge * FLOW_SECONDS))
        return self._flows[1]


def thinned(kept: list[T], limit: int = LIMIT) -> list[T]:
    """`kept` if it has at most `limit`, else without every other one of its older half; the first and last stay."""
    if len(kept) <= limit:
        return kept
    half = len(kept) // 2
    return thinned([*kept[:half:2], *kept[half:]], limit)


def rises(moments: Sequence[Moment], count: Callable[[Moment], int], start: float, end: float, bins: int) -> list[int]:
    """How much a counter rose in each of `bins` equal spans between two times; together never more than it rose in all."""
    found = [0] * bins
    before = count(moments[0]) if moments else 0
    for moment in moments:
        rise, before = count(moment) - before, count(moment)
        if rise and start < moment.at <= end:
            found[min(bins - 1, int((moment.at - start) * bins / (end - start)))] += rise
    return found


def levels(points: Sequence[tuple[float, float]], start: float, end: float, bins: int) -> list[float | None]:
    """What a value was in each of `bins` equal spans between two times; None before anything was seen.

    It is the mean of what was seen in that span, else what was seen last before it.
    """
    sums, counts = [0.0] * bins, [0] * bins
    last: float | None = None
    width = (end - start) / bins or 1.0
    for at, value in points:
        if at < start:
            last = value
        elif at <= end:
            index = min(bins - 1, int((at - start) / width))
            sums[index] += value
            counts[index] += 1
    ends = {min(bins - 1, int((at - start) / width)): value for at, value in points if start <= at <= end}
    found: list[float | None] = []
    for index in range(bins):
        found.append(sums[index] / counts[index] if counts[index] else last)
        last = ends.get(index, last)
    return found


def _flows(moments: Sequence[Moment], end: float) -> Flows:
    """All counters in one pass: asked for with every snapshot that is new, twice a second while an answer streams."""
    start = end - FLOW_BINS * FLOW_SECONDS
    first = next((index for index, moment in enumerate(moments) if moment.at > start), len(moments))
    bins = [[0] * FLOW_BINS for _ in range(6)]
    for one, two in pairwise(moments[max(0, first - 1) :]):
        if one.swaps_in == two.swaps_in and one.swaps_out == two.swaps_out:
            continue
        at = min(FLOW_BINS - 1, max(0, int((two.at - start) / FLOW_SECONDS)))
        for tier in range(3):
            bins[tier][at] += two.swaps_in[tier] - one.swaps_in[tier]
            bins[3 + tier][at] += two.swaps_out[tier] - one.swaps_out[tier]
    found = [tuple(each) for each in bins]
    return Flows(tuple(found[:3]), tuple(found[3:]))


def _next(last: Moment | None, before: Snapshot | None, now: Snapshot, at: float) -> Moment:
    """The moment after `last`, its counters risen by what happened between two snapshots."""
    tiers = (now.vram, now.ram, now.ssd)
    used = (now.vram.used_bytes, now.ram.used_bytes, now.ssd.used_bytes)
    if last is None or before is None:
        return Moment(at, used)
    again = before.epoch != now.epoch
    old = (before.vram, before.ram, before.ssd)
    came = [
        total + _rise(one.swaps_in, two.swaps_in, again) for total, one, two in zip(last.swaps_in, old, tiers, strict=True)
    ]
    went = [
        total + _rise(one.swaps_out, two.swaps_out, again) for total, one, two in zip(last.swaps_out, old, tiers, strict=True)
    ]
    written = last.written + _rise(before.written_bytes, now.written_bytes, again)
    return Moment(at, used, (came[0], came[1], came[2]), (went[0], went[1], went[2]), written)


def _rise(before: int, now: int, again: bool) -> int:
    """How much a counter rose; `again`, or where it fell, it began anew."""
    return now if again or now < before else now - before


def _turned(before: Snapshot | None, now: Snapshot, at: float) -> Turned | None:
    """The turn that `now` has and `before` had not; what was before the face came has no time and is none."""
    if before is None or not _rise(before.turns, now.turns, before.epoch != now.epoch):
        return None
    last = now.last
    return Turned(at, last.tokens_per_second, last.ttft_ms / 1000, restored_share(last))


def restored_share(numbers: Numbers) -> float:
    """Which part of a prompt was cached before its question was typed."""
    return (numbers.restored.total - numbers.typed_tokens) / numbers.prompt_tokens if numbers.prompt_tokens else 0.0
