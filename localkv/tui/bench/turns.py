"""The part of `bench tui` with an engine: what the screen takes from the speed of an answer, and how long it ever stands still
while a conversation is restored.

The answer of the screen and that of `say` come from one engine in turns: the same question in a new conversation each time, so
that both compute the same. Restores are from SSD once, by an engine that was started anew, and then from RAM.
"""

import asyncio
import contextlib
import io
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

from filelock import FileLock, Timeout

from localkv.chat.store import ConversationStore
from localkv.commands.bench import Say
from localkv.commands.output import ProgressLine
from localkv.commands.say import Output
from localkv.config import Config, EngineSection
from localkv.errors import EngineError
from localkv.paths import Home
from localkv.service.client import EngineClient
from localkv.service.turn_events import Finished
from localkv.service.turns import Chat, Turn
from localkv.tui.bench import filling
from localkv.tui.bench.headless import frame, screen_of, until
from localkv.tui.screen import TICKS_PER_SECOND, ChatScreen
from localkv.tui.stage import SETTLE_TICKS

ROUNDS = 5
RESTORES = 3
ANSWER_TOKENS = 96
QUESTION = "Write a long story about a lighthouse keeper and the sea. Tell all of it."
LONG_TEXT = "The keeper wrote down the wind, the tide and the ships that passed on that day. " * 110
"""About 2,000 tokens."""
LEAVE_SECONDS = 60.0
TICK_SECONDS = 0.002
SELDOM_SECONDS = 0.2
"""How often an answer is looked for: asking a hundred times a second woke this process more often than the screen did."""

REST_SECONDS = 3 * SETTLE_TICKS / TICKS_PER_SECOND
"""After an answer the screen's timer goes on until nothing moves, and once more when it has foreseen what may be opened."""

SETTINGS = Config(engine=EngineSection(preload="never"))
"""A conversation that is opened would come into the slot at once, and nothing be left to restore when it is asked something."""


def measure(home: Home, say: Say) -> dict[str, Any]:
    """tps_ratio and restore_stall_ms."""
    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as store:
        say("a conversation to come back to")
        client = EngineClient(home, SETTINGS)
        _finished(Chat(store, client).ask(filling.begin(store, "long", 4).id, LONG_TEXT))
        _finished(Chat(store, client).ask(filling.begin(store, "other", 4).id, "hello"))
        _leave(home, client)
        client = EngineClient(home, SETTINGS)
        try:
            return asyncio.run(_with_engine(home, store, client, say))
        finally:
            _leave(home, client)


async def _with_engine(home: Home, store: ConversationStore, client: EngineClient, say: Say) -> dict[str, Any]:
    async with screen_of(home, SETTINGS, store, Chat(store, client), client, "other") as screen:
        await until(lambda: screen.stage.engine.ready is not None, "the model")
        say("restoring")
        stalls = [await _restore(screen, store) for _ in range(RESTORES)]
        shown, said = [], []
        for number in range(ROUNDS + 1):
            say(f"answer {number}")
            shown.append(await _on_screen(screen, store, number))
            await asyncio.sleep(REST_SECONDS)
            said.append(await asyncio.to_thread(_by_say, store, client, number))
        await until(lambda: not screen.stage.runs.moving, "rest")
    ratio = statistics.median(shown[1:]) / statistics.median(said[1:])
    return {"tps_ratio": ratio, "restore_stall_ms": 1000 * max(stalls)}


async def _restore(screen: ChatScreen, store: ConversationStore) -> float:
    """The longest time for which the screen did nothing while a conversation came back and was asked something."""
    await _answered(screen, store, "other", "and?")
    key = store.by_name("long").id
    await frame(screen, lambda: screen.open(key))
    async with _watched() as gaps:
        screen.stage.ask("go on")
        run = screen.stage.runs.of(key)
        await until(lambda: run is None or run.over or run.phase.doing == "generating", "the first token")
    await until(lambda: not screen.stage.runs.busy(key), "the answer")
    numbers = store.path(key)[-1].numbers or {}
    restored = numbers.get("restored", {})
    if not restored.get("ram", 0) + restored.get("ssd", 0):
        raise EngineError(f"nothing was restored, so no stall can be measured: {numbers}")
    return max(gaps)


async def _on_screen(screen: ChatScreen, store: ConversationStore, number: int) -> float:
    """Tokens per second of an answer that is watched."""
    name = f"shown {number}"
    filling.begin(store, name, ANSWER_TOKENS)
    return await _answered(screen, store, name, QUESTION)


async def _answered(screen: ChatScreen, store: ConversationStore, name: str, question: str) -> float:
    key = store.by_name(name).id
    screen.open(key)
    screen.stage.ask(question)
    await until(lambda: not screen.stage.runs.busy(key), "the answer", SELDOM_SECONDS)
    numbers = store.path(key)[-1].numbers
    if not numbers:
        raise EngineError(f'the question in "{name}" got no answer: {store.path(key)[-1]}')
    return float(numbers["tokens_per_second"])


def _by_say(store: ConversationStore, client: EngineClient, number: int) -> float:
    """Tokens per second of an answer that is only printed, as `localkv say` prints it."""
    key = filling.begin(store, f"said {number}", ANSWER_TOKENS).id
    return _finished(Chat(store, client).ask(key, QUESTION))


def _finished(turn: Turn) -> float:
    output = Output(io.StringIO(), io.StringIO(), streams=True)
    bar = ProgressLine(output.errors)
    finished: Finished | None = None
    for event in turn.run():
        output.show(event, bar)
        finished = event if isinstance(event, Finished) else finished
    if finished is None or finished.numbers is None:
        raise EngineError(f"the engine did not answer: {finished.message if finished is not None else 'nothing came'}")
    return finished.numbers.tokens_per_second


@contextlib.asynccontextmanager
async def _watched() -> AsyncIterator[list[float]]:
    """How long the event loop let a task wait beyond what it asked for, again and again while the block runs."""
    gaps = [0.0]

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            gaps.append(time.perf_counter() - began - TICK_SECONDS)

    task = asyncio.create_task(tick())
    try:
        yield gaps
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _leave(home: Home, client: EngineClient) -> None:
    """Have all saved, and wait until the engine has ended."""
    client.leave(LEAVE_SECONDS)
    client.close()
    with contextlib.suppress(Timeout), FileLock(home.engine_lock, timeout=LEAVE_SECONDS):
        return
