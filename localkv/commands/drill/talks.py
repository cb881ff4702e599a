"""The conversations of a rehearsal: which one goes on, what is said next, and whether what is stored is what was shown and expected.

Torch-free. Thread: main. An answer is finished when its numbers are stored. Finished ones are in the ledger, and stay what they are.
"""

import random

from localkv.chat.tree import Message
from localkv.commands.drill.person import Person
from localkv.commands.drill.reference import Reference
from localkv.commands.drill.report import Tally
from localkv.commands.drill.script import TURNS, name_of, question
from localkv.commands.drill.world import World

ACTIVE = 3
"""Conversations that take turns."""


class Talks:
    """All conversations, by number."""

    def __init__(self, world: World, reference: Reference, rng: random.Random, tally: Tally) -> None:
        self._world = world
        self._reference = reference
        self._rng = rng
        self._tally = tally
        self._active = list(range(ACTIVE))
        self.ledger: dict[str, Message] = {}
        self.unfinished: int | None = None
        """The one whose last question has no whole answer yet."""

        self.favoured: int | None = None
        """The one that goes on next if none was interrupted."""

    def next(self) -> int:
        """Which conversation goes on: one that was interrupted first."""
        for number in (self.unfinished, self.favoured):
            if number is not None:
                return number
        return self._rng.choice(self._active)

    def head(self, number: int) -> str | None:
        """The newest record of a conversation; None if it has none."""
        path = self._world.path(name_of(number)) or []
        return next((message.head.name for message in reversed(path) if message.head is not None), None)

    def begin(self, number: int, person: Person) -> None:
        """Say the next thing in it; returns without waiting for the answer."""
        name, path = name_of(number), self._world.path(name_of(number))
        if person.open_name != name:
            person.type(f"/open {name}" if path is not None else f"/new {name}")
            person.wait_for_prompt()
            person.open_name = name
        self.unfinished, self.favoured = number, None
        person.type(_next_line(number, path or []))

    def conclude(self, number: int, person: Person) -> None:
        """The prompt is there again: judge what was answered."""
        shown, path = person.answer(), self._world.path(name_of(number)) or []
        last = path[-1] if path else None
        if last is None or last.role != "assistant":
            return
        if shown not in (last.text, f"{last.text}\n"):
            self._tally.add("lost_messages", [f"the answer {last.id} is stored otherwise than it was shown"])
        if last.numbers is None:
            return
        self.unfinished = None
        self.ledger.update((message.id, message) for message in path)
        self._tally.answers += 1
        if last.numbers["exact"]:
            self._compare(number, path)
        if len(path) >= 2 * TURNS:
            self._active[self._active.index(number)] = max(self._active) + 1

    def check_cut(self, number: int, shown: str) -> None:
        """The face was killed while it wrote: what it had shown a second before, `shown`, must be stored."""
        path = self._world.path(name_of(number)) or []
        stored = path[-1].text if path and path[-1].role == "assistant" else ""
        if not stored.startswith(shown):
            what = f"of an answer in {name_of(number)} {len(stored)} characters are stored, and {len(shown)} had been shown"
            self._tally.add("lost_messages", [what])

    def check_asked(self, number: int) -> None:
        """The engine has had the question: it must be stored."""
        path = self._world.path(name_of(number)) or []
        if not any(message.role == "user" for message in path[-2:]):
            self._tally.add("lost_messages", [f"a question in {name_of(number)} is not stored and was being answered"])

    def _compare(self, number: int, path: list[Message]) -> None:
        """Against the uninterrupted run, as long as both have said the same so far."""
        expected, ids = self._reference.ids(number), [message.ids for message in path]
        if ids[:-1] != expected[: len(ids) - 1]:
            return
        self._tally.compared += 1
        if ids[-1] != expected[len(ids) - 1]:
            what = f"answer {len(ids) // 2} of {name_of(number)} says that it is exact and differs from the uninterrupted run"
            self._tally.add("wrong_restores", [what])


def _next_line(number: int, path: list[Message]) -> str:
    if path and path[-1].numbers is None:
        return "/retry"  # a question without an answer, or with a cut one
    return question(number, len(path) // 2)
