"""ctrl+o: another conversation by a few letters of its title, name or tags. Thread: the UI's."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from localkv.commands.order import hashed
from localkv.service.client import Resume
from localkv.tui.likely import Found, ranked
from localkv.tui.listing import Item
from localkv.tui.listline import BADGES, badge_of, waiting
from localkv.tui.picker import Choice, Picker
from localkv.tui.rows import Span
from localkv.tui.theme import Palette
from localkv.units import format_age


class Switcher(Picker[str | None]):
    """Gives the id of the conversation that was chosen, or None."""

    def __init__(self, palette: Palette, items: Sequence[Item], resumes: Mapping[str, Resume], now: float) -> None:
        super().__init__(palette, "Go to another conversation", "enter opens it   [cancel] stays here")
        self._items = [item for item in items if item.place != "trash"]
        self._resumes = resumes
        self._now = now
        self._found: list[Found] = []

    def look(self, words: str) -> None:
        """Show the conversations that `words` may mean, the likeliest first."""
        self._found = ranked(self._items, words, self._now)
        self.choices.show([self._choice(found) for found in self._found], "no conversation has these letters")

    def take(self, at: int) -> None:
        """Open it."""
        if at < len(self._found):
            self.dismiss(self._found[at].item.id)

    def _choice(self, found: Found) -> Choice:
        return lambda width: [row_of(found, width, self._now, self._resumes.get(found.item.id), self._palette)]


def row_of(found: Found, width: int, now: float, resume: Resume | None, palette: Palette) -> list[Span]:
    """Badge, title with the letters that match, tags, how long coming back takes, age."""
    item = found.item
    badge = BADGES[resume.origin] if resume is not None else " "
    tags = f"  {hashed(item.tags)}" if item.tags else ""
    place = "  archived" if item.place == "archive" else ""
    end = f"{waiting(resume):>6} {format_age(max(0.0, now - item.updated)):>4} "
    room = max(1, width - 3 - len(end))
    title = set_cell_size(item.title, min(cell_len(item.title), room))
    rest = set_cell_size(f"{tags}{place}", max(0, room - cell_len(title)))
    return [
        badge_of(f" {badge} ", palette),
        *lit(title, found.at, palette),
        (rest, palette.muted),
        (end, palette.muted),
    ]


def lit(title: str, at: Sequence[int], palette: Palette) -> list[Span]:
    """`title` with the characters at `at` set apart."""
    chosen, spans = set(at), list[Span]()
    for index, character in enumerate(title):
        style = palette.user + Style(bold=True, underline=True) if index in chosen else palette.text
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + character, style)
        else:
            spans.append((character, style))
    return spans
