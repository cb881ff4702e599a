"""The live conversation: the model, the workspace it runs in, and the log of what was fed.

Knows the slot and the model; knows nothing of tiers, names' meaning or text. Thread: the engine's.

    ids      exactly what was fed, in order: len(ids) is the position
    names    of the full blocks that the workspace holds, first block first: len(names) <= len(ids) // S

Invariant: the workspace's state is the state after feeding `ids`, whatever route it came by.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache

from localkv.engine.slot import Slot
from localkv.kv.layout import Layout


class Workspace(Protocol):
    """Where a model keeps its state while it runs."""

    cache: Cache

    def reset(self) -> None:
        """Start at token 0."""

    def move_to(self, position: int) -> None:
        """The state at `position` is in place."""


class Transient:
    """The workspace of a model whose state cannot be kept: transformers' own cache, made anew each turn."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self.cache: Cache = DynamicCache(config=config)

    def reset(self) -> None:
        """Start at token 0."""
        self.cache = DynamicCache(config=self._config)

    def move_to(self, position: int) -> None:
        """Only to where it is: this workspace cannot be restored."""


class Live:
    """The conversation in the workspace."""

    def __init__(self, model: PreTrainedModel, workspace: Slot | Transient, layout: Layout | None, device: torch.device) -> None:
        self._model = model
        self.workspace = workspace
        self.layout = layout
        self._device = device
        self.ids: list[int] = []
        self.names: list[str] = []
        self.forwarded_tokens = 0
        """Tokens that went through the model since the start: the count behind every "computed" in the numbers."""

    @property
    def slot(self) -> Slot:
        """The workspace as a slot. Only for models that are cached."""
        assert isinstance(self.workspace, Slot)
        return self.workspace

    @property
    def position(self) -> int:
        return len(self.ids)

    def reset(self) -> None:
        """Forget the conversation."""
        self.workspace.reset()
        self.ids, self.names = [], []

    def adopt(self, ids: Sequence[int], names: Sequence[str]) -> None:
        """The state after `ids` has been copied into the slot."""
        self.ids, self.names = list(ids), list(names)

    def rewind(self, position: int) -> None:
        """Drop the tokens after `position`. Only where full attention is all there is: nothing but lengths changes."""
        assert self.layout is not None
        assert self.layout.only_full
        self.workspace.move_to(position)
        del self.ids[position:]
        del self.names[position // self.layout.block_tokens :]

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Run `ids` through the model; returns the logits [V] after the last of them, on the device."""
        tokens = torch.tensor([ids], dtype=torch.long, device=self._device)
        with torch.inference_mode():
            out = self._model(tokens, cache=self.workspace.cache, use_cache=True, logits_to_keep=1)
        self.ids.extend(ids)
        self.forwarded_tokens += len(ids)
        logits: torch.Tensor = out.logits[0, -1]
        return logits
