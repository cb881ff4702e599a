"""Header, row of tiers, phase line and cache panel: what they show, from the facts of the moment.

Knows the four widgets and nothing else; rows that did not change are not drawn again. Thread: the UI's.
"""

from collections.abc import Callable
from dataclasses import dataclass

from localkv.commands.order import Place
from localkv.service.client import Resume
from localkv.service.protocol import Numbers, Ready, Snapshot
from localkv.tui.clean import one_line
from localkv.tui.glyphs import Glyphs
from localkv.tui.history import History
from localkv.tui.listing import TITLES
from localkv.tui.panel import Brush, View, panel_rows, tier_line
from localkv.tui.phase import IDLE, Phase, aside, fullness, header_line, phase_line
from localkv.tui.rows import row
from localkv.tui.rowsview import RowsView
from localkv.tui.theme import Palette
from localkv.units import format_count


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the instruments show."""

    title: str = ""
    model: str = ""
    ready: Ready | None = None
    state: str = "starting"
    """The engine in one word."""
    snapshot: Snapshot | None = None
    numbers: Numbers | None = None
    resume: Resume | None = None
    """How far away the open conversation is."""
    phase: Phase = IDLE
    unsaved: int = 0
    below: bool = False
    """There is text below the view."""
    stops: bool = False
    """The key that stops answers does so now."""
    listed: int = 0
    conversations: int = 0
    marked: int = 0
    place: Place = "list"
    """Which of them the list shows."""


@dataclass(frozen=True, slots=True)
class Instruments:
    """The widgets around the conversation."""

    glyphs: Glyphs
    head: RowsView
    """Above the list."""
    header: RowsView
    tiers: RowsView
    phase: RowsView
    panel: RowsView
    history: History
    clock: Callable[[], float]
    """Wall time, of the moments in the history."""
    keyed: Callable[[str], str]
    """A text with keys in the place of the [id] of what they do."""

    def show(self, facts: Facts, palette: Palette) -> None:
        """Show `facts`, and remember what the engine's state was."""
        self.history.note(facts.snapshot, self.clock())
        name, glyphs, about = palette.name, self.glyphs, _about(facts)
        counted = _counted(facts)
        title = TITLES[facts.place]
        self.head.draw((title, counted, name), lambda _: [row([(f"{title}  ", palette.heading), (counted, palette.muted)])])
        self.header.draw(
            (facts.title, about, name), lambda width: [row(header_line(facts.title, about, width, palette, glyphs))]
        )
        phase = facts.phase if facts.phase != IDLE else fullness(_used(facts), _limit(facts))
        beside = self.keyed(aside(phase, below=facts.below, stops=facts.stops))
        self.phase.draw(
            (phase, facts.unsaved, beside, name),
            lambda width: [row(phase_line(phase, width, palette, unsaved=facts.unsaved, beside=beside))],
        )
        token_bytes = facts.ready.token_bytes if facts.ready is not None else 0
        view = View(facts.snapshot, facts.numbers, facts.resume, token_bytes, self.history.flows(self.clock()))
        self.tiers.draw((view, name), lambda width: [row(tier_line(view, Brush(palette, glyphs, width)))])
        self.panel.draw((view, name), lambda width: panel_rows(view, Brush(palette, glyphs, width)))


def _counted(facts: Facts) -> str:
    if facts.marked:
        return f"{format_count(facts.marked)} marked"
    if facts.listed == facts.conversations:
        return format_count(facts.conversations)
    return f"{format_count(facts.listed)} of {format_count(facts.conversations)}"


def _about(facts: Facts) -> list[str]:
    """Facts for the right end of the header, the most important last."""
    about = []
    if facts.numbers is not None:
        used, limit = _used(facts), _limit(facts)
        about.append(f"{_thousands(used)}/{_thousands(limit)} tok" if limit else f"{_thousands(used)} tok")
    about.append(one_line(facts.ready.title if facts.ready is not None else facts.model))
    about.append(facts.state)
    return about


def _used(facts: Facts) -> int:
    """Tokens of the open conversation."""
    return facts.numbers.prompt_tokens + facts.numbers.generated_tokens if facts.numbers is not None else 0


def _limit(facts: Facts) -> int:
    """Tokens that its model can hold; 0 if that is not known yet."""
    return facts.ready.context_tokens if facts.ready is not None else 0


def _thousands(n: int) -> str:
    return str(n) if n < 1000 else f"{n / 1000:.1f}k"
