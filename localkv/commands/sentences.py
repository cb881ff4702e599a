"""What the plain faces say about a turn: progress, where its tokens came from, what went wrong. Pure."""

from localkv.service.protocol import Numbers, Progress, Source, Started
from localkv.units import format_bytes, format_count, format_seconds

_PLACES = (("slot", "still in place"), ("vram", "from GPU memory"), ("ram", "from RAM"), ("ssd", "from SSD"))

_REASONS = {
    "never_cached": "they were not cached yet",
    "evicted": "their cache had made room for others",
    "budget": "the cache's budget was used up",
    "missing_file": "a cache file is gone",
    "checksum": "a cache file is damaged",
    "short_read": "a cache file is cut short",
    "read_error": "a cache file cannot be read",
    "identity_changed": "the model has changed",
    "fingerprint_changed": "libraries, device or settings have changed",
    "template_diverged": "the chat template renders older messages differently now",
    "edited": "the conversation was edited",
    "no_room": "there was no room to bring them back",
    "kind_boundary": "this model can resume only at its checkpoints",
    "uncached_kind": "this kind of model is not cached",
    "cancelled": "the turn before was stopped",
    "engine_restarted": "the engine was restarted",
    "chosen_recompute": "computing them was faster",
}


def plan_line(started: Started) -> str:
    """What a turn is about to do and how long that takes, as it foretells it."""
    parts = []
    if started.planned.total:
        time = f", about {format_seconds(started.restore_seconds)}" if started.restore_seconds else ""
        parts.append(f"to restore: {_from_where(started.planned)}{time}")
    if todo := started.prompt_tokens - started.resume_at:
        time = f", about {format_seconds(started.prefill_seconds)}" if started.prefill_seconds else ""
        parts.append(f"to compute: {_tokens(todo)}{time}")
    return "; ".join(parts)


def progress_line(progress: Progress) -> str:
    """How far something is, in one line."""
    share = f" {progress.done / progress.total:.0%}" if progress.total else ""
    detail = f" {progress.detail}" if progress.detail else ""
    match progress.phase:
        case "queued":
            return f"waiting for {format_count(progress.total)} earlier request{'s' if progress.total != 1 else ''}"
        case "prefill":
            rate = f", {progress.per_second:,.0f} tokens/s" if progress.per_second else ""
            return f"reading{detail}{share} of {format_count(progress.total)} tokens{rate}"
        case "loading":
            return f"{progress.detail or 'loading'}{share}{_amount(progress)}"
        case _:
            return f"{progress.phase}{detail}{share}{_amount(progress)}"


def _amount(progress: Progress) -> str:
    return f" of {format_bytes(progress.total)}" if progress.total > 1000 else ""


def cache_lines(numbers: Numbers) -> list[str]:
    """Where the prompt's tokens came from, what was computed again and why, and whether the answer is exact."""
    lines = [f"{_restored(numbers)}computed {format_count(numbers.prefilled_tokens)}"]
    for fallback in numbers.fallbacks:
        why = _REASONS.get(fallback.reason, fallback.reason)
        lines.append(f"computed again: {_tokens(fallback.tokens)}, because {why} ({fallback.reason})")
    if not numbers.exact:
        because = numbers.inexact_because
        lines.append("not exact" + (f": {_REASONS.get(because, because)}" if because else ""))
    return lines


def speed_line(numbers: Numbers) -> str:
    """How long the first token took and how fast the rest came."""
    first = f"first token after {format_seconds(numbers.ttft_ms / 1000)}"
    rate = f", {numbers.tokens_per_second:.1f} tokens/s" if numbers.tokens_per_second else ""
    return f"{first}{rate}, {_tokens(numbers.generated_tokens)}"


def _restored(numbers: Numbers) -> str:
    if not numbers.restored.total:
        return ""
    time = f" in {format_seconds(numbers.restore_seconds)}" if numbers.restore_seconds else ""
    if time and numbers.predicted_restore_seconds:
        time += f" (foretold: {format_seconds(numbers.predicted_restore_seconds)})"
    typed = f", of which {_tokens(numbers.typed_tokens)} were read while they were typed" if numbers.typed_tokens else ""
    return f"restored {_from_where(numbers.restored)}{typed}{time}, "


def _from_where(source: Source) -> str:
    parts = [f"{_tokens(getattr(source, tier))} {place}" for tier, place in _PLACES if getattr(source, tier)]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _tokens(n: int) -> str:
    return f"{format_count(n)} token" if n == 1 else f"{format_count(n)} tokens"
