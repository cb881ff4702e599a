"""What must not grow with the length of a conversation or the number of conversations: ratios within one process."""

import asyncio
import statistics
import time

import pytest

from localkv.config import ModelSection, SamplingSection
from localkv.tui.pages import Entry
from tests.tui.conftest import play, until
from tests.tui.samples import EVERYTHING

ROUNDS = 7


def long_talk(world, name, n_messages):
    """A conversation written in one transaction; its id."""
    store = world.store
    conversation = store.create(name, model=ModelSection(), sampling=SamplingSection()).id
    parent = None
    with store._database.writing() as connection:
        for index in range(n_messages):
            role = "assistant" if index % 2 else "user"
            message = store._new(conversation, parent, role, EVERYTHING if index % 2 else f"question {index}", "complete")
            store._add(connection, message)
            parent = message.id
    return conversation


@pytest.mark.slow
def test_a_long_conversation_opens_like_a_short_one(world):
    """From the key to the frame that shows it, 2,000 messages take at most twice what 20 take."""
    names = {n: long_talk(world, f"n{n}", n) for n in (20, 2_000)}
    seconds = {n: [] for n in names}

    async def scene(pilot):
        screen = pilot.app.chat_screen
        read_rest = screen.stage._show_whole
        painted = asyncio.Event()
        at = []

        def mark():
            at.append(time.perf_counter())
            painted.set()

        screen.stage._show_whole = lambda **facts: (mark(), read_rest(**facts))
        for _ in range(ROUNDS):
            for n, conversation in names.items():
                painted.clear()
                began = time.perf_counter()
                screen.open(conversation)
                if n == 20:
                    screen.call_after_refresh(mark)
                await painted.wait()
                seconds[n].append(at[-1] - began)
                await until(pilot, lambda n=n: len(screen.transcript.entries) == n, "all messages")
        assert statistics.median(seconds[2_000]) <= 2 * statistics.median(seconds[20])

    play(world.app(), scene, size=(120, 36))


@pytest.mark.slow
def test_a_flush_follows_what_is_new(world):
    """Line 300 of an open fence, below 2,000 messages, costs at most five times what line 10 costs below 20."""

    async def scene(pilot):
        screen = pilot.app.chat_screen

        async def flush(conversation, n_lines):
            screen.open(conversation)
            await pilot.pause(0.1)
            transcript = screen.transcript
            text = "```python\n" + "x = compute(1)\n" * n_lines
            seconds = []
            for index in range(30):
                text += f"y{index} = compute({index})\n"
                began = time.perf_counter()
                transcript.put(Entry("live", "assistant", text, growing=True))
                for y in range(transcript.scrollable_content_region.height):
                    transcript.render_line(y)
                seconds.append(time.perf_counter() - began)
            return statistics.median(seconds)

        # In turns, the best of each side: what else the machine does hits both.
        rounds = [(await flush(names[20], 10), await flush(names[2_000], 300)) for _ in range(3)]
        assert min(long for _, long in rounds) <= 5 * min(short for short, _ in rounds)

    names = {n: long_talk(world, f"n{n}", n) for n in (20, 2_000)}
    play(world.app(), scene, size=(120, 36))
