"""Opening tiny models through the product, in a home of a test: no copy of what `open_model` does."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from localkv.commands.bench import tiny
from localkv.commands.bench.player import BLOCK_TOKENS, CONFIG, scratch
from localkv.config import EngineSection, ModelSection
from localkv.engine.load import Loaded, load
from localkv.events import EventLog
from localkv.messages import Done, Line, Submit
from localkv.runtime import Runtime

ENGINE = EngineSection(device="cpu", threads=1, block_tokens=BLOCK_TOKENS)


def load_tiny(folder: Path, base: Path, engine: EngineSection = ENGINE, **section) -> Loaded:
    """The model of `folder` as the engine loads it."""
    return load(ModelSection(name=str(folder), **section), engine, scratch(base), lambda *_: None)


@contextlib.contextmanager
def runtime_of(folder: Path, base: Path, config=CONFIG, **section) -> Iterator[Runtime]:
    """A runtime with the model of `folder` open."""
    runtime = Runtime(scratch(base), config, EventLog(None), "test")
    try:
        runtime.prepare(ModelSection(name=str(folder), **section), lambda *_: None)
        yield runtime
    finally:
        runtime.close()


def ask(
    runtime: Runtime, *texts: str, head=None, lines=(), n_tokens: int = 8, name: str = "talk", keep_head: bool = False
) -> tuple[Done, tuple[Line, ...]]:
    """One greedy turn; returns Done, and the lines of the conversation with the answer."""
    assert runtime.opened is not None
    asked = (*lines, *(Line(role="user", text=text) for text in texts))
    replies = []
    sampling = tiny_sampling(n_tokens)
    section = runtime.opened.loaded.section
    submit = Submit(
        request=1, conversation=name, model=section, lines=asked, sampling=sampling, head=head, keep_head=keep_head
    )
    runtime.turn(submit, replies.append, threading.Event())
    started = next(reply for reply in replies if type(reply).__name__ == "Started")
    done = replies[-1]
    known = tuple(Line(role=line.role, text=line.text, ids=ids) for line, ids in zip(asked, started.line_ids, strict=True))
    return done, (*known, Line(role="assistant", text=done.text, ids=done.ids))


def tiny_sampling(n_tokens: int):
    from localkv.config import SamplingSection

    return SamplingSection(temperature=0, max_tokens=n_tokens)


def make(name: str, folder: Path, **changes) -> Path:
    """A tiny model folder."""
    return tiny.make_model(name, folder, **changes)
