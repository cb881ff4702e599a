"""Who opens which conversation when: made-up traces with fixed seeds, and foreign ones from a file. Pure; knows no policy.

A visit needs a chain of blocks, first one first: the conversation's history and what is new. A block that was never seen before is
new and must be computed whatever a cache does; two visits share a block if and only if they give it the same name.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from localkv.errors import ConfigError

TALKS = 200
DAYS = 60
VISITS_A_DAY = 30
DAY = 86_400.0
BLOCK_TOKENS = 256

Block = tuple[object, int]
"""Whose it is (or a hash), and the number of its position in the chain."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A conversation is opened, and a message is sent and answered."""

    time: float
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """All visits of one person, in order of time."""

    name: str
    visits: tuple[Visit, ...]


@dataclass(frozen=True, slots=True)
class _Opening:
    time: float
    talk: int
    new_tokens: int


def made_up(seed: int) -> Iterator[Trace]:
    """One trace of each kind: 200 conversations with a median of 2,000 tokens, 60 days, some 30 visits a day."""
    for name, make in KINDS.items():
        rng = random.Random(f"{name} {seed}")
        lengths = [int(min(32_000, max(256, rng.lognormvariate(math.log(2000), 1.0)))) for _ in range(TALKS)]
        openings = make(rng, lengths)
        yield Trace(name, tuple(_visits(sorted(openings, key=lambda opening: opening.time), lengths)))


def _visits(openings: Sequence[_Opening], lengths: list[int]) -> Iterator[Visit]:
    for opening in openings:
        lengths[opening.talk] += opening.new_tokens
        n = lengths[opening.talk] // BLOCK_TOKENS
        yield Visit(opening.time, tuple((opening.talk, i) for i in range(n)))


def _zipf(rng: random.Random, lengths: Sequence[int]) -> list[_Opening]:
    """A few favourites, a long tail; each visit is independent of the others."""
    weights = _weights(rng, len(lengths))
    return [_opening(rng, time, rng.choices(range(len(lengths)), weights)[0]) for time in _times(rng)]


def _working_sets(rng: random.Random, lengths: Sequence[int]) -> list[_Opening]:
    """Each three days another dozen conversations get nine of ten visits: tasks that begin and end."""
    weights, dozen, since = _weights(rng, len(lengths)), [0], -1
    openings = []
    for time in _times(rng):
        if int(time // (3 * DAY)) != since:
            since, dozen = int(time // (3 * DAY)), rng.sample(range(len(lengths)), 12)
        strays = rng.random() < 0.1
        openings.append(_opening(rng, time, rng.choices(range(len(lengths)), weights)[0] if strays else rng.choice(dozen)))
    return openings


def _day_and_night(rng: random.Random, lengths: Sequence[int]) -> list[_Opening]:
    """Sixty conversations for work, sixty others after six."""
    talks = rng.sample(range(len(lengths)), 120)
    weights = _weights(rng, 60, 0.8)
    return [
        _opening(rng, time, rng.choices(talks[:60] if time % DAY < DAY * 0.75 else talks[60:], weights)[0])
        for time in _times(rng)
    ]


def _giant(rng: random.Random, lengths: list[int]) -> list[_Opening]:
    """Like zipf, and once a day one conversation that fills the RAM pool by itself."""
    lengths[0] = 30_000
    others = [opening for opening in _zipf(rng, lengths) if opening.talk]
    return others + [_Opening(day * DAY + rng.uniform(1 / 3, 1) * DAY, 0, 60) for day in range(DAYS)]


def _scan(rng: random.Random, lengths: Sequence[int]) -> list[_Opening]:
    """Like zipf, and every ten days somebody looks into all of them, one after the other."""
    looks = [_Opening(day * DAY + 0.3 * DAY + 15.0 * i, i, 0) for day in range(10, DAYS, 10) for i in range(len(lengths))]
    return _zipf(rng, lengths) + looks


KINDS: dict[str, Callable[[random.Random, list[int]], list[_Opening]]] = {
    "zipf": _zipf, "working sets": _working_sets, "day and night": _day_and_night, "one giant": _giant, "scan of all": _scan,
}  # fmt: skip


def _weights(rng: random.Random, n: int, exponent: float = 1.0) -> list[float]:
    ranks = rng.sample(range(1, n + 1), n)
    return [1 / rank**exponent for rank in ranks]


def _times(rng: random.Random) -> list[float]:
    """Between eight and midnight."""
    return sorted(day * DAY + rng.uniform(1 / 3, 1) * DAY for day in range(DAYS) for _ in range(VISITS_A_DAY))


def _opening(rng: random.Random, time: float, talk: int) -> _Opening:
    return _Opening(time, talk, int(min(3000, max(30, rng.lognormvariate(math.log(250), 0.8)))))


def from_file(path: Path) -> Trace:
    """A foreign trace: JSON lines of one of two shapes. Raises ConfigError.

    {"time": seconds, "conversation": any, "new_tokens": n}                 a conversation that grows
    {"timestamp": ms, "hash_ids": [...], "output_length": n, ...}           prefix blocks by hash, as Mooncake publishes them
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"the trace {path} cannot be read: {error.strerror}") from error
    lengths: dict[object, int] = {}
    visits = []
    for number, line in enumerate(lines, 1):
        try:
            visits += [_foreign(msgspec.json.decode(line, type=dict[str, Any]), lengths)] if line.strip() else []
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            wanted = '{"time": seconds, "conversation": name, "new_tokens": n}'
            raise ConfigError(f"{path}, line {number}: not a visit ({error!r}); wanted is {wanted}") from error
    if not visits:
        raise ConfigError(f"the trace {path} has no visits")
    return Trace(path.name, tuple(sorted(visits, key=lambda visit: visit.time)))


def _foreign(line: dict[str, Any], lengths: dict[object, int]) -> Visit:
    if "hash_ids" in line:
        return Visit(float(line["timestamp"]) / 1000, tuple((hashed, i) for i, hashed in enumerate(line["hash_ids"])))
    talk = str(line["conversation"])
    lengths[talk] = lengths.get(talk, 0) + int(line["new_tokens"])
    return Visit(float(line["time"]), tuple((talk, i) for i in range(lengths[talk] // BLOCK_TOKENS)))
