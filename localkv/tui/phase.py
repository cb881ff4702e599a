"""The one line that says what the engine is doing for the open conversation, and the line above the conversation. Pure."""

from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from localkv.service.protocol import Started
from localkv.tui.glyphs import Glyphs
from localkv.tui.rows import Span
from localkv.tui.theme import Palette
from localkv.units import format_bytes, format_count, format_seconds

Doing = Literal["idle", "queued", "loading", "restoring", "prefill", "generating", "stopping", "saving", "off", "full"]

MIN_TITLE = 20
"""Cells of a title that facts beside it do not take away."""


FILLING, FULL = 0.85, 0.95
"""Shares of the context from which on it is said how full it is, and what can be done."""


@dataclass(frozen=True, slots=True)
class Phase:
    """How far something is. `done` and `total` are bytes while loading and restoring, else tokens; `total` 0: unknown."""

    doing: Doing = "idle"
    done: int = 0
    total: int = 0
    per_second: float = 0.0
    detail: str = ""


IDLE = Phase()


def fullness(used_tokens: int, context_tokens: int) -> Phase:
    """What is to be said of a context that will soon be full; IDLE as long as there is room."""
    if not context_tokens or used_tokens < FILLING * context_tokens:
        return IDLE
    left = max(0, context_tokens - used_tokens)
    said = f"context {100 * used_tokens // context_tokens} % full, {format_count(left)} tok left"
    if used_tokens < FULL * context_tokens:
        return Phase("full", detail=said)
    return Phase("full", detail=f"{said}: fork above or /new")


def foretold(started: Started) -> Phase:
    """What a turn is about to do, and how long that takes, before any of it is done."""
    planned, todo = started.planned, started.prompt_tokens - started.resume_at
    if started.restore_seconds > 0:
        origin = next((name for tier, name in _ORIGINS if getattr(planned, tier)), "the slot")
        return Phase(
            "restoring", detail=f"{format_count(planned.total)} tok from {origin}, ~{format_seconds(started.restore_seconds)}"
        )
    rate = todo / started.prefill_seconds if started.prefill_seconds > 0 else 0.0
    return Phase("prefill", 0, todo, rate)


_ORIGINS = (("ssd", "SSD"), ("ram", "RAM"), ("vram", "VRAM"))
"""The farthest first: it decides."""


def describe(phase: Phase) -> str:
    """`phase` in words and numbers; empty when nothing happens."""
    percent = f" {100 * phase.done // phase.total} %" if phase.total else ""
    detail = f" {phase.detail}" if phase.detail else ""
    match phase.doing:
        case "idle" | "off" | "full":
            return phase.detail
        case "loading":
            return f"{phase.detail or 'loading'}{percent}{_of_bytes(phase)}"
        case "restoring":
            return f"restoring{detail}{percent}{_of_bytes(phase)}"
        case "prefill":
            amount = f" {format_count(phase.done)}/{format_count(phase.total)}" if phase.total else ""
            return f"prefill{amount}{percent}{_rate(phase)}{_left(phase)}"
        case "generating":
            return f"generating {format_count(phase.done)} tok{_rate(phase)}"
        case _:
            return phase.doing + detail


def aside(phase: Phase, *, below: bool, stops: bool) -> str:
    """What stands at the right of `phase`, keys by their [id]: that there is text below, and what stops the answer, if it does."""
    said = ["more below: [latest]"] if below else []
    if stops and phase.doing in {"queued", "restoring", "prefill", "generating"}:
        said.append("[cancel] stops")
    return "  ".join(said)


def phase_line(phase: Phase, width: int, palette: Palette, *, unsaved: int = 0, beside: str = "") -> list[Span]:
    """The line above the composer: UNSAVED first, then the phase, `beside` at the right."""
    left: list[Span] = []
    if unsaved:
        left.append((f"UNSAVED {unsaved}  ", palette.error))
    style = {"idle": palette.muted, "saving": palette.muted, "off": palette.error, "full": palette.warning}.get(
        phase.doing, palette.accent
    )
    left.append((describe(phase), style))
    return spread(left, [(beside, palette.muted)], width)


def header_line(title: str, facts: list[str], width: int, palette: Palette, glyphs: Glyphs) -> list[Span]:
    """The conversation's title and, as far as there is room, facts at the right; the last fact is the most important."""
    shown = list(facts)
    wanted = min(cell_len(title), MIN_TITLE)
    while shown and cell_len("  ".join(shown)) + 2 + wanted > width:
        shown.pop(0)
    right = "  ".join(shown)
    room = max(4, width - cell_len(right) - 2)
    name = title if cell_len(title) <= room else set_cell_size(title, room - 1).rstrip() + glyphs.ellipsis
    return spread([(name, palette.heading)], [(right, palette.muted)], width)


def spread(left: list[Span], right: list[Span], width: int) -> list[Span]:
    """`left`, and `right` at the other end where there is room for both."""
    used = sum(cell_len(text) for text, _ in left)
    ends = sum(cell_len(text) for text, _ in right)
    if used + ends + 1 > width:
        return left
    return [*left, (" " * (width - used - ends), Style()), *right]


def _rate(phase: Phase) -> str:
    return f"  {phase.per_second:,.1f} tok/s" if phase.per_second else ""


def _left(phase: Phase) -> str:
    if not phase.per_second or phase.total <= phase.done:
        return ""
    return f"  ~{format_seconds(max(1.0, (phase.total - phase.done) / phase.per_second))} left"


def _of_bytes(phase: Phase) -> str:
    if not phase.total:
        return ""
    return f"  {format_bytes(phase.done)} of {format_bytes(phase.total)}"
