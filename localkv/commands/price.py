"""What computing a conversation again costs, said before a person decides. Pure; figures are those of its own turns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from localkv.chat.tree import Message
from localkv.figures import Numbers
from localkv.kv.record import ID_BYTES
from localkv.units import format_count, format_seconds

ENOUGH_TOKENS = 16
"""A prefill of fewer tokens measures starting, not reading."""


@dataclass(frozen=True, slots=True)
class Price:
    """Tokens to be computed again, and how long that takes; None if no turn has measured it."""

    tokens: int
    seconds: float | None

    def sentence(self) -> str:
        """For the person who decides."""
        if not self.tokens:
            return "Nothing has been computed for this conversation yet: this costs nothing."
        time = "the time is not known yet" if self.seconds is None else f"about {format_seconds(self.seconds)}"
        return f"With the next message {format_count(self.tokens)} tokens are computed again: {time}."


def price_of(path: Sequence[Message]) -> Price:
    """The price of computing everything on this path again."""
    tokens = sum(len(message.ids) // ID_BYTES for message in path if message.role != "system")
    rate = _rate(reversed(path))
    return Price(tokens, tokens / rate if rate else None)


def _rate(newest_first: Iterable[Message]) -> float:
    """Tokens per second of the last prefill that was long enough; 0 if there is none."""
    for message in newest_first:
        numbers = _numbers(message)
        if numbers is not None and numbers.prefilled_tokens >= ENOUGH_TOKENS and numbers.prefill_seconds > 0:
            return numbers.prefilled_tokens / numbers.prefill_seconds
    return 0.0


def _numbers(message: Message) -> Numbers | None:
    try:
        return msgspec.convert(message.numbers, Numbers) if message.numbers else None
    except msgspec.ValidationError:
        return None  # of a version that counted otherwise
