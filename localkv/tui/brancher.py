"""/branches: every path through the open conversation; one is looked at, taken away, or kept alone. Thread: the UI's."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from rich.cells import cell_len, set_cell_size
from textual.binding import BindingType

from localkv.chat.thoughts import answer_of
from localkv.chat.tree import Branch
from localkv.tui.acts import Pick
from localkv.tui.clean import one_line
from localkv.tui.keys import own
from localkv.tui.picker import Choice, Picker
from localkv.tui.rows import Span
from localkv.tui.theme import Palette
from localkv.units import format_age, format_count

BEGINNING = 500
"""Characters of a message that can reach its row."""


class Brancher(Picker[Pick | None]):
    """Gives what was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = own("branches.take", "branches.keep")

    def __init__(self, palette: Palette, branches: Sequence[Branch], now: float) -> None:
        """`branches` with the one last written first."""
        hint = "enter looks at it   [branches.take] takes it away   [branches.keep] keeps it alone   [cancel] closes"
        super().__init__(palette, f"{format_count(len(branches))} branches, by what they end in", hint)
        self._branches = branches
        self._found: list[Branch] = []
        self._now = now

    def look(self, words: str) -> None:
        """Show the branches whose last message has these words."""
        wanted = words.casefold().split()
        self._found = [each for each in self._branches if all(word in each.text.casefold() for word in wanted)]
        self.choices.show([self._choice(each) for each in self._found], "no branch ends with these words")

    def take(self, at: int) -> None:
        """Look at it."""
        if at < len(self._found):
            self.dismiss(Pick(self._found[at].leaf))

    def action_choose(self, wish: Literal["take away", "keep alone"]) -> None:
        """Something else for the branch under the cursor."""
        if self.choices.cursor < len(self._found):
            self.dismiss(Pick(self._found[self.choices.cursor].leaf, wish))

    def _choice(self, branch: Branch) -> Choice:
        return lambda width: [row_of(branch, width, self._now, self._palette)]


def row_of(branch: Branch, width: int, now: float, palette: Palette) -> list[Span]:
    """A mark for the branch that is looked at, how it ends, how many messages it has, its age."""
    end = f"{format_count(branch.n_messages):>6} {format_age(max(0.0, now - branch.created)):>4} "
    room = max(1, width - 3 - cell_len(end))
    text = set_cell_size(one_line(answer_of(branch.text)[:BEGINNING]), room)
    return [(" > " if branch.shown else "   ", palette.accent), (text, palette.text), (end, palette.muted)]
