"""`bench ttft`: the time to the first token in a conversation that was never left, that comes back from RAM, and from SSD.

Two conversations of 4,096 tokens and messages of eight, which take turns: one that is asked twice in a row is, the second time, one
that was never left. The clock is the face's: from sending Submit to receiving the first Delta, through the real client, socket and
engine process; work ahead is off. For SSD, RAM holds fewer records than one conversation has, and the page cache is dropped before
each turn; the yardstick beside it reads the same block files raw, with the cache dropped again. What the engine's thread does with
the old conversation when another one comes is timed in a runtime inside this process.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localkv.commands.bench import Say, bed, bed_home
from localkv.commands.bench.bed_client import Asked, ask, look, open_client, wait_for_saves
from localkv.commands.bench.switch import read_all
from localkv.config import Config, EngineSection, MemorySection
from localkv.events import read_events
from localkv.kv.record import Head, pack_ids
from localkv.paths import Home
from localkv.service.client import EngineClient
from localkv.service.protocol import Line

TOKENS = 4096
QUESTION_TOKENS = 8
ROUNDS = 8
"""Two pairs in each: sixteen."""

QUIET = EngineSection(preload="never")
LITTLE_RAM = "64 MiB"
NAMES = ("first", "second")


@dataclass(slots=True)
class Talk:
    """A conversation that goes on from turn to turn."""

    name: str
    seed: int
    asked: int = 0
    lines: tuple[Line, ...] = ()
    head: Head | None = None
    files: list[Path] = field(default_factory=list)

    def begin(self, client: EngineClient) -> None:
        """Its first TOKENS tokens."""
        self._take(ask(client, self.name, [_line(bed.random_ids(TOKENS, self.seed))], None))

    def go_on(self, client: EngineClient) -> Asked:
        """Another message of QUESTION_TOKENS tokens."""
        self.asked += 1
        question = _line(bed.random_ids(QUESTION_TOKENS, 1000 * self.seed + self.asked))
        return self._take(ask(client, self.name, [*self.lines, question], self.head))

    def _take(self, asked: Asked) -> Asked:
        self.lines, self.head = asked.lines, asked.head
        return asked


def measure(say: Say) -> dict[str, Any]:
    """Medians of sixteen interleaved pairs."""
    with bed_home.scratch_home() as home:
        talks = [Talk(name, seed) for seed, name in enumerate(NAMES, 1)]
        never_left, ram = _from_ram(home, talks, say)
        ssd, read, began_after = _from_ssd(home, talks, say)
    with bed_home.scratch_home() as home:
        leave = _leaving(home, say)
    middle = statistics.median
    return {
        "never_left_s": middle(never_left),
        "ram_s": middle(ram),
        "ssd_s": middle(ssd),
        "ssd_read_s": middle(read),
        "leave_ms": middle(leave),
        "restore_began_after_submit": began_after,
    }


def _from_ram(home: Home, talks: list[Talk], say: Say) -> tuple[list[float], list[float]]:
    never_left, ram = [], []
    with open_client(home, Config(engine=QUIET)) as client:
        for talk in talks:
            before = set(bed.record_files(home))
            talk.begin(client)
            wait_for_saves(client)
            talk.files = sorted(set(bed.record_files(home)) - before)
        for i in range(ROUNDS):
            say(f"RAM, round {i}")
            for talk in talks:
                back = talk.go_on(client)
                wait_for_saves(client)  # what is saved beside a turn slows it
                stayed = talk.go_on(client)
                assert back.done.numbers.restored.ram >= TOKENS, back.done.numbers
                assert stayed.done.numbers.restored.slot >= TOKENS, stayed.done.numbers
                ram.append(back.first_delta_s)
                never_left.append(stayed.first_delta_s)
                wait_for_saves(client)
    return never_left, ram


def _from_ssd(home: Home, talks: list[Talk], say: Say) -> tuple[list[float], list[float], bool]:
    """Times, raw reads beside them, and whether nothing was read for a turn before it was asked."""
    ssd, read, began_after, config = [], [], True, Config(engine=QUIET, memory=MemorySection(ram_pool=LITTLE_RAM))
    buffer = memoryview(bytearray(max(sum(file.stat().st_size for file in talk.files) for talk in talks)))
    with open_client(home, config) as client:
        for i in range(ROUNDS):
            say(f"SSD, round {i}")
            for talk in talks:
                bed.drop_page_cache(bed.record_files(home))
                back = talk.go_on(client)
                assert back.done.numbers.restored.ssd >= TOKENS, back.done.numbers
                ssd.append(back.first_delta_s)
                began_after = began_after and _read_since(home, back.sent_at, talk)
                wait_for_saves(client)
                bed.drop_page_cache(talk.files)
                began = time.perf_counter()
                read_all(talk.files, buffer)
                read.append(time.perf_counter() - began)
        began_after = began_after and not look(client).preloads.loaded
    return ssd, read, began_after


def _read_since(home: Home, sent_at: float, talk: Talk) -> bool:
    """Whether all blocks of `talk` were read after this moment."""
    names = {file.stem[:12] for file in talk.files}
    moves = [event for event in read_events(home.event_log, 400) if event.kind == "move" and event.fields.get("from") == "ssd"]
    return names <= {str(event.fields["record"]) for event in moves if event.time >= sent_at}


def _leaving(home: Home, say: Say) -> list[float]:
    """Milliseconds of the engine's thread for the state that leaves the slot, before anything of the next one is brought."""
    say("leaving")
    took: list[float] = []
    with bed.open_runtime(home, Config(engine=QUIET)) as runtime:
        heads = [bed.turn(runtime, name, [bed.random_ids(TOKENS, i)], None)[0].head for i, name in enumerate(NAMES)]
        opened = runtime.opened
        assert opened is not None
        assert opened.admission is not None
        spent = _Stopwatch()
        opened.admission.park = spent.timed(opened.admission.park)  # type: ignore[method-assign]
        opened.live.leave = spent.timed(opened.live.leave)  # type: ignore[method-assign]
        for i in range(2 * ROUNDS):
            spent.seconds = 0.0
            which = i % 2
            question = bed.random_ids(QUESTION_TOKENS, 100 + i)
            bed.turn(runtime, NAMES[which], [bed.random_ids(TOKENS, which), question], heads[which])
            took.append(1000 * spent.seconds)
    return took


@dataclass(slots=True)
class _Stopwatch:
    """Adds up what some calls take."""

    seconds: float = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args)
            finally:
                self.seconds += time.perf_counter() - began

        return run


def _line(ids: list[int]) -> Line:
    return Line(role="user", text="", ids=pack_ids(ids))
