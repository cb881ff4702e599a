"""Messages that wait until the model is free: what `/queue` can do to them. Pure; both faces use it."""

from collections.abc import Sequence

from localkv.chat.visible import one_line
from localkv.errors import ConfigError
from localkv.units import whole_number

Texts = tuple[str, ...]

SHOWN_CHARACTERS = 60


def without(queue: Sequence[str], index: int) -> Texts:
    """`queue` without the message at `index`."""
    return (*queue[:index], *queue[index + 1 :])


def with_one(queue: Sequence[str], text: str, index: int | None = None) -> Texts:
    """`queue` with `text` before the message at `index`, or at the end."""
    at = len(queue) if index is None else min(index, len(queue))
    return (*queue[:at], text, *queue[at:])


def number_in(argument: str, queue: Sequence[str]) -> int:
    """The index that "delete 2" means. Raises ConfigError."""
    word, _, number = argument.partition(" ")
    if not queue:
        raise ConfigError("no message waits")
    index = whole_number(number)
    if not 1 <= index <= len(queue):
        raise ConfigError(
            f"/queue {brief(argument)}: write the number of a message that waits, 1 to {len(queue)}: /queue {word} 1"
        )
    return index - 1


def listed(queue: Sequence[str]) -> list[str]:
    """The messages that wait, each on one line."""
    return [f"{number}  {brief(text)}" for number, text in enumerate(queue, 1)] or ["no message waits"]


def brief(text: str, length: int = SHOWN_CHARACTERS) -> str:
    """The beginning of a message on one line, and how much follows."""
    line = one_line(text[: 4 * length])
    lines = text.count("\n") + 1
    more = f"  ({lines:,} lines)" if lines > 1 else ""
    return (line if len(line) <= length else line[: length - 1] + "…") + more
