"""One answer under way: its ids, its text, its measurements.

Torch-free itself (the stream brings a tokenizer). Thread: the engine's.
"""

from localkv.chat.stream import TextStream
from localkv.errors import ContextFull
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

    def refuse_overlong(self) -> None:
        """Raises ContextFull if there is no room for even one more token."""
        limit = self.opened.context_tokens
        if len(self.prompt) >= limit:
            raise ContextFull(len(self.prompt), limit)

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
