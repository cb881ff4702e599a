"""`bench save`: how long a token takes while records are written, against the same without, in turns.

Each segment is a turn of its own: a fresh prompt whose records are not saved yet, then an answer. In every second one the maximum wait
of a paused save is over with the first token, so all that is unsaved is written while the answer is drawn; in the others nothing is,
and it is saved behind the clock. What was written is the kernel's count for this process.
"""

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from localkv.commands.bench import Say, bed, bed_home
from localkv.messages import AnyReply, Delta
from localkv.runtime import Runtime
from localkv.tiers.transfer import Transfers

PROMPT_TOKENS = 512
ANSWER_TOKENS = 128
LEAST_TOKENS = 2000
SHORT = 64
"""An answer that ends before so many tokens says too little, and its segment is drawn again."""

NEVER_SECONDS = 1e6


@dataclass(slots=True)
class Segment:
    """One answer: when each piece of it came, and what had been written by then."""

    transfers: Transfers
    saving: bool
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Of bytes that the kernel had counted as written, at each of them."""

    def hear(self, reply: AnyReply) -> None:
        """Note a token; saves may begin with the first."""
        if not isinstance(reply, Delta):
            return
        self.counts.append(bed.disk_written_bytes())
        if not self.times and self.saving:
            self.transfers.limit_pause(0.0)
        self.times.append(time.perf_counter())

    @property
    def written(self) -> int:
        """Bytes from the first token to the last."""
        return self.counts[-1] - self.counts[0]

    @property
    def steps(self) -> list[float]:
        """Seconds per token."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


def measure(say: Say) -> dict[str, Any]:
    """The ratios are medians over pairs of neighbouring segments: whatever else the machine does falls on both."""
    with bed_home.scratch_home() as home, bed.open_runtime(home) as runtime:
        _segment(runtime, 0, saving=False)  # warms up
        pairs: list[tuple[Segment, Segment]] = []
        while sum(len(each.steps) for pair in pairs for each in pair) < LEAST_TOKENS:
            n = len(pairs)
            first = _segment(runtime, 2 * n + 1, saving=n % 2 == 0)
            second = _segment(runtime, 2 * n + 2, saving=n % 2 == 1)
            pairs.append((first, second) if first.saving else (second, first))
            say(_describe(pairs[-1]))
    return {
        "mean_ratio": statistics.median(statistics.mean(a.steps) / statistics.mean(b.steps) for a, b in pairs),
        "p95_ratio": statistics.median(_p95(a.steps) / _p95(b.steps) for a, b in pairs),
        "bytes_written_during_decode": sum(saving.written for saving, _ in pairs),
    }


def _segment(runtime: Runtime, seed: int, *, saving: bool) -> Segment:
    opened = runtime.opened
    assert opened is not None
    assert opened.keeper is not None
    transfers = opened.keeper.transfers
    while True:
        segment = Segment(transfers, saving)
        transfers.limit_pause(NEVER_SECONDS)
        prompt = bed.random_ids(PROMPT_TOKENS, seed)
        bed.turn(runtime, f"save {seed}", [prompt], None, ANSWER_TOKENS, segment.hear)
        runtime.flush(60.0)
        if len(segment.steps) >= SHORT:
            return segment
        seed += 1_000


def _describe(pair: tuple[Segment, Segment]) -> str:
    saving, quiet = pair
    ms, rest = 1000 * statistics.mean(saving.steps), 1000 * statistics.mean(quiet.steps)
    tail, rest_tail = 1000 * _p95(saving.steps), 1000 * _p95(quiet.steps)
    tokens = len(saving.steps) + len(quiet.steps)
    return f"{tokens} tokens: {ms:.1f} ms saving, {rest:.1f} without; p95 {tail:.1f} and {rest_tail:.1f}; {saving.written:,} bytes written"


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]
