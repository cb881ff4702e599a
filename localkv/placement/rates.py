"""How fast this machine reads, copies and computes, as moving averages; and what a restore will take by them. Pure.

Nothing here measures: the keeper feeds what its reads took, the runtime what copying and prefill took. Until the first
measurement of a kind a cautious guess stands in its place, and `measured` says so.
"""

from dataclasses import dataclass, replace

from localkv.kv.record import Head
from localkv.messages import Origin
from localkv.placement.plan import Chains, Ground, Plan

WEIGHT = 0.3
"""Of the newest measurement."""

LEAST_BYTES = 1 << 20
LEAST_TOKENS = 64
"""Smaller jobs measure their fixed costs and no rate."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes and tokens per second. The defaults are a laptop's: SATA-class SSD, one memory channel, a small GPU."""

    read: float = 0.5e9
    """From SSD into RAM, verified."""
    copy: float = 4e9
    """From RAM into the slot."""
    prefill: float = 500.0
    """Tokens."""
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

    def with_prefill(self, n_tokens: int, seconds: float) -> "Rates":
        """After `n_tokens` were computed in `seconds`."""
        if n_tokens < LEAST_TOKENS:
            return self
        mean = self._mean("prefill", self.prefill, n_tokens, seconds)
        return replace(self, prefill=mean, measured=self.measured | {"prefill"})

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
    prefill = rates.prefill
    return Forecast(from_ssd / rates.read, moved / rates.copy, rest_tokens / prefill, all_tokens / prefill, farthest)
