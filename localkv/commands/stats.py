"""`localkv stats`: what a running engine holds and has saved. Never starts one."""

import msgspec

from localkv.commands.output import print_json, print_lines, print_sections
from localkv.commands.setup import Setup
from localkv.service.answers import answer_to, running_engine
from localkv.service.protocol import Look, Preloads, Restores, Snapshot, Spread, TierUse
from localkv.units import format_bytes, format_count, format_seconds

ANSWER_SECONDS = 10.0

Section = dict[str, str | int | float | bool | None]


def run(setup: Setup, *, as_json: bool) -> None:
    """Print the engine's state; that none runs is an answer, too. Raises EngineError if one runs and does not answer."""
    snapshot = look(setup)
    if as_json:
        print_json({"engine": None if snapshot is None else _document(snapshot)})
    elif snapshot is None:
        print_lines(["No engine is running; `localkv chat` starts one."])
    else:
        print_sections(sections(snapshot))
        print_lines(["recent", *(f"  {line}" for line in snapshot.recent)] if snapshot.recent else [])


def look(setup: Setup) -> Snapshot | None:
    """The running engine's state; None if none runs."""
    with running_engine(setup.home, setup.load()) as client:
        if client is None:
            return None
        return answer_to(client, Look(request=client.next_request()), Snapshot, ANSWER_SECONDS)


def sections(snapshot: Snapshot) -> dict[str, Section]:
    """The state in the order in which people ask for it."""
    return {
        "engine": {
            "model": snapshot.model or None,
            "device": snapshot.device,
            "weights": format_bytes(snapshot.weights_bytes),
            "device memory": _card(snapshot),
            "slot": f"{format_bytes(snapshot.slot_bytes)}, {format_count(snapshot.slot_tokens)} of {format_count(snapshot.context_tokens)} tokens",
            "unsaved records": snapshot.unsaved_records,
            "records kept resident": snapshot.kept_records,
        },
        "tiers": {name: _tier(use) for name, use in (("vram", snapshot.vram), ("ram", snapshot.ram), ("ssd", snapshot.ssd))},
        "since it started": {
            "turns": snapshot.turns,
            "prompt tokens": snapshot.prompt_tokens,
            "of these restored": _share(snapshot.restored_tokens, snapshot.prompt_tokens),
            "time saved": format_seconds(snapshot.seconds_saved),
            "first token": _spread(snapshot.ttft_ms, "ms"),
            "tokens per second": _spread(snapshot.tokens_per_second),
            "restores": _restores(snapshot.restores),
            "preloads": _preloads(snapshot.preloads),
            "turns with fallback": snapshot.fallback_turns,
        },
        "written to SSD": {
            "since it started": format_bytes(snapshot.written_bytes),
            "today": format_bytes(snapshot.written.today_bytes),
            "in total": format_bytes(snapshot.written.total_bytes),
        },
        "computed again": {
            reason: f"{format_count(tokens)} tokens in {format_count(snapshot.fallback_prefills.get(reason, 0))} turns"
            for reason, tokens in snapshot.fallback_tokens.items()
        } or {"none": None},
    }  # fmt: skip


def _card(snapshot: Snapshot) -> str | None:
    card = snapshot.card
    return f"{format_bytes(card.used_bytes)} of {format_bytes(card.total_bytes)}, all programs" if card.total_bytes else None


def _share(part: int, whole: int) -> str:
    return f"{format_count(part)} ({part / whole:.0%})" if whole else format_count(part)


def _spread(spread: Spread, unit: str = "") -> str:
    if not spread.count:
        return "nothing measured yet"
    middle, most, nearly_all = (f"{value:.3g}" for value in (spread.p50, spread.p90, spread.p99))
    return f"{middle} {unit}".rstrip() + f" (p90 {most}, p99 {nearly_all})"


def _restores(restores: Restores) -> str:
    if not restores.tried:
        return "none"
    failed = f", {format_count(restores.failed)} broken off ({restores.failure_rate:.0%})" if restores.failed else ""
    return f"{format_count(restores.tried)}{failed}, {format_bytes(restores.n_bytes)}, {_spread(restores.ms, 'ms')}"


def _preloads(preloads: Preloads) -> str:
    if not preloads.loaded:
        return "none"
    wasted = f"{format_count(preloads.wasted)} for nothing ({format_bytes(preloads.wasted_bytes)})"
    return f"{format_count(preloads.loaded)} records, {format_count(preloads.hits)} used, {wasted}, {format_count(preloads.cancelled)} cancelled"


def _tier(use: TierUse) -> str:
    if not use.limit_bytes and not use.used_bytes:
        return "not used"
    return (
        f"{format_bytes(use.used_bytes)} of {format_bytes(use.limit_bytes)}, {format_count(use.records)} records "
        f"({use.held} held){_holes(use)}{_moved('in', use.swaps_in, use.bytes_in, use.ms_in)}"
        f"{_moved('out', use.swaps_out, use.bytes_out, use.ms_out)}"
    )


def _holes(use: TierUse) -> str:
    """How the memory of a tier with fixed places is divided."""
    if not use.places:
        return f", {format_bytes(use.hole_bytes)} of holes" if use.hole_bytes else ""
    bound = f", of them {format_bytes(use.bound_bytes)} for one size alone" if use.bound_bytes else ""
    return f", {format_count(use.places)} places, {format_bytes(use.hole_bytes)} of holes{bound}"


def _moved(way: str, count: int, n_bytes: int, ms: Spread) -> str:
    if not count:
        return f"; {way} 0"
    return f"; {way} {format_count(count)}, {format_bytes(n_bytes)}, {_spread(ms, 'ms')}"


def _document(snapshot: Snapshot) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(snapshot)
    for key in ("request", "type"):
        document.pop(key, None)
    return document
