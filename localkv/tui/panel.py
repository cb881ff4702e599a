"""The cache panel: what each tier holds, where this conversation is, what the last turn took, what moved and why.

Pure functions from the engine's Snapshot, a turn's Numbers and what moved lately to rows, what matters first at the top;
one small widget shows and scrolls them. Every bar has its numbers beside it, so that nothing hangs on colour.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import set_cell_size
from rich.style import Style

from localkv.service.client import Resume
from localkv.service.protocol import Numbers, Snapshot, TierUse
from localkv.tui.clean import one_line
from localkv.tui.glyphs import Glyphs
from localkv.tui.history import FLOW_BINS, FLOW_SECONDS, Flows
from localkv.tui.phase import spread
from localkv.tui.plot import sparkline
from localkv.tui.rows import BLANK, Row, Span, row, spans_of, wrap
from localkv.tui.theme import Palette
from localkv.units import format_bytes, format_count, format_seconds

MAX_EVENTS = 12


@dataclass(frozen=True, slots=True)
class View:
    """What the panel is made from. `numbers` are of the newest answer on screen."""

    snapshot: Snapshot | None = None
    numbers: Numbers | None = None
    resume: Resume | None = None
    """How far away the open conversation is, if the engine said so."""
    token_bytes: int = 0
    """Of one token in the cache; 0 if the open conversation's model is not loaded or runs without one."""
    flows: Flows = field(default_factory=Flows)


@dataclass(frozen=True, slots=True)
class Brush:
    """What drawing needs."""

    palette: Palette
    glyphs: Glyphs
    width: int

    def title(self, text: str) -> list[Row]:
        """A heading with a blank row before it."""
        return [BLANK, row([(text, self.palette.muted + Style(bold=True))])]

    def pair(self, name: str, value: str, style: Style | None = None) -> list[Row]:
        """A name, and at the right its value; the value on rows of its own where there is no room."""
        room = self.width - len(name) - 1
        if len(value) <= room:
            return [row([(name, self.palette.muted), (value.rjust(room + 1), style or self.palette.text)])]
        rows = wrap([(value, style or self.palette.text)], self.width - 2)
        return [row([(name, self.palette.muted)]), *(row([("  ", self.palette.text), *spans_of(inner)]) for inner in rows)]

    def bar(self, name: str, use: TierUse, style: Style) -> Row:
        """A tier: its name, a bar, used and limit."""
        numbers = f"{_short(use.used_bytes)}/{_short(use.limit_bytes)}"
        return row(
            [
                (f"{name:<5}", self.palette.text),
                *self.gauge(use, self.width - 6 - 12, style),
                (numbers.rjust(13), self.palette.text),
            ]
        )

    def gauge(self, use: TierUse, cells: int, style: Style) -> list[Span]:
        """How full a tier is, as `cells` characters."""
        cells = max(3, cells)
        share = min(1.0, use.used_bytes / use.limit_bytes) if use.limit_bytes else 0.0
        full = round(share * cells) or (1 if use.used_bytes else 0)
        return [(self.glyphs.bar_full * full, style), (self.glyphs.bar_empty * (cells - full), self.palette.rule)]


def panel_rows(view: View, brush: Brush) -> list[Row]:
    """The whole panel."""
    rows = [row([("Cache", brush.palette.heading)])]
    if view.snapshot is None:
        rows += wrap([("The engine is not there yet.", brush.palette.muted)], brush.width)
    else:
        rows += _tiers(view.snapshot, brush)
    if view.numbers is not None:
        rows += [*_conversation(view, view.numbers, brush), *_turn(view.numbers, brush)]
    if view.snapshot is not None:
        rows += [
            *_swaps(view.snapshot, view.flows, brush),
            *_totals(view.snapshot, brush),
            *_events(view.snapshot.recent, brush),
        ]
    return rows


def tier_line(view: View, brush: Brush) -> list[Span]:
    """All tiers in one row, and the speed of the last turn, for screens without room for the panel."""
    if view.snapshot is None:
        return [("cache: the engine is not there yet", brush.palette.muted)]
    spans: list[Span] = []
    cells = 6 if brush.width < 90 else 10
    for name, use, style in _uses(view.snapshot, brush.palette):
        spans += [(f"{'  ' if spans else ''}{name[0]} ", brush.palette.text), *brush.gauge(use, cells, style)]
        spans.append((f" {_short(use.used_bytes)}/{_short(use.limit_bytes)}", brush.palette.text))
    if view.numbers is None:
        return spans
    speed = f"first {view.numbers.ttft_ms / 1000:.2f} s  {view.numbers.tokens_per_second:.1f} tok/s"
    return spread(spans, [(speed, brush.palette.muted)], brush.width)


