"""Decode: one token after the other until something ends the answer.

Knows logits and ids; knows nothing of text, records or tiers. Thread: the engine's.

A sampled token has no KV yet: it is fed when the next one is wanted. So the last token of an answer is never fed here; if the
conversation goes on, the next turn feeds it.
"""

from collections.abc import Callable, Iterator
from threading import Event
from typing import Literal

import torch

from localkv.engine.live import Live
from localkv.engine.sample import Sampler
from localkv.engine.thrift import Thrifty

Ending = Literal["end", "stop_string", "max_tokens", "context_full", "cancelled"]


class Decoding:
    """One answer in the making: iterate to get its ids; afterwards `ending` says why it stopped."""

    def __init__(
        self, live: Live | Thrifty, sampler: Sampler, *, stop_ids: frozenset[int], room: int, max_tokens: int
    ) -> None:
        self._live = live
        self._sampler = sampler
        self._stop_ids = stop_ids
        self._room = room
        self._max_tokens = max_tokens
        self.ids: list[int] = []
        self.ending: Ending = "max_tokens"

    def run(self, logits: torch.Tensor, cancelled: Event, stopped: Callable[[], bool]) -> Iterator[int]:
        """Yield each id as it is drawn; `stopped` is asked after each (a stop string may be complete).

        `logits` are those after the prompt. Between two yields at most one token is fed.
        """
        while True:
            token = self._sampler.draw(logits, self._live.ids, self._live.position)
            self.ids.append(token)
            yield token
            if token in self._stop_ids:
                self.ending = "end"
            elif stopped():
                self.ending = "stop_string"
            elif cancelled.is_set():
                self.ending = "cancelled"
            elif len(self.ids) >= self._max_tokens:
                self.ending = "max_tokens"
            elif len(self.ids) >= self._room:
                self.ending = "context_full"
            else:
                logits = self._live.feed([token])
                continue
            return
