"""Running totals of an engine's life, and the numbers of one turn.

Torch-free. Thread: the engine's adds, any thread reads: each total is one attribute, and a reader may be a moment late.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from localkv.events import EventLog
from localkv.figures import Card, Fallback, Numbers, Restores, Source
from localkv.flows import Flow, Histogram, Traffic
from localkv.placement.plan import Piece, Plan
from localkv.placement.rates import Forecast, Rates


@dataclass(slots=True)
class Tally:
    """Totals since the engine started, and what is under way."""

    turns: int = 0
    prompt_tokens: int = 0
    restored_tokens: int = 0
    fallback_turns: int = 0
    fallback_tokens: Counter[str] = field(default_factory=Counter)
    fallback_prefills: Counter[str] = field(default_factory=Counter)
    """Turns by reason."""
    restores_tried: int = 0
    restores_failed: int = 0
    restored: Flow = field(default_factory=Flow)
    """What turns brought into the slot."""
    ttft_ms: Histogram = field(default_factory=Histogram)
    tokens_per_second: Histogram = field(default_factory=Histogram)
    seconds_saved: float = 0.0
    rates: Rates = field(default_factory=Rates)
    """Of these, prefill alone: what restored tokens would have taken."""
    last: Numbers = field(default_factory=Numbers)
    busy_conversation: str = ""
    typed_tokens: int = 0
    """Computed while messages were typed."""
    traffic: Traffic = field(default_factory=Traffic)
    """Of the tiers; added to by placement."""
    card: Card = field(default_factory=Card)
    """As of the end of the last turn: asked for on the engine's thread alone."""

    def add(self, numbers: Numbers) -> None:
        """Count a turn that is done."""
        self.turns += 1
        self.prompt_tokens += numbers.prompt_tokens
        cached = numbers.restored.total - numbers.typed_tokens
        self.restored_tokens += cached
        if numbers.fallbacks:
            self.fallback_turns += 1
        for fallback in numbers.fallbacks:
            self.fallback_tokens[fallback.reason] += fallback.tokens
        self.fallback_prefills.update({fallback.reason for fallback in numbers.fallbacks})
        self._add_times(numbers)
        self.rates = self.rates.with_prefill(numbers.prefilled_tokens, numbers.prefill_seconds)
        if "prefill" in self.rates.measured:
            self.seconds_saved += max(0.0, cached / self.rates.prefill - numbers.restore_seconds)
        self.last = numbers

    def _add_times(self, numbers: Numbers) -> None:
        if numbers.restored_bytes:
            self.restored.add(numbers.restored_bytes, numbers.restore_seconds)
        if numbers.ttft_ms:
            self.ttft_ms.add(numbers.ttft_ms)
        if numbers.tokens_per_second:
            self.tokens_per_second.add(numbers.tokens_per_second)

    def tried(self, *, failed: bool) -> None:
        """A plan that brings records into the slot was carried out, or broke off."""
        self.restores_tried += 1
        self.restores_failed += failed

    def restores(self) -> Restores:
        """Bringing back, in numbers."""
        return Restores(
            tried=self.restores_tried,
            failed=self.restores_failed,
            n_bytes=self.restored.n_bytes,
            ms=self.restored.ms.spread(),
        )


