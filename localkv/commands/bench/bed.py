"""The test bed of benches: a runtime on the starter model in a scratch home, and turns on given ids.

Imports torch through the runtime. Thread: main. Figures come from the product's own turn; what it says of itself is measured
beside it with a clock, /proc and files.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from localkv.config import Config, ModelSection, SamplingSection
from localkv.events import EventLog
from localkv.kv.record import Head, pack_ids
from localkv.messages import AnyReply, Done, Line, Submit
from localkv.paths import Home
from localkv.runtime import Runtime

MODEL = ModelSection()
VOCABULARY = range(300, 40_000)
"""Ordinary ids of the starter model's tokenizer."""


@contextmanager
def open_runtime(home: Home, config: Config | None = None) -> Iterator[Runtime]:
    """A runtime with the starter model open."""
    runtime = Runtime(home, config or Config(), EventLog(None), "bench")
    try:
        runtime.prepare(MODEL, lambda *_: None)
        yield runtime
    finally:
        runtime.close()


def random_ids(n: int, seed: int) -> list[int]:
    """`n` ordinary token ids. Lists of other lengths or seeds begin otherwise, so that nothing of one is there for another."""
    return random.Random(f"{n} {seed}").choices(VOCABULARY, k=n)


def turn(
    runtime: Runtime,
    conversation: str,
    lines: Sequence[Sequence[int]],
    head: Head | None,
    n_tokens: int = 1,
    listen: Callable[[AnyReply], None] = lambda _: None,
) -> tuple[Done, list[AnyReply]]:
    """One greedy turn on `lines` of ids; returns Done and all replies. `listen` hears each when it comes."""
    replies: list[AnyReply] = []

    def emit(reply: AnyReply) -> None:
        replies.append(reply)
        listen(reply)

    submit = Submit(
        request=1,
        conversation=conversation,
        model=MODEL,
        lines=tuple(Line(role="user", text="", ids=pack_ids(ids)) for ids in lines),
        sampling=SamplingSection(temperature=0, max_tokens=n_tokens),
        head=head,
        keep_head=True,
    )
    runtime.turn(submit, emit, threading.Event())
    while runtime.idle():
        pass  # as between two requests
    done = replies[-1]
    assert isinstance(done, Done)
    return done, replies


def record_files(home: Home) -> list[Path]:
    """All record files of a home."""
    return sorted(home.store.rglob("*.safetensors"))


def drop_page_cache(files: Sequence[Path]) -> None:
    """Make the next read of `files` come from the disk."""
    os.sync()
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def disk_read_bytes(pid: int | str = "self") -> int:
    """Bytes that a process has caused to be read from disks, by the kernel's count."""
    return _counted(pid, "read_bytes:")


def disk_written_bytes(pid: int | str = "self") -> int:
    """Bytes that a process has caused to be written to disks, by the kernel's count."""
    return _counted(pid, "write_bytes:")


def _counted(pid: int | str, field: str) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(field)), 0)
