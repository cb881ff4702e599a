"""What a model thought before it answered, told apart from the answer.

Pure. Thoughts stand at the start of a text in a <think> block; of a template that opens the block itself, only the closing
tag is there, on a line of its own. The same tags anywhere else are text like any other.
"""

import re
from dataclasses import dataclass

_OPENS = re.compile(r"\s*<think(?:ing)?>")
_CLOSES = re.compile(r"</think(?:ing)?>")
_CLOSES_LINE = re.compile(r"^[ \t]*</think(?:ing)?>[ \t]*$", re.MULTILINE)
_LONGEST_TAG = len("</thinking>")


@dataclass(frozen=True, slots=True)
class Thought:
    """A text in its two parts."""

    inside: str
    rest: str
    """The answer, from its first character that is not white space."""
    closed: bool


def split_thought(text: str) -> Thought | None:
    """The thoughts at the start of `text` and what follows; None if it begins with none."""
    opened = _OPENS.match(text)
    closed = _CLOSES.search(text, opened.end()) if opened else _CLOSES_LINE.search(text)
    if opened is None and closed is None:
        return None
    start = opened.end() if opened else 0
    if closed is None:
        return Thought(text[start:].strip("\n"), "", closed=False)
    return Thought(text[start : closed.start()].strip("\n"), text[closed.end() :].lstrip(), closed=True)


def begins_thought(text: str) -> bool:
    """Whether `text` begins with thoughts, as far as it goes."""
    return _OPENS.match(text) is not None


def closes_thought(text: str, new: int) -> bool:
    """Whether the last `new` characters of `text` complete a tag that ends thoughts."""
    return _CLOSES.search(text, max(0, len(text) - new - _LONGEST_TAG + 1)) is not None


def answer_of(text: str) -> str:
    """`text` without the thoughts before it; all of it if there is nothing else."""
    thought = split_thought(text)
    return thought.rest if thought is not None and thought.rest else text