def footnote(numbers: Numbers) -> str:
    """One answer's numbers, for the row beneath it."""
    parts = [
        f"{format_count(numbers.generated_tokens)} tok",
        f"{numbers.tokens_per_second:.1f} tok/s",
        f"first {format_seconds(numbers.ttft_ms / 1000)}",
        f"restored {format_count(numbers.restored.total)}, computed {format_count(numbers.prefilled_tokens)}",
    ]
    if numbers.typed_tokens:
        parts.append(f"{format_count(numbers.typed_tokens)} read while typed")
    if not numbers.exact:
        parts.append("not exact: " + (numbers.inexact_because or "unknown"))
    return "  ".join(parts)


def _uses(snapshot: Snapshot, palette: Palette) -> list[tuple[str, TierUse, Style]]:
    tiers = [("RAM", snapshot.ram, palette.ram), ("SSD", snapshot.ssd, palette.ssd)]
    if snapshot.vram.limit_bytes:
        tiers.insert(0, ("VRAM", snapshot.vram, palette.vram))
    return tiers


def _tiers(snapshot: Snapshot, brush: Brush) -> list[Row]:
    """Bars: of the card and what takes its memory, where that is known, else of its pool; of RAM and SSD."""
    card = snapshot.card
    rows = _card(snapshot, brush) if card.total_bytes else []
    bars = _uses(snapshot, brush.palette)
    rows += [brush.bar(name, use, style) for name, use, style in bars if name != "VRAM" or not rows]
    if snapshot.context_tokens:
        context = f"{format_count(snapshot.slot_tokens)}/{format_count(snapshot.context_tokens)}"
        rows += brush.pair("tokens in the slot", context)
    if snapshot.weights_bytes and not card.total_bytes:
        rows += brush.pair("weights", format_bytes(snapshot.weights_bytes))
    return rows


def _card(snapshot: Snapshot, brush: Brush) -> list[Row]:
    """The card's memory: all of it, and in two rows who takes it."""
    card, pool = snapshot.card, snapshot.vram
    whole = TierUse(used_bytes=card.used_bytes, limit_bytes=card.total_bytes)
    rows = [brush.bar("VRAM", whole, brush.palette.vram)]
    rows += brush.pair("  weights, slot", f"{_short(snapshot.weights_bytes)}, {_short(snapshot.slot_bytes)}")
    pooled = f"{_short(pool.used_bytes)}/{_short(pool.limit_bytes)}"
    return rows + brush.pair("  pool, others", f"{pooled}, {_short(others_bytes(snapshot))}")


def others_bytes(snapshot: Snapshot) -> int:
    """Of the card's memory, what is neither weights nor slot nor pool: other programs, and what computing takes."""
    ours = snapshot.weights_bytes + snapshot.slot_bytes + max(snapshot.vram.committed_bytes, snapshot.vram.used_bytes)
    return max(0, snapshot.card.used_bytes - ours)


_PLACES = {"slot": "in the slot", "vram": "in VRAM", "ram": "in RAM", "ssd": "on SSD", "none": "not cached"}


def _conversation(view: View, numbers: Numbers, brush: Brush) -> list[Row]:
    """Where the open conversation is, how large it is, and what its last turn did not have to compute."""
    rows = brush.title("THIS CONVERSATION")
    if view.resume is not None:
        back = f", back in {format_seconds(view.resume.seconds)}" if view.resume.seconds else ""
        rows += brush.pair("it is", f"{_PLACES[view.resume.origin]}{back}")
    elif view.snapshot is not None and view.snapshot.turns and view.snapshot.last == numbers:
        rows += brush.pair("it is", _PLACES["slot"])
    tokens = numbers.prompt_tokens + numbers.generated_tokens
    size = f"  {format_bytes(tokens * view.token_bytes)}" if view.token_bytes else ""
    rows += brush.pair("size", f"{format_count(tokens)} tok{size}")
    if numbers.prompt_tokens:
        share = 100 * numbers.restored.total // numbers.prompt_tokens
        rows += brush.pair("reused", f"{format_count(numbers.restored.total)} tok  {share} %")
    if numbers.exact:
        return rows + brush.pair("exact", "yes", brush.palette.success)
    return rows + brush.pair("exact", f"no: {numbers.inexact_because or 'unknown'}", brush.palette.warning)


