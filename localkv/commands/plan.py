"""`localkv plan`: what conversations of 4k to 128k tokens cost with a model on this machine, before they are begun.

The engine measures its rates and says what the model keeps per token; the rest is arithmetic, done here. Thread: main.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from localkv.commands import asking
from localkv.commands.output import print_json, print_lines, print_table
from localkv.commands.setup import Setup
from localkv.commands.talk import changed_model
from localkv.config import Config, ModelSection
from localkv.service.protocol import Estimate, Estimated
from localkv.units import format_bytes, format_count, format_seconds

LENGTHS = tuple(1024 * k for k in (4, 8, 16, 32, 64, 128))
ENGINE_SECONDS = 900.0
"""Loading and measuring a large model on a slow machine takes minutes; each sign of life starts this anew."""

AskEngine = Callable[[Setup, Config, ModelSection], Estimated]


@dataclass(frozen=True, slots=True)
class Cost:
    """One conversation of `tokens` tokens: bytes by kind, how many fit into each tier, and seconds to get it into the slot."""

    tokens: int
    full_bytes: int
    sliding_bytes: int
    state_bytes: int
    total_bytes: int
    fit_slot: int
    fit_ram: int
    fit_ssd: int
    from_ram_seconds: float | None
    from_ssd_seconds: float | None
    prefill_seconds: float
    prefill_extrapolated: bool
    """Longer than what was measured: the growth with the context is drawn on as a line."""


def run(setup: Setup, *, model: str | None, quant: str | None, as_json: bool, ask: AskEngine | None = None) -> None:
    """Print the table, or one JSON document. Raises LocalKVError."""
    config = setup.load()
    given = {name: value for name, value in (("name", model), ("quant", quant)) if value is not None}
    section = changed_model(config.model, given, "the command line")
    found = (ask or ask_engine)(setup, config, section)
    costs = [cost_of(found, n) for n in LENGTHS]
    print_json(as_document(found, costs)) if as_json else _print(found, costs)


def ask_engine(setup: Setup, config: Config, model: ModelSection) -> Estimated:
    """The engine's estimate for `model`. Raises LocalKVError if it cannot start, load the model, or answer."""
    return asking.ask_engine(setup, config, lambda n: Estimate(request=n, model=model), Estimated, ENGINE_SECONDS)


def cost_of(found: Estimated, tokens: int) -> Cost:
    """What one conversation of `tokens` tokens costs."""
    full = found.full_token_bytes * tokens
    sliding = sum(each.token_bytes * min(tokens, each.window - 1) for each in found.sliding)
    total = full + sliding + found.state_bytes
    n_records = (tokens // found.block_tokens if found.full_token_bytes else 0) + 1
    stored = total + n_records * found.record_overhead_bytes
    fits = total > 0 and tokens <= found.context_tokens
    from_ram = total / found.copy_rate if total and found.copy_rate else None
    # Reading and copying overlap: the slower of the two decides.
    from_ssd = max(total / found.read_rate, from_ram or 0.0) if total and found.read_rate else None
    return Cost(
        tokens,
        full,
        sliding,
        found.state_bytes,
        total,
        int(fits),
        found.ram_bytes // stored if fits else 0,
        found.ssd_bytes // stored if fits else 0,
        from_ram,
        from_ssd,
        tokens * found.token_seconds + tokens * tokens / 2 * found.deeper_seconds,
        tokens > max(found.measured_tokens, found.block_tokens),
    )


def as_document(found: Estimated, costs: list[Cost]) -> dict[str, Any]:
    """Everything, for `--json`."""
    return {
        "model": found.title,
        "device": found.device,
        "context_tokens": found.context_tokens,
        "bytes_per_token": {
            "full": found.full_token_bytes,
            "sliding": [{"window": each.window, "bytes": each.token_bytes} for each in found.sliding],
            "states": found.state_bytes,
        },
        "tier_bytes": {"vram": found.vram_bytes, "ram": found.ram_bytes, "ssd": found.ssd_bytes},
        "rates": {
            "ssd_read_bytes_per_second": found.read_rate,
            "ssd_read_from_disk": found.read_cold,
            "ram_to_slot_bytes_per_second": found.copy_rate,
            "prefill_tokens_per_second": 1 / found.token_seconds,
            "prefill_measured_to_tokens": found.measured_tokens,
        },
        "conversations": [asdict(cost) for cost in costs],
        "notes": list(found.notes),
    }


def _print(found: Estimated, costs: list[Cost]) -> None:
    print_lines(_head(found))
    header = ("tokens", "full", "sliding", "states", "total", "in RAM", "on SSD", "from RAM", "from SSD", "prefill")
    print_table([_row(found, cost) for cost in costs], header)
    print_lines(_foot(found, costs))


def _head(found: Estimated) -> list[str]:
    sliding = "".join(f", {format_bytes(each.token_bytes)} within {each.window:,}" for each in found.sliding)
    states = f", {format_bytes(found.state_bytes)} of states" if found.state_bytes else ""
    vram = f"the pool on the GPU holds {format_bytes(found.vram_bytes)}, " if found.vram_bytes else ""
    return [
        f"{found.title} on {found.device}, up to {format_count(found.context_tokens)} tokens",
        f"per token: {format_bytes(found.full_token_bytes)}{sliding}{states}",
        f"{vram}RAM holds {format_bytes(found.ram_bytes)}, SSD {format_bytes(found.ssd_bytes)}",
        "",
    ]


def _row(found: Estimated, cost: Cost) -> tuple[str, ...]:
    amounts = (cost.full_bytes, cost.sliding_bytes, cost.state_bytes, cost.total_bytes)
    too_long = cost.tokens > found.context_tokens
    return (
        format_count(cost.tokens),
        *(format_bytes(n) if n else "-" for n in amounts),
        *("too long" if too_long else format_count(n) for n in (cost.fit_ram, cost.fit_ssd)),
        *("-" if seconds is None else format_seconds(seconds) for seconds in (cost.from_ram_seconds, cost.from_ssd_seconds)),
        format_seconds(cost.prefill_seconds) + ("*" if cost.prefill_extrapolated else ""),
    )


def _foot(found: Estimated, costs: list[Cost]) -> list[str]:
    cold = "" if found.read_cold else " (from memory, not from the disk: this system offers no way to tell them apart)"
    into, ssd = (f"{format_bytes(rate)}/s" for rate in (found.copy_rate, found.read_rate))
    rates = (
        f"measured now: {into} into the slot, {ssd} from SSD{cold}, {1 / found.token_seconds:,.0f} tokens/s in the first block"
    )
    lines = ["", rates]
    if any(cost.prefill_extrapolated for cost in costs):
        measured = format_count(max(found.measured_tokens, found.block_tokens))
        lines.append(f"* drawn on from what was measured up to {measured} tokens")
    return [*lines, *found.notes]
