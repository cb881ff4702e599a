"""`bench typing`: the time to the first token of a long pasted message, read while it was typed, and not.

The message has about 2,000 tokens and goes on in a short conversation; both ways start from the same records and are measured in
turns, through the real client and engine process. With typing, the face's hint is sent and the engine works it off before Enter is
pressed: a paste that rests for as long as it takes to read it. The answers must have the same ids.
"""

import random
import statistics
import time
from typing import Any

from localkv.commands.bench import Say, bed_home
from localkv.commands.bench.bed_client import MODEL, WAIT_SECONDS, Asked, ask, look, open_client
from localkv.config import Config
from localkv.errors import EngineDied
from localkv.service.client import EngineClient
from localkv.service.protocol import Line, Typing

TOKENS = 2000
ROUNDS = 5
ANSWER_TOKENS = 16
LAST_TOKENS = 16
"""More than a word and the end of a turn in the starter's template."""

BLOCK_TOKENS = Config().engine.block_tokens
STORY = (
    "the harbour was quiet and ships lay still under grey morning sky while gulls slept on old stone walls near water "
    "when a man came down with his dog to look for boats that had not returned from sea last night"
)


def measure(say: Say) -> dict[str, Any]:
    """Medians of interleaved rounds."""
    with_typing: list[Asked] = []
    without: list[Asked] = []
    with bed_home.scratch_home() as home, open_client(home, Config()) as client:
        start = ask(client, "talk", [Line(role="user", text="Tell me about the sea.")], None, ANSWER_TOKENS)
        for i in range(ROUNDS):
            say(f"round {i}")
            text = " ".join(random.Random(i).choices(STORY.split(), k=TOKENS))
            for typed in (False, True):
                ask(client, "other", [Line(role="user", text="Something else.")], None)
                if typed:
                    _type(client, start, text, without[-1].done.numbers.prompt_tokens)
                question = Line(role="user", text=text)
                asked = ask(client, "talk", [*start.lines, question], start.head, ANSWER_TOKENS)
                (with_typing if typed else without).append(asked)
    same = [one.done.ids == other.done.ids for one, other in zip(with_typing, without, strict=True)]
    middle = statistics.median
    return {
        "with_s": middle([one.first_delta_s for one in with_typing]),
        "without_s": middle([one.first_delta_s for one in without]),
        "same_ids": all(same),
    }


def _type(client: EngineClient, start: Asked, text: str, prompt_tokens: int) -> None:
    """What is typed is told, and read: all whole blocks but for the last word and what the template puts behind it."""
    client.hint(Typing(request=0, conversation="talk", model=MODEL, lines=start.lines, text=text, head=start.head))
    wanted, until = (prompt_tokens - LAST_TOKENS) // BLOCK_TOKENS * BLOCK_TOKENS, time.monotonic() + WAIT_SECONDS
    while look(client).slot_tokens < wanted:
        if time.monotonic() > until:
            raise EngineDied(f"what was typed was not read within {WAIT_SECONDS:.0f} s; see localkv logs")
        time.sleep(0.1)
