"""Words in a conversation: where they occur, and which characters on screen they are.

Pure; knows no widgets. Occurrences are counted in the text as it was written, so that 2,000 messages need not be rendered;
what is marked are the rows as they are shown. Where an occurrence is not shown as it was written, its message is still found. Case does not matter, any white space is like any other, a soft wrap too, and emphasis may begin or end between words.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localkv.chat.attachments import split_files
from localkv.chat.thoughts import split_thought
from localkv.chat.words import Pattern
from localkv.tui.pages import Entry
from localkv.tui.rows import Row

Span = tuple[int, int]
"""First character of a strip, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One occurrence."""

    message: int
    """Which message of the conversation, from 0."""
    nth: int
    """Which occurrence in it, from 0."""


def hits_in(entries: Iterable[Entry], pattern: Pattern) -> list[Hit]:
    """All occurrences, from the first message to the last."""
    return [Hit(index, nth) for index, entry in enumerate(entries) for nth, _ in enumerate(pattern.finditer(entry.text))]


def in_folded(entry: Entry, pattern: Pattern) -> bool:
    """Whether `pattern` occurs in what the model thought before this answer, or in the files of this question."""
    if entry.role != "assistant":
        return pattern.search(entry.text[: len(entry.text) - len(split_files(entry.text)[1])]) is not None
    thought = split_thought(entry.text)
    return thought is not None and pattern.search(thought.inside) is not None


def nearest(hits: Sequence[Hit], message: int) -> int:
    """Of some hits the last one in `message` or before it; else the first."""
    return max(0, bisect_right(hits, message, key=lambda hit: hit.message) - 1)


def place_of(hits: Sequence[Hit], hit: Hit) -> int:
    """Where `hit` is among some hits, or would be."""
    at = bisect_left(hits, (hit.message, hit.nth), key=lambda each: (each.message, each.nth))
    return min(at, max(0, len(hits) - 1))


def spans_in(rows: Sequence[Row], pattern: Pattern) -> list[list[tuple[int, Span]]]:
    """Each occurrence in what `rows` show, as (row, characters of its strip): several of them if it is wrapped."""
    line = ""
    cells: list[tuple[int, int, int]] = []
    """(offset in `line`, row, character of its strip)"""
    found: list[list[tuple[int, Span]]] = []
    for index, each in enumerate(rows):
        shown = each.strip.text
        cells.append((len(line), index, each.gutter if not each.offsets else 0))
        soft = each.glue != "\n" and not each.offsets and bool(each.text)
        line += (shown[each.gutter :].rstrip() + each.glue) if soft else shown[cells[-1][2] :]
        if not soft:
            found += [_pieces(match.span(), cells, len(line)) for match in pattern.finditer(line)]
            line, cells = "", []
    return found


def _pieces(span: Span, cells: Sequence[tuple[int, int, int]], end: int) -> list[tuple[int, Span]]:
    """The characters of a logical line between two offsets, row by row."""
    pieces = []
    for (offset, index, column), after in zip(cells, [*(each[0] for each in cells[1:]), end], strict=True):
        low, high = max(span[0], offset), min(span[1], after)
        if low < high:
            pieces.append((index, (column + low - offset, column + high - offset)))
    return pieces
