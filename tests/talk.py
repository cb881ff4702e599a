"""Turns on a real runtime inside the test process: small words for tests that tell a story."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from localkv.config import Config, EngineSection, ModelSection, SamplingSection
from localkv.events import EventLog
from localkv.kv.record import Head, unpack_ids
from localkv.messages import AnyReply, Done, Line, Started, Submit
from localkv.paths import Home
from localkv.runtime import Runtime

ONE_THREAD = Config(engine=EngineSection(threads=1))
"""Two threads on two busy cores wait for one another most of the time; for the promises one is as good."""

TEXT = "The harbour was quiet and the ships lay still under the grey morning sky while the gulls slept. "


@contextmanager
def open_runtime(home: Home, model: ModelSection | None = None, config: Config | None = None) -> Iterator[Runtime]:
    """A runtime with `model` open: one engine process in the eyes of the store."""
    runtime = Runtime(home, config or ONE_THREAD, EventLog(None), "test")
    try:
        runtime.prepare(model or ModelSection(), lambda *_: None)
        yield runtime
    finally:
        runtime.close()


@dataclass
class Story:
    """A conversation as a face would keep it."""

    name: str = "story"
    lines: tuple[Line, ...] = ()
    head: Head | None = None
    replies: list[AnyReply] = field(default_factory=list)

    def ask(
        self,
        runtime: Runtime,
        text: str,
        n: int = 12,
        model: ModelSection | None = None,
        cancel: threading.Event | None = None,
    ) -> Done:
        """Ask, and keep question, answer and head."""
        lines = (*self.lines, Line(role="user", text=text))
        sampling = SamplingSection(temperature=0, max_tokens=n)
        submit = Submit(
            request=1, conversation=self.name, model=model or ModelSection(), lines=lines, sampling=sampling, head=self.head
        )
        self.replies = []
        runtime.turn(submit, self.replies.append, cancel or threading.Event())
        started = next(reply for reply in self.replies if isinstance(reply, Started))
        done = self.replies[-1]
        assert isinstance(done, Done)
        fed = [Line(role=line.role, text=line.text, ids=ids) for line, ids in zip(lines, started.line_ids, strict=True)]
        self.lines = (*fed, Line(role="assistant", text=done.text, ids=done.ids))
        self.head = done.head
        return done

    def copy(self) -> "Story":
        """The same conversation, as another process would load it."""
        return Story(self.name, self.lines, self.head)


def ids_of(done: Done) -> list[int]:
    """The answer's ids."""
    return unpack_ids(done.ids)


def prompt_of(lines: Sequence[Line]) -> list[int]:
    """All ids of a conversation."""
    return [token for line in lines for token in unpack_ids(line.ids)]
