"""The cache panel: what each tier holds, where the last turn's tokens came from, what had to be computed again and why.

Pure functions from the engine's Snapshot and a turn's Numbers to rows; one small widget shows rows. Every bar has its
numbers beside it, so that nothing hangs on colour.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import set_cell_size
from rich.style import Style

from localkv.service.protocol import Numbers, Snapshot, TierUse
from localkv.tui.clean import one_line
from localkv.tui.glyphs import Glyphs
from localkv.tui.phase import spread
from localkv.tui.rows import BLANK, Row, Span, row, spans_of, wrap
from localkv.tui.theme import Palette
from localkv.units import format_bytes, format_count, format_seconds

MAX_EVENTS = 12


@dataclass(frozen=True, slots=True)
class View:
    """What the panel is made from. `numbers` are of the newest answer on screen."""

    snapshot: Snapshot | None = None
    numbers: Numbers | None = None


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
        rows += _turn(view.numbers, brush)
    if view.snapshot is not None:
        rows += [*_totals(view.snapshot, brush), *_events(view.snapshot.recent, brush)]
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
    rows = [brush.bar(name, use, style) for name, use, style in _uses(snapshot, brush.palette)]
    if snapshot.context_tokens:
        context = f"{format_count(snapshot.slot_tokens)}/{format_count(snapshot.context_tokens)}"
        rows += brush.pair("tokens in the slot", context)
    if snapshot.weights_bytes:
        rows += brush.pair("weights", format_bytes(snapshot.weights_bytes))
    return rows


def _turn(numbers: Numbers, brush: Brush) -> list[Row]:
    rows = brush.title("LAST TURN")
    rows += brush.pair("prompt", f"{format_count(numbers.prompt_tokens)} tok")
    sources = {"slot": "still there", "vram": "from VRAM", "ram": "from RAM", "ssd": "from SSD"}
    for field, name in sources.items():
        tokens = getattr(numbers.restored, field)
        if tokens:
            rows += brush.pair(name, f"{format_count(tokens)} tok")
    rows += brush.pair("computed", f"{format_count(numbers.prefilled_tokens)} tok")
    if numbers.restore_seconds:
        rows += brush.pair("restoring", format_seconds(numbers.restore_seconds))
    rows += brush.pair("first token", format_seconds(numbers.ttft_ms / 1000))
    rows += brush.pair("answer", f"{format_count(numbers.generated_tokens)} tok  {numbers.tokens_per_second:.1f} tok/s")
    if numbers.exact:
        return rows + brush.pair("exact", "yes", brush.palette.success)
    return rows + brush.pair("exact", f"no: {numbers.inexact_because or 'unknown'}", brush.palette.warning)


def _totals(snapshot: Snapshot, brush: Brush) -> list[Row]:
    rows = brush.title("SINCE THE ENGINE STARTED")
    rows += brush.pair("turns", format_count(snapshot.turns))
    if snapshot.prompt_tokens:
        share = 100 * snapshot.restored_tokens // snapshot.prompt_tokens
        rows += brush.pair("restored", f"{format_count(snapshot.restored_tokens)} tok  {share} %")
    rows += brush.pair("time saved", format_seconds(max(0.0, snapshot.seconds_saved)))
    for name, use, _ in _uses(snapshot, brush.palette):
        if use.swaps_in or use.swaps_out:
            rows += brush.pair(f"swaps {name}", f"in {format_count(use.swaps_in)}  out {format_count(use.swaps_out)}")
    rows += brush.pair("written", format_bytes(snapshot.written_bytes))
    if snapshot.unsaved_records:
        rows += brush.pair("to be saved", f"{format_count(snapshot.unsaved_records)} records")
    rows += brush.pair("fallback prefills", format_count(snapshot.fallback_turns))
    for reason, tokens in sorted(snapshot.fallback_tokens.items(), key=lambda pair: -pair[1]):
        rows += brush.pair(f"  {reason}", f"{format_count(tokens)} tok", brush.palette.warning)
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
