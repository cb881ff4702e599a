"""One answer under way: its ids, its text, its measurements.

Torch-free itself (the stream brings a tokenizer). Thread: the engine's.
"""

from localkv.chat.stream import TextStream
from localkv.errors import ContextFull, OutOfMemory
from localkv.events import EventLog
from localkv.kv.record import unpack_ids
from localkv.messages import Submit
from localkv.opened import Opened
from localkv.tally import Turn


class Answer:
    """What is being written in reply to `request`. An answer that is continued begins with what was there before."""

    def __init__(self, opened: Opened, request: Submit, prompt: list[int], turn: Turn) -> None:
        self.opened = opened
        self.request = request
        self.prompt = prompt
        self.turn = turn
        self.stream = TextStream(opened.loaded.tokenizer, (*request.sampling.stop, *opened.tokens.stop_strings))
        last = request.lines[-1]
        self._before = unpack_ids(last.ids) if last.role == "assistant" else []
        self._ids = list(self._before)
        for token in self._before:
            self.stream.push(token)

    def make_room(self, events: EventLog) -> None:
        """Have a slot that the prompt and the answer fit into.

        Raises ContextFull if not even one more token would, TooLittleMemory or OutOfMemory if there is none for the prompt.
        """
        n_prompt, limit = len(self.prompt), self.opened.context_tokens
        if n_prompt < limit:
            self.opened.grow(n_prompt + self.request.sampling.max_tokens, events)
            limit = self.opened.room_tokens
        if not limit:
            raise OutOfMemory(n_prompt, 0)
        if n_prompt >= limit:
            raise ContextFull(n_prompt, limit)
        self.opened.check_memory(n_prompt)

    def push(self, token: int) -> str:
        """The text that `token` makes safe to show."""
        self._ids.append(token)
        return self.stream.push(token)

    @property
    def ids(self) -> list[int]:
        """All ids of the answer; tokens past a stop string do not belong to it."""
        return self._ids[: self.stream.kept_ids] if self.stream.stopped else self._ids

    @property
    def end(self) -> int:
        """The position after the answer's last id."""
        return len(self.prompt) + max(0, len(self.ids) - len(self._before))
