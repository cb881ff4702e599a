"""The live conversation: the model, the workspace it runs in, and the log of what was fed.

Knows the slot and the model, and how records are named; knows nothing of tiers or text. Thread: the engine's.

    ids      exactly what was fed, in order: len(ids) is the position
    names    of the full blocks that the workspace holds, first block first: len(names) <= len(ids) // S

Invariant: the workspace's state is the state after feeding `ids`, whatever route it came by.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache

from localkv.engine.slot import Slot
from localkv.kv.layout import Layout
from localkv.kv.record import Record, RecordKind, describe, empty_block, pack_ids


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


class Blank:
    """The workspace of a model that keeps its state where no cache can see it: every forward reads all tokens again."""

    cache = None

    def reset(self) -> None:
        """Nothing is kept."""

    def move_to(self, position: int) -> None:
        """Nothing is kept."""


class Live:
    """The conversation in the workspace."""

    def __init__(
        self,
        model: PreTrainedModel,
        workspace: Slot | Transient | Blank,
        layout: Layout | None,
        device: torch.device,
        root: str = "",
        fingerprint: str = "",
    ) -> None:
        """`root` is the parent of all chains of this model, `fingerprint` goes into each record; both unused without a layout."""
        self._model = model
        self.workspace = workspace
        self.layout = layout
        self._device = device
        self._root = root
        self._fingerprint = fingerprint
        self._furthest = 0
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

    @property
    def used_bytes(self) -> int:
        """Memory that the slot takes: all of it on a device, on CPU what was ever touched."""
        if self.layout is None:
            return 0
        if self._device.type != "cpu":
            return self.slot.n_bytes
        states = sum(state.n_bytes for _, state in self.layout.states)
        return self.layout.token_bytes * self._furthest + self.slot.sliding_bytes + states

    def leave(self, n_tokens: int) -> None:
        """Other state is about to be copied in; of the present one only the full blocks of the first `n_tokens` stay."""
        assert self.layout is not None
        del self.ids[n_tokens:]
        del self.names[n_tokens // self.layout.block_tokens :]

    def load(self, kind: RecordKind, start: int, end: int, payload: memoryview) -> None:
        """Copy the record of tokens [start, end) into the slot."""
        assert self.layout is not None
        tensor = torch.frombuffer(payload, dtype=torch.uint8)
        if kind == "block":
            self.slot.load_block(start // self.layout.block_tokens, tensor)
        else:
            self.slot.load_checkpoint(end, tensor)

    def adopt(self, ids: Sequence[int], names: Sequence[str]) -> None:
        """The state after `ids` is in the slot now, all of it copied in or there from before."""
        assert self.layout is not None
        if self.layout.only_full:
            self.workspace.move_to(len(ids))
        self.ids, self.names = list(ids), list(names)

    def rewind(self, position: int) -> None:
        """Drop the tokens after `position`. Only where full attention is all there is: nothing but lengths changes."""
        assert self.layout is not None
        assert self.layout.only_full
        self.workspace.move_to(position)
        self.leave(position)

    @property
    def has_unnamed_block(self) -> bool:
        """Whether a block became full that has no name yet."""
        return self.layout is not None and (len(self.names) + 1) * self.layout.block_tokens <= self.position

    def name_block(self, room: memoryview | None) -> Record:
        """Copy the first full block without a name into `room` and name it. Without room it gets its name all the same."""
        assert self.layout is not None
        size, i = self.layout.block_tokens, len(self.names)
        parent, ids = self.names[-1] if self.names else self._root, pack_ids(self.ids[i * size : (i + 1) * size])
        if not self.layout.block_bytes:
            record = empty_block(parent, ids, (i + 1) * size, self._fingerprint)
        else:
            payload = memoryview(bytearray(self.layout.block_bytes)) if room is None else room
            self.slot.save_block(i, torch.frombuffer(payload, dtype=torch.uint8))
            record = describe("block", parent, ids, (i + 1) * size, self._fingerprint, payload)
        self.names.append(record.name)
        return record

    def describe_end(self, room: memoryview) -> Record:
        """Copy the state at the live position into `room`, as long as that checkpoint's payload, and describe it."""
        assert self.layout is not None
        self.slot.save_checkpoint(self.position, torch.frombuffer(room, dtype=torch.uint8))
        parent, ids = self.names[-1] if self.names else self._root, self.ids[self.layout.tail_start(self.position) :]
        return describe("checkpoint", parent, pack_ids(ids), self.position, self._fingerprint, room)

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Run `ids` through the model; returns the logits [V] after the last of them, on the device."""
        cache = self.workspace.cache
        seen = ids if cache is not None else [*self.ids, *ids]
        state: dict[str, Any] = {"cache": cache, "use_cache": True} if cache is not None else {"use_cache": False}
        tokens = torch.tensor([seen], dtype=torch.long, device=self._device)
        with torch.inference_mode():
            out = self._model(tokens, logits_to_keep=1, **state)
        self.ids.extend(ids)
        self._furthest = max(self._furthest, len(self.ids))
        self.forwarded_tokens += len(seen)
        logits: torch.Tensor = out.logits[0, -1]
        return logits
