"""Stored messages -> what the transcript shows of them. Pure."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from localkv.chat.thoughts import answer_of
from localkv.chat.tree import Message
from localkv.commands.keymap import Keymap
from localkv.service.protocol import Numbers
from localkv.tui.clean import one_line
from localkv.tui.keys import with_keys
from localkv.tui.pages import Entry
from localkv.tui.panel import footnote
from localkv.tui.thinking import measure, share

MARKS = {
    "stopped": "Stopped. [continue] goes on.",
    "cut": "Cut off: the engine ended. [continue] goes on.",
    "failed": "Failed. [continue] tries to go on, [retry] starts again.",
}
"""What is said beneath an answer that did not end by itself; keys by the [id] of what they do."""


Places = Mapping[str, tuple[int, int]]
"""Of messages that have several versions: which one it is, from 1, and of how many."""


def to_entries(messages: Iterable[Message], now: float, places: Places) -> list[Entry]:
    """The messages of a path as entries."""
    return [to_entry(message, now, places) for message in messages]


def to_entry(message: Message, now: float, places: Places) -> Entry:
    """One finished message as an entry."""
    numbers = to_numbers(message)
    place = places.get(message.id)
    return Entry(
        id=message.id,
        role=message.role,
        text=message.text,
        time=clock_time(message.created, now),
        notes=(footnote(numbers),) if numbers is not None and numbers.generated_tokens else (),
        mark=MARKS.get(message.state, ""),
        versions=f"< {place[0]}/{place[1]} >" if place is not None else "",
        thought=_thought(message.text, numbers) if numbers is not None else "",
    )


def with_named_keys(entries: Sequence[Entry], keymap: Keymap) -> list[Entry]:
    """`entries` whose marks name keys."""
    return [replace(entry, mark=with_keys(entry.mark, keymap)) if entry.mark else entry for entry in entries]


def _thought(text: str, numbers: Numbers) -> str:
    """How long its thoughts took: as they were counted; of answers from before they were, by their share."""
    if numbers.thought_tokens:
        return measure(numbers.thought_tokens, numbers.thought_seconds, exact=True)
    return share(text, numbers.generated_tokens, numbers.tokens_per_second)


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


def clock_time(created: float, now: float) -> str:
    """When something was said: the time today, with the date before."""
    then, today = time.localtime(created), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%d %b %H:%M" if then[0] == today[0] else "%d %b %Y", then)


def answer_text(entries: Sequence[Entry]) -> str:
    """The newest answer as the model wrote it, without its thoughts; empty if there is none."""
    return next((answer_of(entry.text) for entry in reversed(entries) if entry.role == "assistant"), "")


def first_line(text: str) -> str:
    """`text` for a notice: one short line."""
    line = one_line(text)
    return line if len(line) <= 40 else line[:39] + "…"
