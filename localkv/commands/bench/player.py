"""A player of conversations for the exactness matrix: a runtime with one tiny model open, whose logits can be seen.

Turns are the product's own; logits are seen by a forward hook on the model, so nothing of the product is changed or copied.
A Talk is what a face would keep of a conversation. Imports torch. Thread: main.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from transformers import DynamicCache

from localkv.config import Config, EngineSection, MemorySection, ModelSection, SamplingSection
from localkv.events import EventLog
from localkv.kv.record import Head, pack_ids, unpack_ids
from localkv.messages import AnyReply, Done, Line, Submit
from localkv.opened import Opened
from localkv.paths import Home
from localkv.runtime import Runtime

BLOCK_TOKENS = 16

CONFIG = Config(
    engine=EngineSection(device="cpu", threads=1, block_tokens=BLOCK_TOKENS),
    memory=MemorySection(ram_pool="64 MiB", ssd_store="1 GiB", ssd_free_floor="0 B"),
)


@dataclass(frozen=True, slots=True)
class Heard:
    """A turn as it was seen: what it said of itself, and the logits that each of its tokens was drawn from."""

    done: Done
    logits: tuple[torch.Tensor, ...]

    @property
    def ids(self) -> list[int]:
        return unpack_ids(self.done.ids)


class Talk(msgspec.Struct, frozen=True):
    """A conversation as a face keeps it."""

    name: str
    lines: tuple[Line, ...] = ()
    head: Head | None = None

    def question(self, ids: Sequence[int]) -> "Talk":
        """The conversation with one more question."""
        return Talk(self.name, (*self.lines, Line(role="user", text="", ids=pack_ids(ids))), self.head)

    def answered(self, heard: Heard) -> "Talk":
        """The conversation with that answer."""
        lines = self.lines[:-1] if self.lines[-1].role == "assistant" else self.lines
        answer = Line(role="assistant", text=heard.done.text, ids=heard.done.ids)
        return Talk(self.name, (*lines, answer), heard.done.head)

    @property
    def ids(self) -> list[int]:
        return [token for line in self.lines for token in unpack_ids(line.ids)]


class Player:
    """A runtime with one model open, whose logits can be seen."""

    def __init__(self, home: Home, section: ModelSection, config: Config = CONFIG) -> None:
        self.section = section
        self.home = home
        self.events = EventLog(None, keep=10_000)
        self.runtime = Runtime(home, config, self.events, "matrix")
        self.runtime.prepare(section, lambda *_: None)
        self._seen: list[torch.Tensor] = []
        self.opened.loaded.model.register_forward_hook(self._see)

    @property
    def opened(self) -> Opened:
        """The model that is open."""
        opened = self.runtime.opened
        assert opened is not None
        return opened

    def _see(self, _module: Any, _given: Any, out: Any) -> None:
        self._seen.append(out.logits[0, -1].clone())

    def ask(self, talk: Talk, n_tokens: int, stop_when: Callable[[AnyReply], bool] = lambda _: False) -> Heard:
        """The answer to the last line of `talk`, drawn at temperature 1; cancelled at the first reply that `stop_when` names."""
        self._seen.clear()
        replies: list[AnyReply] = []
        cancelled = threading.Event()

        def emit(reply: AnyReply) -> None:
            replies.append(reply)
            if stop_when(reply):
                cancelled.set()

        submit = Submit(
            request=1, conversation=talk.name, model=self.section, lines=talk.lines, head=talk.head,
            sampling=SamplingSection(temperature=1.0, top_p=1.0, max_tokens=n_tokens),
        )  # fmt: skip
        self.runtime.turn(submit, emit, cancelled)
        done = replies[-1]
        assert isinstance(done, Done)
        drawn = done.numbers.generated_tokens
        return Heard(done, tuple(self._seen[len(self._seen) - drawn :]))

    def one_shot(self, ids: Sequence[int]) -> torch.Tensor:
        """The logits after `ids`, through transformers' own cache in one forward."""
        loaded = self.opened.loaded
        with torch.inference_mode():
            cache = DynamicCache(config=loaded.text_config)
            out = loaded.model(torch.tensor([list(ids)]), cache=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def leave(self) -> None:
        """Another conversation takes the slot."""
        self.ask(Talk("other").question(token_ids(BLOCK_TOKENS + 3, 999)), 1)

    def to_ssd_only(self) -> None:
        """Everything is saved, and leaves slot and RAM."""
        self.leave()
        self.runtime.flush(60.0)
        keeper = self.opened.keeper
        assert keeper is not None
        keeper.shed()

    def lose(self, name: str) -> None:
        """The file of the record `name` disappears from the disk."""
        for file in self.home.store.rglob(f"{name}.safetensors"):
            file.unlink()

    def close(self) -> None:
        """Let go of the model."""
        self.runtime.close()


@contextmanager
def playing(home: Home, section: ModelSection, config: Config = CONFIG) -> Iterator[Player]:
    """A Player; closed at the end."""
    player = Player(home, section, config)
    try:
        yield player
    finally:
        player.close()


def token_ids(n: int, seed: int) -> list[int]:
    """`n` ordinary ids of a tiny model."""
    return random.Random(seed).choices(range(3, 500), k=n)


def scratch(base: Path) -> Home:
    """A home below `base`, made."""
    home = Home(base / "config", base / "data", base / "cache", base / "models")
    home.prepare()
    return home
