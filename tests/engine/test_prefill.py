"""The prefill schedule: a pure function of start and end, with edges where blocks end."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from localkv.engine.prefill import FIRST_BLOCKS, chunks, prefill
from localkv.errors import Cancelled

SPANS = st.tuples(st.integers(0, 700), st.integers(0, 700)).map(sorted)
SIZES = st.sampled_from([16, 48, 256])
READINGS = st.sampled_from(["chunks", "tokens", "whole"])


class Log:
    """A live conversation that only counts."""

    def __init__(self, fed: int = 0) -> None:
        self.fed: list[list[int]] = [[0] * fed] if fed else []

    @property
    def position(self) -> int:
        return sum(map(len, self.fed))

    def feed(self, ids):
        self.fed.append(list(ids))
        return torch.tensor(float(self.position))


@given(SPANS, SIZES, READINGS)
def test_chunks_cover_the_span_once_and_in_order(span, size, reading):
    """Every token from start to end is read exactly once, however the model must be read."""
    start, end = span
    covered = [i for a, b in chunks(start, end, size, reading) for i in range(a, b)]
    assert covered == list(range(start, end))
    assert all(a < b for a, b in chunks(start, end, size, reading))


@given(SPANS, SIZES)
def test_edges_are_absolute(span, size):
    """All edges between the first and the last are multiples of the block length: whoever resumes at one meets the same chunks."""
    start, end = span
    edges = [b for _, b in chunks(start, end, size)][:-1]
    assert all(edge % size == 0 for edge in edges)
    assert all(b - a <= size for a, b in chunks(start, end, size))


@given(SPANS, SIZES, READINGS)
def test_a_resumed_schedule_is_the_rest_of_the_whole_one(span, size, reading):
    """Pausing after any chunk and going on gives the chunks that would have come anyway: no route leaves a trace."""
    start, end = span
    whole = chunks(start, end, size, reading)
    for i, (_, edge) in enumerate(whole):
        assert chunks(edge, end, size, reading) == whole[i + 1 :]


@given(SPANS, SIZES)
def test_losing_prompt_built_blocks_brings_the_same_chunks_again(span, size):
    """From any block edge on, a prefill reads what the prefill from zero read there."""
    start, end = span
    edge = start - start % size
    whole = chunks(0, end, size)
    assert chunks(edge, end, size) == [chunk for chunk in whole if chunk[0] >= edge]


@given(SPANS, SIZES)
def test_token_by_token_after_the_first_chunk(span, size):
    """Where a chunk forgets the state before it, only a chunk from nothing may be longer than a token, and its length is bounded."""
    start, end = span
    for a, b in chunks(start, end, size, "tokens"):
        assert b - a == 1 or (a == 0 and b <= FIRST_BLOCKS * size)


def test_prefill_feeds_the_rest_of_the_prompt():
    """What the live conversation has is not fed again."""
    live, prompt = Log(10), list(range(40))
    values = list(prefill(live, prompt, 16, threading.Event()))
    assert live.fed[1:] == [prompt[10:16], prompt[16:32], prompt[32:]]
    assert [float(value) for value in values] == [16.0, 32.0, 40.0]


def test_prefill_stops_between_chunks():
    """A stop is heard after one chunk, and what was fed stays."""
    live, cancelled = Log(), threading.Event()
    steps = prefill(live, list(range(40)), 16, cancelled)
    next(steps)
    cancelled.set()
    with pytest.raises(Cancelled):
        next(steps)
    assert live.position == 16
