"""F4: messages by their words, in all conversations; what is chosen opens at that message.

The store is asked on a thread of its own, so that keys are never held up; what was typed last decides what is shown.
Thread: the UI's.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.style import Style
from textual.message import Message

from localkv.chat.query import FILTERS_HELP
from localkv.chat.search import Hit
from localkv.commands.filing import NOTHING_FOUND, elsewhere
from localkv.errors import LocalKVError
from localkv.tui.clean import harmless, one_line
from localkv.tui.feed import Feed
from localkv.tui.listing import UNTITLED
from localkv.tui.picker import Choice, Picker
from localkv.tui.rows import Span
from localkv.tui.theme import Palette
from localkv.units import format_age

if TYPE_CHECKING:
    from localkv.tui.shelf import Shelf

HITS = 100
_WIDE = 60
"""Cells from which on there is room for more than title and age."""
_SPEAKERS = {"user": "you", "assistant": "answer", "system": "system"}

Find = Callable[[str, int], Sequence[Hit]]


class Search(Picker[Hit | None]):
    """Gives the message that was chosen, or None."""

    TALL = 2

    class Arrived(Message):
        """A search has ended."""

        def __init__(self, words: str, hits: Sequence[Hit], problem: str) -> None:
            super().__init__()
            self.words = words
            self.hits = hits
            self.problem = problem

    def __init__(self, palette: Palette, find: Find, now: float, words: str = "") -> None:
        """`find` is called on another thread."""
        hint = 'enter opens it there   "quotes" keep words together   [cancel] closes'
        super().__init__(palette, "Find messages in all conversations", hint, words)
        self._find = find
        self._now = now
        self._hits: Sequence[Hit] = ()
        self._asked: str | None = None
        self._next: str | None = None

    def look(self, words: str) -> None:
        """Look for messages with `words`; one search at a time, the newest words after it."""
        if not words.strip():
            self._next = None
            self._show((), f"write words of a message; filters narrow it: {FILTERS_HELP}")
        elif self._asked is not None:
            self._next = words
        else:
            self._ask(words)

    def _ask(self, words: str) -> None:
        self._asked, self._next = words, None

        def work() -> Sequence[Hit]:
            hits: Sequence[Hit] = ()
            problem = ""
            try:
                hits = self._find(words, HITS)
            except LocalKVError as error:
                problem = str(error)
            self.post_message(self.Arrived(words, hits, problem))
            return ()

        Feed("search", lambda: iter(work())).begin()

    def on_search_arrived(self, event: Arrived) -> None:
        """Show what was found, if it is still what is wanted."""
        event.stop()
        self._asked = None
        if self._next is not None:
            self._ask(self._next)
        if event.words == self._words:
            self._show(event.hits, event.problem or NOTHING_FOUND)

    def _show(self, hits: Sequence[Hit], hint: str) -> None:
        self._hits = hits
        self.choices.show([self._choice(hit) for hit in hits], one_line(hint))

    def take(self, at: int) -> None:
        """Open it."""
        if at < len(self._hits):
            self.dismiss(self._hits[at])

    def _choice(self, hit: Hit) -> Choice:
        return lambda width: rows_of(hit, width, self._now, self._palette)


def rows_of(hit: Hit, width: int, now: float, palette: Palette) -> list[list[Span]]:
    """Title, where copies are, speaker and age; below them the text around the words."""
    also = f"  {elsewhere(hit)}" if hit.also_in and width >= _WIDE else ""
    end = f"{also}{_SPEAKERS[hit.role]:>9} {format_age(max(0.0, now - hit.created)):>4} "
    title = one_line(hit.title) or UNTITLED
    head: list[Span] = [
        (set_cell_size(f" {title}", max(1, width - len(end))), palette.text + Style(bold=True)),
        (end, palette.muted),
    ]
    body: list[Span] = [("   ", palette.muted)]
    at = 0
    for start, stop in hit.marks:
        body += [
            (harmless(hit.snippet[at:start]), palette.muted),
            (harmless(hit.snippet[start:stop]), palette.user + Style(bold=True, underline=True)),
        ]
        at = stop
    return [head, [*body, (harmless(hit.snippet[at:]), palette.muted)]]


def open_search(screen: "Shelf", palette: Palette, words: str) -> None:
    """Ask what to look for, and open the conversation of the message that was chosen at it."""

    def done(hit: Hit | None) -> None:
        if hit is not None:
            screen.open_at(hit.conversation, hit.message)

    screen.app.push_screen(Search(palette, screen.desk.store.search, screen.desk.clock(), words), done)
