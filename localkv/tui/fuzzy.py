"""How well a few typed characters fit a text: all of them in order, best at the beginnings of words and side by side. Pure."""

_START, _NEXT, _EARLY = 6, 8, 4
_FAR = 16
"""Beyond this character it no longer matters how early a match begins."""


def score(query: str, text: str) -> int | None:
    """How well `query` fits, more is better; None if a word of it is not in `text` as a subsequence."""
    text = text.casefold()
    total = 0
    for word in query.casefold().split():
        found = _score_word(word, text)
        if found is None:
            return None
        total += found
    return total


def _score_word(word: str, text: str) -> int | None:
    """The best of all ways to find the characters of `word` in `text` that begin with a given first character."""
    best: int | None = None
    start = text.find(word[0])
    while start >= 0:
        found = _score_from(word, text, start)
        if found is None:
            break
        best = found if best is None else max(best, found)
        start = text.find(word[0], start + 1)
    return best


def _score_from(word: str, text: str, start: int) -> int | None:
    total = _EARLY * max(0, _FAR - start) // _FAR
    at, before = start, -2
    for character in word:
        at = text.find(character, at)
        if at < 0:
            return None
        begins = at == 0 or not text[at - 1].isalnum()
        total += 1 + (_NEXT if at == before + 1 else 0) + (_START if begins else 0)
        before = at
        at += 1
    return total
