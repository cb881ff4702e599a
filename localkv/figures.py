"""Figures that the engine reports about itself, as frozen structs: what was moved, how long it took, what came of it;
and about one turn.

Only words and their meaning; they are counted in flows.py, tally.py and placement. Every figure counts from the start of the
engine, models that came and went included, unless it says otherwise. Pure.
"""

import msgspec


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How measurements lie: quantiles to within 5 %; all 0 as long as there are none."""

    count: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


class Restores(msgspec.Struct, frozen=True, kw_only=True):
    """Bringing conversations back."""

    tried: int = 0
    """Plans that set out to bring records into the slot."""
    failed: int = 0
    """Of these, those that a bad record or a lack of room broke off. The turn planned again each time."""
    n_bytes: int = 0
    """Brought by those that were carried out."""
    ms: Spread = Spread()
    """From the tokens being known to the slot being filled, of turns that restored something."""

    @property
    def failure_rate(self) -> float:
        return self.failed / self.tried if self.tried else 0.0


class Preloads(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were brought into RAM (or VRAM) before anybody asked for them. loaded == hits + wasted + still waiting."""

    loaded: int = 0
    loaded_bytes: int = 0
    hits: int = 0
    """Of these, used by a turn afterwards."""
    hit_bytes: int = 0
    wasted: int = 0
    """Of these, gone again without having been used."""
    wasted_bytes: int = 0
    cancelled: int = 0
    """Records that were on their way when something more urgent came."""

    @property
    def waiting(self) -> int:
        """Loaded and neither used nor gone yet."""
        return self.loaded - self.hits - self.wasted


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of record files written to the store, those of failed saves among them. The catalogue's own pages are not counted."""

    today_bytes: int = 0
    """Since midnight, local time, by all engines."""
    total_bytes: int = 0
    """Since the store was made, by all engines."""


class TierUse(msgspec.Struct, frozen=True, kw_only=True):
    """One tier: what it holds now, and what came and went."""

    used_bytes: int = 0
    limit_bytes: int = 0
    committed_bytes: int = 0
    """Memory that the tier has taken, whether it holds records or not; 0 where a tier takes only what it uses."""
    places: int = 0
    """How many records fit into what is taken, as it is divided now; 0 where a tier has no fixed places."""
    bound_bytes: int = 0
    """Of what is free in it, the part that one size class alone can use."""
    records: int = 0
    held: int = 0
    swaps_in: int = 0
    """Records that came into this tier from another one."""
    swaps_out: int = 0
    """Records that left it to make room."""
    bytes_in: int = 0
    bytes_out: int = 0
    ms_in: Spread = Spread()
    """For one record."""
    ms_out: Spread = Spread()

    @property
    def hole_bytes(self) -> int:
        """Taken from the system and free for the next record."""
        return max(0, self.committed_bytes - self.used_bytes)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the device that computes, as of the end of the last turn; all 0 on a CPU."""

    total_bytes: int = 0
    used_bytes: int = 0
    """By all programs."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by where they came from. slot + vram + ram + ssd + prefilled == prompt."""

    slot: int = 0
    vram: int = 0
    ram: int = 0
    ssd: int = 0

    @property
    def total(self) -> int:
        return self.slot + self.vram + self.ram + self.ssd


class Fallback(msgspec.Struct, frozen=True):
    """Tokens that a cache should have covered and that are computed again, and why (events.Reason)."""

    reason: str
    tokens: int


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, counted in the real forward."""

    prompt_tokens: int = 0
    restored: Source = Source()
    prefilled_tokens: int = 0
    """Computed after the question came."""
    typed_tokens: int = 0
    """Of `restored.slot`: computed before, while the question was typed."""
    generated_tokens: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    exact: bool = True
    inexact_because: str = ""
    restore_seconds: float = 0.0
    restored_bytes: int = 0
    prefill_seconds: float = 0.0
    predicted_restore_seconds: float = 0.0
    predicted_prefill_seconds: float = 0.0
    ttft_ms: float = 0.0
    """From the engine receiving Submit to the first token."""
    tokens_per_second: float = 0.0
    """Of decoding, the first token not counted."""
    thought_tokens: int = 0
    """Of the generated ones those before the answer itself, counted by the face as they came."""
    thought_seconds: float = 0.0
