"""Which conversations a few typed letters mean: the letters in their order, ranked by how well they fit and how new it is.

Pure. A match at the beginning of a word counts more, letters that stand together count more, and of two that fit equally
well the newer one comes first.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from localkv.tui.listing import Item

_RUN, _WORD, _FIRST, _WHOLE = 5.0, 4.0, 2.0, 2.0
_GAP = 0.05
_RECENT = 1.0
"""What today's conversation is worth over one of long ago: less than a beginning of a word."""
_HALF_LIFE = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Found:
    """An item, and where the letters are in its title; none where they are in its name or tags alone."""

    item: Item
    at: tuple[int, ...]
    score: float


def ranked(items: Sequence[Item], query: str, now: float, limit: int = 50) -> list[Found]:
    """The best matches for all words of `query`; for none of them, the newest items. Pinned ones have no advantage here."""
    words = query.casefold().split()
    found = [match for item in items if (match := _match(item, words, now)) is not None]
    return heapq.nsmallest(limit, found, key=lambda match: (-match.score, -match.item.updated))


def letters(text: str, word: str) -> tuple[int, ...] | None:
    """Where the letters of `word` stand in `text`, both folded, in order; None if they do not. Whole words before parts."""
    at = _whole(text, word)
    if at >= 0:
        return tuple(range(at, at + len(word)))
    places: list[int] = []
    start = 0
    for letter in word:
        start = text.find(letter, start)
        if start < 0:
            return None
        places.append(start)
        start += 1
    return tuple(_tightened(text, places))


def _match(item: Item, words: list[str], now: float) -> Found | None:
    title = item.title.casefold()
    aligned = len(title) == len(item.title)
    score = _RECENT * 0.5 ** (max(0.0, now - item.updated) / _HALF_LIFE)
    places: set[int] = set()
    for word in words:
        at = letters(title, word)
        if at is not None:
            places.update(at if aligned else ())
            score += _worth(title, at)
        elif (at := letters(item.folded, word)) is not None and at[-1] - at[0] < 2 * len(word) + 2:
            score += _worth(item.folded, at) / 2
        else:
            return None
    return Found(item, tuple(sorted(places)), score)


def _whole(text: str, word: str) -> int:
    """The best place of the whole word: at the beginning of a word, else anywhere; -1 for none."""
    first = at = text.find(word)
    while at > 0:
        if not text[at - 1].isalnum():
            return at
        at = text.find(word, at + 1)
    return at if at == 0 else first


def _tightened(text: str, places: list[int]) -> list[int]:
    """The same letters as near to the last one as they go: "bc" in "b x bc" is the second b."""
    result = [places[-1]]
    for place in reversed(places[:-1]):
        result.append(text.rfind(text[place], 0, result[-1]))
    return result[::-1]


def _worth(text: str, at: tuple[int, ...]) -> float:
    score = 0.0
    for index, place in enumerate(at):
        if place == 0:
            score += _WORD + _FIRST
        elif not text[place - 1].isalnum():
            score += _WORD
        if index and place == at[index - 1] + 1:
            score += _RUN
        elif index:
            score -= _GAP * (place - at[index - 1])
        score += 1.0
    return score / len(at) + (_WHOLE if at[-1] - at[0] == len(at) - 1 else 0.0)
