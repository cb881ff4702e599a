"""The uninterrupted run: what is answered where nothing is ever killed, saved, evicted or restored.

One face and one engine of its own for the whole rehearsal, in a home of its own; every conversation stays in the slot from its first
question to its last. Torch-free. Thread: main.
"""

from localkv.commands.drill.person import Person
from localkv.commands.drill.script import TURNS, name_of, question
from localkv.commands.drill.world import World


class Reference:
    """Answers by conversation and turn, asked for when they are wanted."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._person: Person | None = None
        self._known: dict[int, list[bytes]] = {}

    def ids(self, conversation: int) -> list[bytes]:
        """The token ids of all its messages, in their order."""
        if conversation not in self._known:
            self._known[conversation] = self._ask_all(conversation)
        return self._known[conversation]

    def close(self) -> None:
        """End face and engine, at once: nothing of theirs is kept."""
        if self._person is not None:
            self._person.kill()
        self._world.end_all()

    def _ask_all(self, conversation: int) -> list[bytes]:
        if self._person is None:
            self._person = Person(self._world, ["--private"])
            self._person.wait_for_prompt()
        lines = [f"/new {name_of(conversation)}", *(question(conversation, turn) for turn in range(TURNS))]
        for line in lines:
            self._person.type(line)
            self._person.wait_for_prompt()
        path = self._world.path(name_of(conversation))
        assert path is not None, "a conversation whose last question was answered is there"
        return [message.ids for message in path]
