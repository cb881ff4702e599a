"""What a model thought before it answered, told apart from the answer.

Thoughts stand at the start of a text in a <think> block; of a template that opens the block itself, only the closing
tag is there, on a line of its own. The same tags anywhere else are text like any other. Pure.
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


def answer_of(text: str) -> str:
    """`text` without the thoughts before it; all of it if there is nothing else."""
    thought = split_thought(text)
    return thought.rest if thought is not None and thought.rest else text


class ThoughtMeter:
    """How many tokens and seconds a model thinks in one turn, counted as they come.

    Several tokens may come at once: of those that come with the end of the thoughts, the share of the text counts.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._last = 0.0
        self._tokens = 0
        self._ended = False

    def take(self, text: str, new: int, n_tokens: int, now: float) -> None:
        """`text` is the answer so far; its last `new` characters came `now` with `n_tokens`."""
        if self._ended:
            return
        if not self._tokens:
            self._began = now
        self._last = now
        closes = _CLOSES.search(text, max(0, len(text) - new - _LONGEST_TAG + 1))
        if closes is not None and (thought := split_thought(text)) is not None and thought.closed:
            self._ended = True
            n_tokens = round(n_tokens * (1 - (len(text) - closes.end()) / max(1, new)))
        self._tokens += n_tokens

    def so_far(self, text: str) -> tuple[int, float]:
        """Tokens and seconds of the thoughts in `text`, the answer so far; nothing of an answer without any."""
        if not self._ended and not _is_thinking(text):
            return 0, 0.0
        return self._tokens, self._last - self._began


def _is_thinking(text: str) -> bool:
    """Whether all of `text` are thoughts so far: in an answer that went on they may have ended before."""
    opened = _OPENS.match(text)
    return opened is not None and _CLOSES.search(text, opened.end()) is None
