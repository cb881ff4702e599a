"""The part of `bench tui` without an engine: opening, memory, streaming, the filter, search."""

import asyncio
import contextlib
import statistics
import time
from typing import Any

from localkv.chat.database import Database
from localkv.chat.store import ConversationStore
from localkv.commands.bench import Say
from localkv.config import Config
from localkv.paths import Home
from localkv.service.client import EngineClient
from localkv.service.turns import Chat
from localkv.tui.bench import filling
from localkv.tui.bench.headless import NoEngine, frame, rss_bytes, screen_of, until
from localkv.tui.pages import Entry
from localkv.tui.screen import ChatScreen

ROUNDS = 9
SHORT, LONG = 20, 2_000
FENCE_LINES = 300
FLUSHES = 300
CONVERSATIONS, MESSAGES = 10_000, 100_000
FILTERED = "number 42"
"""Typed letter by letter; the slowest letter counts."""


def measure(home: Home, say: Say) -> dict[str, Any]:
    """open_20_s, open_2000_s, rss_mb, flush_mean_ms, flush_p99_ms, filter_ms, search_ms."""
    with (
        contextlib.closing(ConversationStore.open(home.database, home.backups)) as store,
        contextlib.closing(Database.open(home.database, home.backups)) as database,
    ):
        keys = [(n, filling.talk(store, database, f"{n}, {i}", n)) for i in range(ROUNDS + 1) for n in (SHORT, LONG)]
        figures = asyncio.run(_long_conversations(home, store, keys, say))
        say(f"writing {MESSAGES:,} messages")
        filling.many(store, database, CONVERSATIONS, MESSAGES)
        return figures | asyncio.run(_many_conversations(home, store, say))


async def _long_conversations(home: Home, store: ConversationStore, keys: list[tuple[int, str]], say: Say) -> dict[str, Any]:
    """Each conversation is opened once: what was seen before is kept drawn."""
    async with _screen(home, store) as screen:
        say("opening conversations")
        seconds: dict[int, list[float]] = {SHORT: [], LONG: []}
        for n, key in keys:
            seconds[n].append(await frame(screen, lambda key=key: screen.open(key)))  # type: ignore[misc]
            await until(lambda n=n: len(screen.transcript.entries) == n, "all messages")  # type: ignore[misc]
        rss = rss_bytes()
        say("streaming")
        flushes = await _flushes(screen)
    return {
        "open_20_s": statistics.median(seconds[SHORT][1:]),
        "open_2000_s": statistics.median(seconds[LONG][1:]),
        "rss_mb": rss / 1e6,
        "flush_mean_ms": 1000 * statistics.fmean(flushes),
        "flush_p99_ms": 1000 * statistics.quantiles(flushes, n=100)[98],
    }


async def _flushes(screen: ChatScreen) -> list[float]:
    """Seconds of each step of an answer that is inside a fence of 300 lines, below 2,000 messages: shown and drawn."""
    text = "Here it is:\n\n```python\n" + "value = compute(1, [2, 3])  # as above\n" * FENCE_LINES
    transcript = screen.transcript
    transcript.go_end()
    transcript.put(Entry("live", "assistant", text, growing=True))
    await asyncio.sleep(0.1)
    flushes = []
    for index in range(FLUSHES):
        text += f"step{index} = value + {index}\n" if index % 3 == 2 else f"x{index}, "
        began = time.perf_counter()
        transcript.put(Entry("live", "assistant", text, growing=True))
        screen.show_facts()
        for y in range(transcript.scrollable_content_region.height):
            transcript.render_line(y)
        flushes.append(time.perf_counter() - began)
        await asyncio.sleep(0)
    return flushes


async def _many_conversations(home: Home, store: ConversationStore, say: Say) -> dict[str, Any]:
    async with _screen(home, store) as screen:
        say("filtering")
        letters: dict[int, list[float]] = {}
        for _ in range(ROUNDS):
            for end in range(1, len(FILTERED) + 1):
                taken = await frame(screen, lambda end=end: _filter(screen, FILTERED[:end]))  # type: ignore[misc]
                letters.setdefault(end, []).append(taken)
            _filter(screen, "")
        say("searching")
        words = filling.Words()
        queries = [words.word(0), f"{words.word(3)} {words.word(50)}", words.word(5_000), words.word(9)[:2], "nosuchword"]
        searches = {query: [_search(store, query) for _ in range(ROUNDS)] for query in queries}
    return {
        "filter_ms": 1000 * max(statistics.median(each) for each in letters.values()),
        "search_ms": 1000 * max(statistics.median(each) for each in searches.values()),
    }


def _filter(screen: ChatScreen, query: str) -> None:
    screen.sessions.filter(query)
    screen.show_facts()


def _search(store: ConversationStore, query: str) -> float:
    began = time.perf_counter()
    store.search(query)
    return time.perf_counter() - began


def _screen(home: Home, store: ConversationStore) -> contextlib.AbstractAsyncContextManager[ChatScreen]:
    chat = Chat(store, EngineClient(home, Config()))  # never asked
    return screen_of(home, Config(), store, chat, NoEngine(), f"{SHORT}, 0")