@dataclass(slots=True)
class Turn:
    """Measurements of the turn under way."""

    began: float = field(default_factory=time.monotonic)
    restore_began: float = 0.0
    forecast: Forecast = field(default_factory=Forecast)
    prompt_tokens: int = 0
    from_ssd: set[str] = field(default_factory=set)
    """Records that were on SSD alone when they were planned for."""
    restored: Source = field(default_factory=Source)
    restored_bytes: int = 0
    restore_seconds: float = 0.0
    prefill_seconds: float = 0.0
    prefilled_tokens: int = 0
    typed_tokens: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    exact: bool = True
    because: str = ""
    first_token: float = 0.0
    last_token: float = 0.0
    generated_tokens: int = 0

    def planning(self) -> None:
        """Tokens are known; from here on state is looked for."""
        self.restore_began = time.monotonic()

    def saw(self, plan: Plan) -> None:
        """A plan was made; if it fails, its records may lie in RAM when the next one is made, but they came from SSD."""
        self.from_ssd.update(piece.name for piece in plan.pieces if piece.tier == "ssd")

    def planned(self, plan: Plan, typed_tokens: int = 0) -> None:
        """Take over what the plan that was carried out says; so many of its tokens were read while they were typed."""
        self.typed_tokens = typed_tokens
        self.prompt_tokens = plan.prompt_tokens
        self.restored = sources(plan, self.from_ssd)
        self.restored_bytes = sum(piece.n_bytes for piece in plan.to_bring)
        self.restore_seconds = time.monotonic() - self.restore_began
        self.fallbacks = tuple(Fallback(reason, tokens) for reason, tokens in plan.lost)
        self.exact, self.because = plan.exact, plan.because

    @property
    def prefill_rate(self) -> float:
        """Tokens per second so far."""
        return self.prefilled_tokens / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    def prefilled(self, n_tokens: int) -> None:
        """So many tokens of the prompt have been computed by now."""
        self.prefilled_tokens = n_tokens
        self.prefill_seconds = time.monotonic() - self.restore_began - self.restore_seconds

    def squeezed(self, because: str) -> None:
        """Memory ran out on the way, and what helped may have changed bits; nothing if `because` is empty."""
        if because:
            self.exact, self.because = False, because

    def drew(self) -> None:
        """A token was drawn.

        The first draw needs the logits: only now a device that works behind the host's back has read the whole prompt.
        """
        self.last_token = time.monotonic()
        if not self.first_token:
            self.first_token = self.last_token
            self.prefill_seconds = self.first_token - self.restore_began - self.restore_seconds
        self.generated_tokens += 1

    def numbers(self) -> Numbers:
        """The turn in numbers."""
        decoding = self.last_token - self.first_token
        return Numbers(
            prompt_tokens=self.prompt_tokens,
            restored=self.restored,
            prefilled_tokens=self.prefilled_tokens,
            typed_tokens=self.typed_tokens,
            generated_tokens=self.generated_tokens,
            fallbacks=self.fallbacks,
            exact=self.exact,
            inexact_because=self.because,
            restore_seconds=round(self.restore_seconds, 6),
            restored_bytes=self.restored_bytes,
            prefill_seconds=round(self.prefill_seconds, 6),
            predicted_restore_seconds=round(self.forecast.restore_seconds, 6),
            predicted_prefill_seconds=round(self.forecast.prefill_seconds, 6),
            ttft_ms=round((self.first_token - self.began) * 1000, 3) if self.first_token else 0.0,
            tokens_per_second=round((self.generated_tokens - 1) / decoding, 3) if decoding > 0 else 0.0,
        )


def learned(rates: Rates, numbers: Numbers) -> Rates:
    """`rates` after a turn: what was computed counts, and what was copied if all of it came from RAM."""
    if not (numbers.restored.ssd or numbers.restored.vram):
        rates = rates.with_copy(numbers.restored_bytes, numbers.restore_seconds)
    return rates.with_prefill(numbers.prefilled_tokens, numbers.prefill_seconds, at_start=not numbers.restored.total)


def log_turn(events: EventLog, conversation: str, numbers: Numbers, ending: str) -> None:
    """One line for a turn that is over, and one for each reason why something was computed again."""
    for lost in numbers.fallbacks:
        events.emit("fallback", conversation=conversation, reason=lost.reason, tokens=lost.tokens)
    events.emit(
        "turn",
        conversation=conversation,
        prompt_tokens=numbers.prompt_tokens,
        restored_tokens=numbers.restored.total,
        typed_tokens=numbers.typed_tokens,
        prefilled_tokens=numbers.prefilled_tokens,
        generated_tokens=numbers.generated_tokens,
        exact=numbers.exact,
        ttft_ms=numbers.ttft_ms,
        ending=ending,
    )


def sources(plan: Plan, from_ssd: Collection[str] = ()) -> Source:
    """Restored tokens by tier; together they are `plan.resume_at`. Records in `from_ssd` came from there, wherever they are."""
    if plan.live:
        return Source(slot=plan.resume_at)
    tokens = Counter[str]()
    for piece in plan.pieces:
        came_with = _came_with(piece, plan.pieces)
        tokens["ssd" if came_with.name in from_ssd else came_with.tier] += piece.end - piece.start
    return Source(slot=tokens["slot"], vram=tokens["vram"], ram=tokens["ram"], ssd=tokens["ssd"])


def _came_with(piece: Piece, pieces: Iterable[Piece]) -> Piece:
    """The piece that `piece` came with: blocks without bytes come with the checkpoint that stands for them."""
    return piece if piece.tier != "none" else next((other for other in pieces if other.tier != "none"), piece)
