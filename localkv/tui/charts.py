"""The statistics view as rows: plots over the time since the face started, and tables of quantiles beside them.

Pure functions from a History to rows. Every plot names its unit, its newest number, the number at its upper edge and the
times at its ends, so that nothing hangs on colour or on counting dots.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style

from localkv.figures import Spread
from localkv.messages import Snapshot
from localkv.tui.history import History, Moment, levels, rises
from localkv.tui.panel import Brush
from localkv.tui.phase import spread
from localkv.tui.plot import columns_of, nice_bytes, nice_top, plot
from localkv.tui.rows import BLANK, Row, Span, cut, row, spans_of
from localkv.units import format_bytes, format_count, format_seconds

SPANS = (("all", 0.0), ("1 h", 3600.0), ("5 min", 300.0))
"""What a plot may show: everything since the face started, or the last part of it."""

MIN_SECONDS = 60.0
"""A face that has just started shows a minute that is not full yet."""

GUTTER = 10
"""Cells of the numbers at the left of a plot: "512.0 MiB" and a space."""

SIDE, GAP = 34, 3
"""Cells of the tables beside, and between them and the plots."""

MIN_ROWS, MAX_ROWS = 3, 8
"""Of a plot without its title and times."""

TIERS = ("VRAM", "RAM", "SSD")


@dataclass(frozen=True, slots=True)
class Chart:
    """One thing over time."""

    title: str
    newest: str
    values: Callable[[float, float, int], Sequence[float | None]]
    """For a start, an end and a number of columns."""
    say: Callable[[float], str]
    """A value with its unit."""
    style: Style
    top: float = 0.0
    """At the upper edge; 0: a round number above all that is shown."""
    rounded: Callable[[Sequence[float | None]], float] = nice_top
    filled: bool = False


def statistics_rows(history: History, brush: Brush, now: float, seconds: float, height: int = 0) -> list[Row]:
    """The whole view; `seconds` before `now` are shown, 0 for all. Plots grow to fill `height` rows."""
    if history.newest is None or not history.moments:
        return [row([("The engine has not said anything yet.", brush.palette.muted)])]
    since = history.moments[0].at if not seconds else now - seconds
    start = min(since, now - MIN_SECONDS)
    beside = brush.width >= 72
    room = brush.width - (SIDE + GAP if beside else 0)
    across = 2 if room >= 76 else 1
    cells = (room - GAP * (across - 1)) // across
    shown = charts(history, brush)
    tall = max(MIN_ROWS, min(MAX_ROWS, (height + 1) // math.ceil(len(shown) / across) - 3))
    blocks = [chart_rows(chart, start, now, brush, cells, tall) for chart in shown]
    lines = [blocks[at : at + across] for at in range(0, len(blocks), across)]
    plots = [each for line in lines for each in [*_side_by_side(line, cells), BLANK]][:-1]
    tables = table_rows(history.newest, Brush(brush.palette, brush.glyphs, SIDE if beside else min(brush.width, 48)))
    rows = _side_by_side([plots, tables], room) if beside else [*plots, BLANK, *tables]
    return [each if each.strip.cell_length <= brush.width else _cropped(each, brush.width) for each in rows]


def _cropped(wide: Row, width: int) -> Row:
    return row(cut(spans_of(wide), 0, width))


def charts(history: History, brush: Brush) -> list[Chart]:
    """What is plotted, what people ask for first at the top."""
    palette, turns, moments = brush.palette, history.turns, history.moments
    last = turns[-1] if turns else None
    rates = [(turn.at, turn.tokens_per_second) for turn in turns if turn.tokens_per_second]
    firsts = [(turn.at, turn.ttft_seconds) for turn in turns if turn.ttft_seconds]
    shares = [(turn.at, 100 * turn.restored_share) for turn in turns]
    found = [
        Chart("decoding", f"{last.tokens_per_second:.1f} tok/s" if last else "", _level(rates), lambda v: f"{v:.3g} tok/s",
              palette.accent),
        Chart("first token", format_seconds(last.ttft_seconds) if last else "", _level(firsts), format_seconds, palette.warning),
        Chart("restored part of the prompt", f"{100 * last.restored_share:.0f} %" if last else "", _level(shares),
              lambda v: f"{v:.0f} %", palette.success, top=100.0),
    ]  # fmt: skip
    return [*found, *_memory(history, brush), *_moved(moments, brush)]


def _memory(history: History, brush: Brush) -> list[Chart]:
    """What each tier that there is holds."""
    snapshot, palette = history.newest, brush.palette
    if snapshot is None:
        return []
    found = []
    uses = ((snapshot.vram, palette.vram), (snapshot.ram, palette.ram), (snapshot.ssd, palette.ssd))
    for tier, (use, style) in enumerate(uses):
        if use.limit_bytes:
            points = [(moment.at, float(moment.used[tier])) for moment in history.moments]
            newest = f"{format_bytes(use.used_bytes)} of {format_bytes(use.limit_bytes)}"
            found.append(Chart(f"{TIERS[tier]} used", newest, _level(points), format_bytes, style, rounded=nice_bytes))
    return found


def _moved(moments: Sequence[Moment], brush: Brush) -> list[Chart]:
    """How fast records came and went, and how fast files were written."""
    palette, last = brush.palette, moments[-1]
    return [
        Chart("swaps per minute", f"{format_count(_swaps(last))} in all", _rate(moments, _swaps), lambda v: f"{v:,.0f}",
              palette.accent, filled=True),
        Chart("SSD writes per minute", f"{format_bytes(last.written)} in all", _rate(moments, lambda m: m.written),
              format_bytes, palette.ssd, rounded=nice_bytes, filled=True),
    ]  # fmt: skip


def chart_rows(chart: Chart, start: float, end: float, brush: Brush, width: int, height: int = MIN_ROWS) -> list[Row]:
    """A title with the newest number, a plot with its numbers at the left, the times below: `height` + 2 rows."""
    palette, glyphs = brush.palette, brush.glyphs
    cells = max(4, width - GUTTER)
    values = chart.values(start, end, columns_of(cells, glyphs))
    top = chart.top or chart.rounded(values)
    lines = plot(values, height, top, glyphs, filled=chart.filled)
    labels = [chart.say(top), *[""] * (height - 2), "0"]
    rows = [row(spread([(chart.title, palette.bold)], [(chart.newest, palette.text)], width))]
    for label, line in zip(labels, lines, strict=True):
        rows.append(row([(label.rjust(GUTTER - 1)[: GUTTER - 1], palette.muted), (" ", palette.text), (line, chart.style)]))
    lead = " " * GUTTER
    left, right = _clock(start, end - start), _clock(end, end - start)
    rule = glyphs.rule * max(0, cells - cell_len(left) - cell_len(right) - 2)
    rows.append(row([(lead, palette.text), (left, palette.muted), (f" {rule} ", palette.rule), (right, palette.muted)]))
    return rows


def table_rows(snapshot: Snapshot, brush: Brush) -> list[Row]:
    """p50, p90 and p99 of what was timed since the engine started, and what came of preloads and restores."""
    palette = brush.palette
    rows = [_table_line("TIMES OF ALL", ("p50", "p90", "p99"), brush, palette.muted + Style(bold=True))]
    timed: list[tuple[str, Spread]] = [
        ("tok/s", snapshot.tokens_per_second),
        ("first token ms", snapshot.ttft_ms),
        ("restoring ms", snapshot.restores.ms),
    ]
    for name, use in zip(TIERS, (snapshot.vram, snapshot.ram, snapshot.ssd), strict=True):
        timed += [(f"{name} in ms", use.ms_in), (f"{name} out ms", use.ms_out)]
    for name, measured in timed:
        if measured.count:
            figures = [_figure(value) for value in (measured.p50, measured.p90, measured.p99)]
            rows.append(_table_line(name, figures, brush, palette.text))
    if len(rows) == 1:
        rows.append(row([("nothing measured yet", palette.muted)]))
    rows += [BLANK, *brush.pair("turns", format_count(snapshot.turns))]
    rows += brush.pair("time saved", format_seconds(max(0.0, snapshot.seconds_saved)))
    rows += brush.pair("restores", f"{format_count(snapshot.restores.tried)}, {format_count(snapshot.restores.failed)} failed")
    rows += brush.pair("preloads", f"{format_count(snapshot.preloads.loaded)}")
    rows += brush.pair(
        "  used / for nothing", f"{format_count(snapshot.preloads.hits)} / {format_count(snapshot.preloads.wasted)}"
    )
    rows += brush.pair("fallback prefills", format_count(snapshot.fallback_turns))
    rows += brush.pair("written today", format_bytes(snapshot.written.today_bytes))
    rows += brush.pair("written in all", format_bytes(snapshot.written.total_bytes))
    return rows


def _table_line(name: str, figures: Sequence[str], brush: Brush, style: Style) -> Row:
    room = brush.width - 6 * len(figures)
    return row([(name[:room].ljust(room), brush.palette.muted), ("".join(figure.rjust(6) for figure in figures), style)])


def _figure(value: float) -> str:
    """Three digits that say something, in at most five characters."""
    return f"{value:.3g}" if value < 1000 else f"{value / 1000:.3g}k"


def _level(points: Sequence[tuple[float, float]]) -> Callable[[float, float, int], Sequence[float | None]]:
    return lambda start, end, bins: levels(points, start, end, bins)


def _rate(moments: Sequence[Moment], count: Callable[[Moment], int]) -> Callable[[float, float, int], Sequence[float | None]]:
    """How much came in each column, as if it went on like that for a minute."""

    def values(start: float, end: float, bins: int) -> list[float | None]:
        minutes = (end - start) / bins / 60 or 1.0
        return [rise / minutes for rise in rises(moments, count, start, end, bins)]

    return values


def _swaps(moment: Moment) -> int:
    return sum(moment.swaps_in) + sum(moment.swaps_out)


def _clock(at: float, span: float) -> str:
    return time.strftime("%H:%M:%S" if span < 600 else "%H:%M" if span < 86_400 else "%d %b %H:%M", time.localtime(at))


def _side_by_side(columns: Sequence[Sequence[Row]], width: int) -> list[Row]:
    """Columns of rows next to each other; all but the last take `width` cells."""
    found = []
    for at in range(max(len(column) for column in columns)):
        spans: list[Span] = []
        for index, column in enumerate(columns):
            inner = column[at] if at < len(column) else BLANK
            spans += spans_of(inner)
            if index < len(columns) - 1:
                spans.append((" " * (width + GAP - inner.strip.cell_length), Style()))
        found.append(row(spans))
    return found