def _turn(numbers: Numbers, brush: Brush) -> list[Row]:
    """Where the last turn's tokens came from and how long that took, with the forecast beside it."""
    rows = brush.title("LAST TURN")
    rows += brush.pair("prompt", f"{format_count(numbers.prompt_tokens)} tok")
    sources = {"slot": "still there", "vram": "from VRAM", "ram": "from RAM", "ssd": "from SSD"}
    for tier, name in sources.items():
        tokens = getattr(numbers.restored, tier)
        if tokens:
            rows += brush.pair(name, f"{format_count(tokens)} tok")
    rows += brush.pair("computed", f"{format_count(numbers.prefilled_tokens)} tok")
    for lost in numbers.fallbacks:
        rows += brush.pair(f"  of it {lost.reason}", f"{format_count(lost.tokens)} tok", brush.palette.warning)
    if numbers.restore_seconds:
        rows += brush.pair("restoring", _foretold(numbers.restore_seconds, numbers.predicted_restore_seconds))
    if numbers.prefill_seconds:
        rows += brush.pair("computing", _foretold(numbers.prefill_seconds, numbers.predicted_prefill_seconds))
    rows += brush.pair("first token", format_seconds(numbers.ttft_ms / 1000))
    return rows + brush.pair("answer", f"{format_count(numbers.generated_tokens)} tok  {numbers.tokens_per_second:.1f} tok/s")


def _foretold(measured: float, predicted: float) -> str:
    """What it took, and what was said before."""
    return format_seconds(measured) + (f" (said {format_seconds(predicted)})" if predicted else "")


def _swaps(snapshot: Snapshot, flows: Flows, brush: Brush) -> list[Row]:
    """Records that came into each tier and left it: over the last minutes, and how many since the engine started."""
    counts = [("VRAM", snapshot.vram, brush.palette.vram), ("RAM", snapshot.ram, brush.palette.ram)]
    counts.append(("SSD", snapshot.ssd, brush.palette.ssd))
    rows: list[Row] = []
    for tier, (name, use, style) in enumerate(counts):
        ways = (("in", use.swaps_in, flows.swaps_in), ("out", use.swaps_out, flows.swaps_out))
        for way, total, lately in ways:
            if total:
                line = sparkline(lately[tier] if lately else (0,) * FLOW_BINS, brush.glyphs)
                count = format_count(total)
                line = line[-max(0, brush.width - 9 - max(6, len(count))) :]
                rows.append(row([(f"{name:<4} {way:<4}", brush.palette.muted), (line, style),
                                 (count.rjust(brush.width - 9 - len(line)), brush.palette.text)]))  # fmt: skip
    minutes = round(FLOW_BINS * FLOW_SECONDS / 60)
    return [*brush.title(f"SWAPS, LAST {minutes} MIN / ALL"), *rows] if rows else []


def _totals(snapshot: Snapshot, brush: Brush) -> list[Row]:
    rows = brush.title("SINCE THE ENGINE STARTED")
    rows += brush.pair("turns", format_count(snapshot.turns))
    if snapshot.prompt_tokens:
        share = 100 * snapshot.restored_tokens // snapshot.prompt_tokens
        rows += brush.pair("restored", f"{format_count(snapshot.restored_tokens)} tok  {share} %")
    rows += brush.pair("time saved", format_seconds(max(0.0, snapshot.seconds_saved)))
    rows += brush.pair("fallback prefills", format_count(snapshot.fallback_turns))
    for reason, tokens in sorted(snapshot.fallback_tokens.items(), key=lambda pair: -pair[1]):
        times = snapshot.fallback_prefills.get(reason, 0)
        often = f"{format_count(times)}x  " if times else ""
        rows += brush.pair(f"  {reason}", f"{often}{format_count(tokens)} tok", brush.palette.warning)
    if snapshot.preloads.loaded:
        loaded = snapshot.preloads
        rows += brush.pair("preloaded", f"{format_count(loaded.loaded)}, {format_count(loaded.hits)} used")
        rows += brush.pair("  for nothing", f"{format_count(loaded.wasted)}  {format_bytes(loaded.wasted_bytes)}")
    rows += brush.pair("written", format_bytes(snapshot.written_bytes))
    if snapshot.written.total_bytes:
        rows += brush.pair("  today", format_bytes(snapshot.written.today_bytes))
    if snapshot.unsaved_records:
        rows += brush.pair("to be saved", f"{format_count(snapshot.unsaved_records)} records")
    return rows


def _events(events: Sequence[str], brush: Brush) -> list[Row]:
    if not events:
        return []
    rows = brush.title("EVENTS")
    for event in events[:MAX_EVENTS]:
        text = one_line(event)
        first, *rest = wrap([(text, brush.palette.text)], brush.width)
        rows.append(first)
        rows += [
            row(
                [
                    ("  ", brush.palette.text),
                    (set_cell_size(inner.text, min(len(inner.text), brush.width - 2)), brush.palette.muted),
                ]
            )
            for inner in rest[:1]
        ]
    return rows


def _short(n_bytes: int) -> str:
    """Bytes in at most five characters: "5.8G", "14G", "612M"."""
    value = float(n_bytes)
    for unit in ("B", "K", "M", "G"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if value >= 9.95 or value == int(value) else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}T"
