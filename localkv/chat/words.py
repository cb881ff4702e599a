"""Words in a text: what matches them, and the text around a place where they stand.

Pure. Case does not matter, any white space is like any other, and emphasis of Markdown may begin or end between words.
"""

import re

from localkv.chat.visible import one_line

Pattern = re.Pattern[str]

_BETWEEN = r"[*_`~]*\s+[*_`~]*"
_AROUND = 40


def pattern_of(words: str) -> Pattern | None:
    """What matches `words`; None if there are none."""
    parts = [re.escape(part) for part in words.split()]
    return re.compile(_BETWEEN.join(parts), re.IGNORECASE) if parts else None


def excerpt(text: str, match: re.Match[str]) -> str:
    """The text around a match on one line, harmless."""
    start, end = max(0, match.start() - _AROUND), min(len(text), match.end() + _AROUND)
    shown = one_line(text[start:end])
    return ("…" if start else "") + shown + ("…" if end < len(text) else "")
