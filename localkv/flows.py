"""Counting what flows: how many, how many bytes, and how long each took, in fixed memory however long the engine lives.

Durations go into buckets whose edges grow by a constant factor, so a quantile is right to within half a bucket (4.5 %) for anything
between a microsecond and an hour, and nothing has to be sorted or sampled. Thread: one adds, any may read; a reader may be a moment
late.
"""

import math
from dataclasses import dataclass, field

from localkv.figures import Preloads, Spread

PER_OCTAVE = 8
"""Buckets between a value and its double: neighbours differ by 9 %."""

LEAST = 1e-3
"""The first bucket holds everything below; values are milliseconds or tokens per second."""

N_BUCKETS = 256
"""Up to 2 ** 32 times the least one; the last bucket holds everything above."""


@dataclass(slots=True)
class Histogram:
    """How many values fell where."""

    buckets: list[int] = field(default_factory=lambda: [0] * N_BUCKETS)

    def add(self, value: float) -> None:
        """Count `value`. What is below the least counts as 0."""
        self.buckets[_bucket(value)] += 1

    def quantile(self, share: float) -> float:
        """The value below which `share` of all lie; 0 if there are none."""
        return _quantile(self.buckets, share)

    def spread(self) -> Spread:
        """Count and quantiles."""
        buckets = list(self.buckets)
        p50, p90, p99 = (round(_quantile(buckets, share), 4) for share in (0.5, 0.9, 0.99))
        return Spread(count=sum(buckets), p50=p50, p90=p90, p99=p99)


@dataclass(slots=True)
class Flow:
    """What went one way."""

    count: int = 0
    n_bytes: int = 0
    ms: Histogram = field(default_factory=Histogram)

    def add(self, n_bytes: int, seconds: float) -> None:
        """One more: so many bytes, in so many seconds."""
        self.count += 1
        self.n_bytes += n_bytes
        self.ms.add(seconds * 1000)


@dataclass(slots=True)
class Traffic:
    """All that came into the tiers and left them, in the life of an engine: a model that is let go and loaded again counts on.

    One keeper at a time adds, on its control thread.
    """

    vram_in: Flow = field(default_factory=Flow)
    vram_out: Flow = field(default_factory=Flow)
    ram_in: Flow = field(default_factory=Flow)
    ram_out: Flow = field(default_factory=Flow)
    ssd_in: Flow = field(default_factory=Flow)
    ssd_out: Flow = field(default_factory=Flow)
    written_bytes: int = 0
    """Of record files, those of failed saves among them."""
    preloads: Preloads = field(default_factory=Preloads)


def _bucket(value: float) -> int:
    if value < LEAST:
        return 0
    return min(N_BUCKETS - 1, 1 + int(PER_OCTAVE * math.log2(value / LEAST)))


def _quantile(buckets: list[int], share: float) -> float:
    """The middle (geometric) of the bucket that holds the value of that rank."""
    rank = max(1, math.ceil(share * sum(buckets)))
    for bucket, n in enumerate(buckets):
        rank -= n
        if n and rank <= 0:
            return 0.0 if bucket == 0 else LEAST * 2 ** ((bucket - 0.5) / PER_OCTAVE)
    return 0.0
