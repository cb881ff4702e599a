"""The live conversation: the model, the workspace it runs in, and the log of what was fed.

Knows the slot and the model, and how records are named; knows nothing of tiers or text. Thread: the engine's.

    ids      exactly what was fed, in order: len(ids) is the position
    names    of the full blocks that the workspace holds, first block first: len(names) <= len(ids) // S
    end      of the checkpoint that is exactly the state at the position; empty if no record is

Names come later than bytes: a record's name covers its bytes, which must have left the device first (localkv.admission).

Invariant: the workspace's state is the state after feeding `ids`, whatever route it came by.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache

from localkv.engine.arena import Arena
from localkv.engine.copier import Mark
from localkv.engine.shortage import CANDIDATES, is_shortage, let_go
from localkv.engine.slot import Slot
from localkv.errors import OutOfMemory
from localkv.kv.layout import Layout
from localkv.kv.record import RecordKind


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

    def catch_up(self) -> None:
        """Nothing is copied in or out."""


class Blank:
    """The workspace of a model that keeps its state where no cache can see it: every forward reads all tokens again."""

    cache = None

    def reset(self) -> None:
        """Nothing is kept."""

    def move_to(self, position: int) -> None:
        """Nothing is kept."""

    def catch_up(self) -> None:
        """Nothing is copied in or out."""


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
        arena: Arena | None = None,
    ) -> None:
        """`root` is the parent of all chains of this model, `fingerprint` goes into each record; both unused without a layout.

        `arena` is the memory of the pool on the device, if there is one.
        """
        self._model = model
        self.workspace = workspace
        self.layout = layout
        self._device = device
        self.root = root
        self.fingerprint = fingerprint
        self._arena = arena
        self._furthest = 0
        self.torn = False
        """A forward failed half way: layers stand at different positions, and only `reset` or `adopt` makes the workspace sound."""
        self.ids: list[int] = []
        self.names: list[str] = []
        self.end = ""
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
        self.ids, self.names, self.end, self.torn = [], [], "", False

    @property
    def used_bytes(self) -> int:
        """Memory that the slot takes: all of it on a device, on CPU what was ever touched."""
        if self.layout is None:
            return 0
        if self._device.type != "cpu":
            return self.slot.n_bytes
        states = sum(state.n_bytes for _, state in self.layout.states)
        return self.layout.token_bytes * self._furthest + self.slot.sliding_bytes + states

    def bytes_to_touch(self, n_tokens: int) -> int:
        """Memory that `n_tokens` would take beyond what was ever touched; 0 on a device, which has taken all of it."""
        if self.layout is None or self._device.type != "cpu":
            return 0
        return self.layout.token_bytes * max(0, n_tokens - self._furthest)

    def resize(self, context_tokens: int) -> None:
        """A slot for `context_tokens`, blank. Raises OutOfMemory: it is as large as before, and blank."""
        self._furthest = 0
        try:
            self.slot.resize(context_tokens)
        finally:
            self.reset()

    def leave(self, n_tokens: int) -> None:
        """Other state is about to be copied in; of the present one only the full blocks of the first `n_tokens` stay."""
        assert self.layout is not None
        del self.ids[n_tokens:]
        del self.names[n_tokens // self.layout.block_tokens :]
        self.end = ""

    def load(self, kind: RecordKind, start: int, end: int, payload: memoryview | range) -> Mark:
        """Copy the record of tokens [start, end) into the slot, from host memory or from the arena's bytes `payload`.

        Host memory may be reused when the mark is reached; the arena's at once.
        """
        assert self.layout is not None
        tensor, resident = self._tensor(payload)
        if kind == "block":
            return self.slot.load_block(start // self.layout.block_tokens, tensor, resident=resident)
        return self.slot.load_checkpoint(end, tensor, resident=resident)

    def send_block(self, index: int, room: memoryview | range) -> Mark:
        """Copy the full block `index` out, into host memory or the arena. The bytes are there when the mark is reached."""
        tensor, resident = self._tensor(room)
        return self.slot.save_block(index, tensor, resident=resident)

    def send_end(self, room: memoryview | range) -> Mark:
        """Copy the state at the live position out; `room` is as long as that checkpoint's payload."""
        tensor, resident = self._tensor(room)
        return self.slot.save_checkpoint(self.position, tensor, resident=resident)

    def _tensor(self, memory: memoryview | range) -> tuple[torch.Tensor, bool]:
        """The bytes of `memory`, and whether they are on the device."""
        if isinstance(memory, range):
            assert self._arena is not None, "only a pool on the device has places there"
            return self._arena.view(memory), True
        # without bytes there is nothing to share
        return (torch.frombuffer(memory, dtype=torch.uint8) if memory else torch.empty(0, dtype=torch.uint8)), False

    def give_up_arena(self) -> None:
        """The memory of the pool on the device goes; its places must not be used any more."""
        self._arena = None

    def adopt(self, ids: Sequence[int], names: Sequence[str]) -> None:
        """The state after `ids` is in the slot now, all of it copied in or there from before."""
        assert self.layout is not None
        if self.layout.only_full:
            self.workspace.move_to(len(ids))
        self.ids, self.names, self.end, self.torn = list(ids), list(names), "", False

    def rewind(self, position: int) -> None:
        """Drop the tokens after `position`. Only where full attention is all there is: nothing but lengths changes."""
        assert self.layout is not None
        assert self.layout.only_full
        self.workspace.move_to(position)
        self.leave(position)

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Run `ids` through the model; returns the logits [V] after the last of them, on the device.

        Raises OutOfMemory: the state is then that before, or `torn`.
        """
        self.workspace.catch_up()
        cache = self.workspace.cache
        seen = ids if cache is not None else [*self.ids, *ids]
        state: dict[str, Any] = {"cache": cache, "use_cache": True} if cache is not None else {"use_cache": False}
        tokens = torch.tensor([seen], dtype=torch.long, device=self._device)
        try:
            with torch.inference_mode():
                out = self._model(tokens, logits_to_keep=1, **state)
        except CANDIDATES as error:
            if not is_shortage(error):
                raise
            let_go(error)
            self._step_back()
            raise OutOfMemory(len(ids), self.position) from error
        self.ids.extend(ids)
        self.end = ""
        self._furthest = max(self._furthest, len(self.ids))
        self.forwarded_tokens += len(seen)
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def _step_back(self) -> None:
        """After a forward that failed half way: lengths alone are set back; any other state is torn."""
        if self.layout is not None and self.layout.only_full:
            self.workspace.move_to(self.position)
        else:
            self.torn = self.workspace.cache is not None
