"""Stored messages -> what the transcript shows of them. Pure."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from localkv.chat.tree import Message
from localkv.service.protocol import Numbers
from localkv.tui.clean import one_line
from localkv.tui.pages import Entry
from localkv.tui.panel import footnote

MARKS = {
    "stopped": "Stopped. F5 goes on.",
    "cut": "Cut off: the engine ended. F5 goes on.",
    "failed": "Failed. F5 tries to go on, ^r starts again.",
}
"""What is said beneath an answer that did not end by itself."""


def to_entries(messages: Iterable[Message], now: float) -> list[Entry]:
    """The messages of a path as entries."""
    return [to_entry(message, now) for message in messages]


def to_entry(message: Message, now: float) -> Entry:
    """One finished message as an entry."""
    numbers = to_numbers(message)
    return Entry(
        id=message.id,
        role=message.role,
        text=message.text,
        time=clock_time(message.created, now),
        notes=(footnote(numbers),) if numbers is not None and numbers.generated_tokens else (),
        mark=MARKS.get(message.state, ""),
    )


def to_numbers(message: Message) -> Numbers | None:
    """What the turn counted; None if nothing was stored, or something that this version does not know."""
    if not message.numbers:
        return None
    try:
        return msgspec.convert(message.numbers, Numbers)
    except msgspec.ValidationError:
        return None


def newest_numbers(messages: Sequence[Message]) -> Numbers | None:
    """The numbers of the newest answer that has some."""
    for message in reversed(messages):
        if message.role == "assistant" and (numbers := to_numbers(message)) is not None:
            return numbers
    return None


def questions(messages: Iterable[Message]) -> list[str]:
    """What was asked, oldest first, for recalling it."""
    return [message.text for message in messages if message.role == "user"]


def clock_time(created: float, now: float) -> str:
    """When something was said: the time today, with the date before."""
    then, today = time.localtime(created), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%d %b %H:%M" if then[0] == today[0] else "%d %b %Y", then)


def answer_text(entries: Sequence[Entry]) -> str:
    """The newest answer as the model wrote it; empty if there is none."""
    return next((entry.text for entry in reversed(entries) if entry.role == "assistant"), "")


def first_line(text: str) -> str:
    """`text` for a notice: one short line."""
    line = one_line(text)
    return line if len(line) <= 40 else line[:39] + "…"
