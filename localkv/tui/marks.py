"""What is marked in the column of messages: the message under the cursor, and words that are looked for.

No widgets. It reads Pages and never changes them. Occurrences are looked for again at each step, so that what was written
since the last one is found too.
"""

from dataclasses import dataclass

from textual.cache import LRUCache

from localkv.chat.words import Pattern, pattern_of
from localkv.tui.finding import Hit, Span, hits_in, nearest, place_of, spans_in
from localkv.tui.pages import Entry, Pages
from localkv.tui.rows import Row

HEAD_ROWS = 1
"""The row with name and time is no text of anybody."""

Found = list[list[tuple[int, Span]]]


@dataclass(frozen=True, slots=True)
class Count:
    """Which occurrence is looked at, from 1, and how many there are."""

    n: int
    of: int


class Marks:
    """Cursor and search of one transcript."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.chosen = ""
        """The id of the message under the cursor; empty if there is no cursor."""
        self._pattern: Pattern | None = None
        self._hits: list[Hit] = []
        self._at = 0
        self._found: LRUCache[tuple[int, str], tuple[list[Row], Found]] = LRUCache(64)
        """By the list of rows itself: each state of a message has its own. Holding it keeps its id from being used again."""

    @property
    def entry(self) -> Entry | None:
        """The message under the cursor."""
        index = self._pages.index(self.chosen)
        return None if index is None else self._pages.entries[index]

    @property
    def head(self) -> int:
        """The first row of the message under the cursor; -1 if there is none."""
        index = self._pages.index(self.chosen)
        return -1 if index is None else self._pages.top(index)

    @property
    def finding(self) -> bool:
        """Whether words are looked for."""
        return self._pattern is not None

    @property
    def pattern(self) -> Pattern | None:
        """What is looked for."""
        return self._pattern

    @property
    def hit(self) -> Hit | None:
        """The occurrence that is looked at."""
        return self._hits[self._at] if self._at < len(self._hits) else None

    @property
    def count(self) -> Count:
        return Count(self._at + 1 if self._hits else 0, len(self._hits))

    def find(self, words: str, last_seen: int) -> None:
        """Look for `words`; begin at the last occurrence up to the message `last_seen`."""
        self._pattern = pattern_of(words)
        self._look()
        self._at = nearest(self._hits, last_seen)

    def step(self, step: int) -> None:
        """Go on to another occurrence; after the last comes the first."""
        before = self.hit
        self._look()
        at = place_of(self._hits, before) if before is not None else 0
        self._at = (at + step) % len(self._hits) if self._hits else 0

    def rows_of_hit(self) -> list[int]:
        """The rows of the occurrence that is looked at; the head of its message if it is not shown as it was written."""
        hit = self.hit
        if hit is None:
            return []
        top = self._pages.top(hit.message)
        found = self._found_in(hit.message)
        pieces = found[min(hit.nth, len(found) - 1)] if found else [(0, (0, 0))]
        return [top + HEAD_ROWS + row for row, _ in pieces]

    def spans(self, y: int) -> list[tuple[Span, bool]]:
        """What is marked in row `y`; True for the occurrence that is looked at."""
        if self._pattern is None or not len(self._pages):
            return []
        index, offset = self._pages.at(y)
        found = self._found_in(index)
        hit = self.hit
        current = min(hit.nth, len(found) - 1) if hit is not None and hit.message == index else -1
        return [(span, n == current) for n, pieces in enumerate(found) for row, span in pieces if row + HEAD_ROWS == offset]

    def _look(self) -> None:
        self._hits = hits_in(self._pages.entries, self._pattern) if self._pattern is not None else []

    def _found_in(self, index: int) -> Found:
        assert self._pattern is not None, "only asked while words are looked for"
        rows = self._pages.rows(index)
        key = (id(rows), self._pattern.pattern)
        found = self._found.get(key)
        if found is None or found[0] is not rows:
            found = self._found[key] = (rows, spans_in(rows[HEAD_ROWS:], self._pattern))
        return found[1]
