"""The messages of a conversation as one tall column of rows, of which only what is looked at is rendered.

Pure; knows no widgets. Heights of messages that were never looked at are estimates from their text. `settle` renders what a
viewport shows and keeps in place what was on screen already, so that an estimate that becomes a height moves nothing that a
person reads. Invariant: `top(i)` is the sum of the heights before message i.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from textual.cache import LRUCache

from localkv.tui.rows import BLANK, Row

KEEP = 256
"""Rendered messages kept; more than any screen shows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message to be shown. Frozen, so that it is its own version: what is rendered is kept by the whole entry."""

    id: str
    role: str
    text: str
    time: str = ""
    notes: tuple[str, ...] = ()
    """Numbers beneath the message."""
    mark: str = ""
    """What is wrong with it, and what can be done; shown so that it is seen."""
    growing: bool = field(default=False, kw_only=True)
    """It is being written; it is never kept rendered."""
    versions: str = field(default="", kw_only=True)
    """Which of several versions this is, such as "< 2/3 >"."""
    thought: str = field(default="", kw_only=True)
    """How long its thoughts took."""
    unfolded: bool = field(default=False, kw_only=True)
    """Its thoughts are shown."""


Paint = Callable[[Entry, int], list[Row]]
Place = tuple[str, float]
"""A message and how far into it."""


class Pages:
    """All messages on the path of one conversation."""

    def __init__(self, paint: Paint) -> None:
        self._paint = paint
        self._entries: list[Entry] = []
        self._index: dict[str, int] = {}
        self._heights: list[int] = []
        self._known: list[bool] = []
        self._rendered_once: list[bool] = []
        """Its height was that of rows and no estimate; it may have grown since."""
        self._tops: list[int] = [0]
        self._rendered: LRUCache[tuple[Entry, int, str], list[Row]] = LRUCache(KEEP)
        self._growing: tuple[Entry, list[Row]] | None = None
        self._width = 0
        self._theme = ""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Sequence[Entry]:
        return self._entries

    @property
    def width(self) -> int:
        return self._width

    def index(self, message: str) -> int | None:
        """Where the message with this id stands; None if it is not here."""
        return self._index.get(message)

    def extent(self, index: int) -> tuple[int, int]:
        """The first row of message `index` and the one after its last, rendered for this if need be."""
        self._measure(index)
        top = self.top(index)
        return top, top + self._heights[index]

    @property
    def height(self) -> int:
        """Rows of everything, estimates included."""
        return self.top(len(self._entries))

    def load(self, entries: Sequence[Entry]) -> None:
        """Show these messages and no others; what is known of messages that stay as they were is kept."""
        old = {
            entry.id: (entry, height, known, once)
            for entry, height, known, once in zip(self._entries, self._heights, self._known, self._rendered_once, strict=True)
        }
        self._entries = list(entries)
        self._index = {entry.id: i for i, entry in enumerate(self._entries)}
        self._forget_heights()
        for index, entry in enumerate(self._entries):
            if entry.id in old:
                before, self._heights[index], known, self._rendered_once[index] = old[entry.id]
                self._known[index] = known and before == entry

    def resize(self, width: int, theme: str) -> None:
        """Render for this width and theme from now on."""
        if (width, theme) != (self._width, self._theme):
            self._width, self._theme = width, theme
            self._forget_heights()

    def put(self, entry: Entry) -> None:
        """Replace the message of the same id, else append."""
        index = self._index.get(entry.id)
        if index is None:
            index = self._index[entry.id] = len(self._entries)
            self._entries.append(entry)
            self._heights.append(self._estimate(entry))
            self._known.append(False)
            self._rendered_once.append(False)
            return
        self._entries[index] = entry
        self._known[index] = False

    def top(self, index: int) -> int:
        """The first row of message `index`."""
        tops = self._tops
        while len(tops) <= index:
            tops.append(tops[-1] + self._heights[len(tops) - 1])
        return tops[index]

    def at(self, y: int) -> tuple[int, int]:
        """The message at row `y` and the row within it."""
        self.top(len(self._entries))
        index = max(0, min(bisect_right(self._tops, y) - 1, len(self._entries) - 1))
        return index, y - self._tops[index]

    def row(self, y: int) -> Row:
        """The row at `y`.

        Blank as long as the width is not known: a first frame that comes before it would wrap at every character (0.5 million rows,
        8 s for a pasted megabyte [measured]).
        """
        if not self._width or not 0 <= y < self.height:
            return BLANK
        index, offset = self.at(y)
        rows = self.rows(index)
        return rows[offset] if offset < len(rows) else BLANK

    def between(self, first: int, last: int) -> Iterator[tuple[int | None, Row]]:
        """The rows from `first` to `last` with their places; of a message whose height is not known all its rows, without."""
        if not self._entries or not self._width:
            return
        for index in range(self.at(first)[0], self.at(last)[0] + 1):
            rows, top = self.rows(index), self.top(index)
            if not self._known[index]:
                yield from ((None, each) for each in rows)
                continue
            for offset in range(max(0, first - top), min(len(rows), last - top + 1)):
                yield top + offset, rows[offset]

    def place(self, y: int) -> Place:
        """A position that survives another width: a message and how far into it."""
        if not self._entries:
            return "", 0.0
        index, offset = self.at(y)
        return self._entries[index].id, offset / max(1, self._heights[index])

    def find(self, place: Place) -> int:
        """The row where `place` is now."""
        index = self._index.get(place[0])
        if index is None:
            return 0
        self._measure(index)
        return self.top(index) + round(place[1] * self._heights[index])

    def settle(self, y: int, rows: int) -> int:
        """Render what the `rows` from `y` on show; the `y` at which what was on screen stays where it was."""
        if not self._entries:
            return 0
        anchor = self._anchor(y, rows)
        offset = self.top(anchor) - y
        if not self._rendered_once[anchor] and offset < 0:
            share = -offset / max(1, self._heights[anchor])
            self._measure(anchor)
            offset = -round(share * self._heights[anchor])
        while True:
            y = self.top(anchor) - offset
            fresh = self._unmeasured(y, rows)
            if fresh is None:
                return y
            self._measure(fresh)

    def settle_end(self, rows: int) -> int:
        """Render the last `rows`; the `y` that shows them."""
        index = len(self._entries)
        shown = 0
        while index > 0 and shown < rows:
            index -= 1
            self._measure(index)
            shown += self._heights[index]
        return max(0, self.height - rows)

    def _anchor(self, y: int, rows: int) -> int:
        """The first message on screen whose height is known, else the first on screen."""
        first, _ = self.at(y)
        index = first
        while index < len(self._entries) and self.top(index) < y + rows:
            if self._known[index]:
                return index
            index += 1
        return first

    def _unmeasured(self, y: int, rows: int) -> int | None:
        index, _ = self.at(max(0, y))
        while index < len(self._entries) and self.top(index) < y + rows:
            if not self._known[index]:
                return index
            index += 1
        return None

    def _measure(self, index: int) -> None:
        if not self._known[index]:
            self._known[index] = self._rendered_once[index] = True
            height = len(self.rows(index))
            if height != self._heights[index]:
                self._heights[index] = height
                del self._tops[index + 1 :]

    def rows(self, index: int) -> list[Row]:
        """What message `index` looks like."""
        entry = self._entries[index]
        if entry.growing:
            if self._growing is None or self._growing[0] is not entry:
                self._growing = (entry, self._paint(entry, self._width))
            return self._growing[1]
        key = (entry, self._width, self._theme)
        rows = self._rendered.get(key)
        if rows is None:
            rows = self._rendered[key] = self._paint(entry, self._width)
        return rows

    def _estimate(self, entry: Entry) -> int:
        return 3 + len(entry.notes) + entry.text.count("\n") + len(entry.text) // max(1, self._width)

    def _forget_heights(self) -> None:
        self._heights = [self._estimate(entry) for entry in self._entries]
        self._known = [False] * len(self._entries)
        self._rendered_once = [False] * len(self._entries)
        self._tops = [0]
        self._growing = None
