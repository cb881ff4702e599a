"""Counting in fixed memory: quantiles against sorted lists."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.flows import LEAST, N_BUCKETS, PER_OCTAVE, Flow, Histogram

values = st.floats(LEAST, LEAST * 2 ** ((N_BUCKETS - 2) / PER_OCTAVE))
TOLERANCE = 2 ** (1 / PER_OCTAVE / 2) * 1.0001


def filled(numbers):
    histogram = Histogram()
    for number in numbers:
        histogram.add(number)
    return histogram


@given(st.lists(values, min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_right_to_within_half_a_bucket(numbers, share):
    """Against the value of that rank in the sorted list: at most 4.5 % off, whatever was counted."""
    true = sorted(numbers)[max(1, math.ceil(share * len(numbers))) - 1]
    found = filled(numbers).quantile(share)
    assert true / TOLERANCE <= found <= true * TOLERANCE


@given(st.lists(st.floats(0, 1e12), max_size=200))
def test_quantiles_are_in_order_and_all_is_counted(numbers):
    """p50 <= p90 <= p99, and no value is left out, however small or large."""
    spread = filled(numbers).spread()
    assert spread.count == len(numbers)
    assert 0 <= spread.p50 <= spread.p90 <= spread.p99


@given(st.lists(values, max_size=60), st.lists(values, max_size=60))
def test_the_order_of_adding_does_not_matter(some, others):
    """What is known is how many lie where."""
    assert filled([*some, *others]).buckets == filled([*others, *some]).buckets


def test_nothing_counted_is_zero():
    """Before the first measurement there is no time, and no error."""
    assert Histogram().spread().count == 0
    assert Histogram().spread().p99 == 0.0


def test_memory_stays_the_same():
    """A million measurements take the room of none."""
    histogram = Histogram()
    size = len(histogram.buckets)
    for i in range(10_000):
        histogram.add(float(i) ** 3)
    assert len(histogram.buckets) == size


def test_a_flow_adds_up():
    """Count, bytes, and durations in milliseconds."""
    flow = Flow()
    for seconds in (0.010, 0.010, 0.5):
        flow.add(100, seconds)
    assert (flow.count, flow.n_bytes) == (3, 300)
    assert flow.ms.spread().p50 == pytest.approx(10, rel=0.05)
    assert flow.ms.spread().p99 == pytest.approx(500, rel=0.05)
