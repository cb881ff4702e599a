"""Feeding a model where memory runs out: what is tried before the person is told.

    1  others give back what they can, and the same chunk is tried again: the same bits
    2  chunks are halved, down to LEAST_TOKENS, for the rest of the turn: close, not equal, and said so
    3  OutOfMemory

A forward that failed half way has written into some layers and not into others. With full attention alone the position is set back
and nothing is lost; any other state is torn, and is built again from records and tokens (`rebuild`). Knows the live conversation;
knows nothing of tiers or plans. Thread: the engine's.
"""

from collections.abc import Callable, Sequence

import torch

from localkv.engine.live import Live
from localkv.errors import OutOfMemory

LEAST_TOKENS = 16
"""Halving ends here: the weights' own workspace does not shrink with the chunk."""

TRIES = 24
"""Failures in one turn after which it is given up, whatever was freed in between."""
PATIENCE = 3
"""Failures of pieces of one size, with something freed after each, after which they are taken to be too long all the same."""


class Thrifty:
    """A Live that goes on in smaller pieces when memory runs out; one per turn.

    `relieve` frees what can be freed and returns how many bytes that was; `rebuild` brings the state after the ids it is given, or
    after the first of them, back into the workspace.
    """

    def __init__(
        self,
        live: Live,
        block_tokens: int,
        relieve: Callable[[], int],
        rebuild: Callable[[Sequence[int]], None],
        *,
        one_by_one: bool = False,
    ) -> None:
        """`one_by_one`: the model may read only the first chunk of a conversation as a chunk (prefill.py)."""
        self._live = live
        self._relieve = relieve
        self._rebuild = rebuild
        self._block_tokens = block_tokens
        self._one_by_one = one_by_one
        self._failures = 0
        self._in_vain = 0
        """Failures of pieces of the present size since one went through."""
        self._most = 0
        """Tokens per piece; 0: as they come."""
        self._rebuilt = False

    @property
    def ids(self) -> list[int]:
        return self._live.ids

    @property
    def position(self) -> int:
        return self._live.position

    @property
    def because(self) -> str:
        """Why this turn's bits may differ from those of one with memory to spare; empty if they don't."""
        if self._most:
            return f"memory ran out: read in pieces of at most {self._most} tokens"
        return "memory ran out: the state was built again" if self._rebuilt else ""

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """The logits after `ids`, fed in as many pieces as it takes. Raises OutOfMemory; the state is then that before, or blank."""
        goal = [*self._live.ids, *ids]
        logits: torch.Tensor | None = None
        while self._live.position < len(goal):
            piece = goal[self._live.position :][: self._size()]
            try:
                logits = self._live.feed(piece)
                self._in_vain = 0
            except OutOfMemory as shortage:
                self._make_do(shortage, len(piece))
                self._mend()
        assert logits is not None, "at least one token is fed"
        return logits

    def _size(self) -> int | None:
        """How many tokens the next piece may have; pieces end at absolute multiples of the limit, like chunks."""
        limit = self._most or (self._block_tokens if self._rebuilt else 0)
        if not limit:
            return None
        return 1 if self._one_by_one and self._live.position else limit - self._live.position % limit

    def _make_do(self, shortage: OutOfMemory, n_tokens: int) -> None:
        self._failures, self._in_vain = self._failures + 1, self._in_vain + 1
        freed = self._relieve()
        if self._failures == 1 or (freed and self._in_vain <= PATIENCE and self._failures < TRIES):
            return
        if n_tokens <= LEAST_TOKENS or self._failures >= TRIES:
            if self._live.torn:
                self._live.reset()
            raise shortage
        self._in_vain = 0
        self._most = max(LEAST_TOKENS, 1 << (n_tokens.bit_length() - 2))

    def _mend(self) -> None:
        """Have a torn state built again, as far as records go; what is missing then is fed like the rest."""
        if self._live.torn:
            self._rebuilt = True
            self._rebuild(list(self._live.ids))
