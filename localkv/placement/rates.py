"""How fast this machine reads, copies and computes, as moving averages; and what a restore will take by them. Pure.

Nothing here measures: the keeper feeds what its reads took, the runtime what copying and prefill took. Until the first
measurement of a kind a cautious guess stands in its place, and `measured` says so.

Tokens are computed in forwards of at most `chunk`. Each takes a time of its own, which decides for a short question (the starter
model on one core: 66 ms for one token, 112 for 37, 160 for 113, 265 for 256), so it is known apart from that for each token:
short prefills measure the one, long ones the other.
"""

import math
from dataclasses import dataclass, replace

from localkv.kv.record import Head
from localkv.messages import Origin
from localkv.placement.plan import Chains, Ground, Plan

WEIGHT = 0.3
"""Of the newest measurement."""

LEAST_BYTES = 1 << 20
LEAST_TOKENS = 64
"""Smaller jobs measure their fixed costs and no rate."""

LEAST_SHARE = 0.25
"""Of the time of a prefill, at least so much is put down to its tokens."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes and tokens per second. The defaults are a laptop's: SATA-class SSD, one memory channel, a small GPU."""

    read: float = 0.5e9
    """From SSD into RAM, verified."""
    copy: float = 4e9
    """From RAM into the slot."""
    prefill: float = 500.0
    """Tokens, beside what each forward takes."""
    forward: float = 0.0
    """Seconds that a forward takes beside its tokens."""
    chunk: int = 256
    """Tokens of a forward, at most."""
    first: int = 0
    """The same for the first forward of a conversation, if it may have more."""
    measured: frozenset[str] = frozenset()
    """Which of them are measurements."""

    def with_read(self, n_bytes: int, seconds: float) -> "Rates":
        """After `n_bytes` came from SSD in `seconds`."""
        if n_bytes < LEAST_BYTES:
            return self
        mean = self._mean("read", self.read, n_bytes, seconds)
        return replace(self, read=mean, measured=self.measured | {"read"})

    def with_copy(self, n_bytes: int, seconds: float) -> "Rates":
        """After `n_bytes` went from RAM into the slot in `seconds`."""
        if n_bytes < LEAST_BYTES:
            return self
        mean = self._mean("copy", self.copy, n_bytes, seconds)
        return replace(self, copy=mean, measured=self.measured | {"copy"})

    def with_prefill(self, n_tokens: int, seconds: float, *, at_start: bool = False) -> "Rates":
        """After `n_tokens` were computed in `seconds`; `at_start`: the first ones of a conversation."""
        forwards = self._forwards(n_tokens, at_start=at_start)
        if n_tokens >= LEAST_TOKENS:
            beside = seconds - forwards * self.forward
            mean = self._mean("prefill", self.prefill, n_tokens, max(beside, LEAST_SHARE * seconds))
            return replace(self, prefill=mean, measured=self.measured | {"prefill"})
        if not n_tokens or "prefill" not in self.measured:
            return self
        each = max(0.0, seconds - n_tokens / self.prefill) / forwards
        mean = WEIGHT * each + (1 - WEIGHT) * self.forward if "forward" in self.measured else each
        return replace(self, forward=mean, measured=self.measured | {"forward"})

    def computing(self, n_tokens: int, *, at_start: bool = False) -> float:
        """Seconds for so many tokens; `at_start`: the first ones of a conversation."""
        return n_tokens / self.prefill + self._forwards(n_tokens, at_start=at_start) * self.forward

    def _forwards(self, n_tokens: int, *, at_start: bool) -> int:
        if at_start and self.first and n_tokens:
            return 1 + math.ceil(max(0, n_tokens - self.first) / self.chunk)
        return math.ceil(n_tokens / self.chunk)

    def _mean(self, name: str, old: float, amount: int, seconds: float) -> float:
        rate = amount / max(seconds, 1e-9)
        return WEIGHT * rate + (1 - WEIGHT) * old if name in self.measured else rate


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a turn's beginning will take, in seconds."""

    read_seconds: float = 0.0
    copy_seconds: float = 0.0
    prefill_seconds: float = 0.0
    from_scratch_seconds: float = 0.0
    """What computing everything would take instead."""
    farthest: Origin = "slot"
    """The farthest tier that something must come from; "none": what there was must be computed again."""

    @property
    def restore_seconds(self) -> float:
        """Reading and copying overlap: the slower of the two decides."""
        return max(self.read_seconds, self.copy_seconds)

    @property
    def total_seconds(self) -> float:
        return self.restore_seconds + self.prefill_seconds


def predict(plan: Plan, rates: Rates) -> Forecast:
    """What carrying out `plan` and computing the rest of the prompt will take."""
    from_ssd = sum(piece.n_bytes for piece in plan.pieces if piece.tier == "ssd")
    in_vram = any(piece.tier == "vram" for piece in plan.pieces)
    moved = sum(piece.n_bytes for piece in plan.to_bring if piece.tier != "vram")
    farthest = _farthest(from_ssd, moved, in_vram=in_vram)
    return _forecast(from_ssd, moved, plan.prompt_tokens - plan.resume_at, plan.prompt_tokens, rates, farthest)


def predict_resume(head: Head, chains: Chains, ground: Ground, rates: Rates) -> Forecast:
    """What coming back to the conversation that ends in `head` will take, before its next message is known.

    A chain with a hole counts as lost: what lies before the hole can't be told from here.
    """
    from_ssd = moved = in_vram = 0
    name, size = head.name, ground.layout.block_tokens
    edge = head.tokens
    while edge > 0:
        record = chains.get(name)
        if record is None or head.identity != ground.identity:
            return _forecast(0, 0, head.tokens, head.tokens, rates, "none")
        from_ssd += record.n_bytes if record.tier == "ssd" else 0
        moved += record.n_bytes if record.tier != "vram" else 0
        in_vram += record.n_bytes if record.tier == "vram" else 0
        edge = edge - edge % size if record.kind == "checkpoint" else edge - size
        edge, name = (edge if ground.layout.block_bytes else 0), record.parent
    return _forecast(from_ssd, moved, 0, head.tokens, rates, _farthest(from_ssd, moved, in_vram=in_vram > 0))


def _farthest(from_ssd: int, moved: int, *, in_vram: bool) -> Origin:
    return "ssd" if from_ssd else "ram" if moved else "vram" if in_vram else "slot"


def _forecast(from_ssd: int, moved: int, rest_tokens: int, all_tokens: int, rates: Rates, farthest: Origin) -> Forecast:
    rest = rates.computing(rest_tokens, at_start=rest_tokens == all_tokens)
    everything = rates.computing(all_tokens, at_start=True)
    return Forecast(from_ssd / rates.read, moved / rates.copy, rest, everything, farthest)


def rates_at_first(token_seconds: float, forward_seconds: float, chunk: int, first: int = 0) -> Rates:
    """Before any turn, from what a model was measured to take."""
    if token_seconds <= 0:
        return Rates(chunk=chunk, first=first)
    measured = frozenset(("prefill", "forward"))
    return Rates(prefill=1 / token_seconds, forward=forward_seconds, chunk=chunk, first=first, measured=measured)
