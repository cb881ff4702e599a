"""Moving averages of what this machine can do, and what is predicted from them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localkv.kv.record import Head
from localkv.placement.plan import Ground, Question, SlotView, make_plan
from localkv.placement.rates import Rates, predict, predict_resume, rates_at_first
from tests.placement.worlds import IDENTITY, LAYOUTS, NOW, ROOT, SIZE, World

MIB = 1 << 20


def test_the_first_measurement_replaces_the_guess_and_later_ones_are_averaged():
    """One measurement is better than any guess; after that the newest counts three tenths."""
    rates = Rates().with_read(100 * MIB, 1.0)
    assert rates.read == 100 * MIB
    assert rates.measured == {"read"}
    assert rates.with_read(200 * MIB, 1.0).read == pytest.approx(130 * MIB)
    assert rates.copy == Rates().copy


def test_small_jobs_measure_nothing():
    """A few tokens or bytes take their fixed costs and say nothing about rates."""
    assert Rates().with_read(1000, 1.0).with_copy(1000, 1.0).with_prefill(5, 1.0) == Rates()
    assert Rates().with_prefill(640, 2.0).prefill == 320.0


def world():
    made, parent = World(LAYOUTS["only_full"]), ROOT
    for i in range(4):
        parent = made.add("block", parent, [i] * SIZE, 0, NOW, "ssd" if i < 2 else "ram")
    last = made.add("checkpoint", parent, [9] * 5, 0, NOW, "ram")
    return made, last


def test_a_plan_is_predicted_from_its_sources():
    """Bytes from SSD at the rate of reading, all bytes at the rate of copying, the rest of the prompt at that of prefill."""
    made, last = world()
    ground, head = Ground(made.layout, IDENTITY, NOW), Head(last, IDENTITY, 4 * SIZE + 5, NOW)
    prompt = [*made.path[last], *range(100, 110)]
    plan = make_plan(Question("me", prompt, head), SlotView(), made.index(), ground)
    rates = Rates(read=1000.0, copy=2000.0, prefill=20.0)
    forecast = predict(plan, rates)
    block, tail = made.layout.block_bytes, made.layout.checkpoint_bytes(4 * SIZE + 5)
    assert forecast.read_seconds == pytest.approx(2 * block / 1000)
    assert forecast.copy_seconds == pytest.approx((4 * block + tail) / 2000)
    assert forecast.restore_seconds == max(forecast.read_seconds, forecast.copy_seconds)
    assert forecast.prefill_seconds == pytest.approx(10 / 20)
    assert forecast.from_scratch_seconds == pytest.approx(len(prompt) / 20)
    assert predict_resume(head, made.index(), ground, rates).total_seconds == pytest.approx(forecast.restore_seconds)
    assert predict_resume(head, made.index(), ground, rates).farthest == forecast.farthest == "ssd"


def test_a_chain_with_a_hole_is_predicted_as_lost():
    """What can't be followed to its beginning will be computed again."""
    made, last = world()
    ground, head = Ground(made.layout, IDENTITY, NOW), Head(last, IDENTITY, 4 * SIZE + 5, NOW)
    made.where[next(iter(made.records))] = "evicted"
    rates = Rates(prefill=10.0)
    lost = predict_resume(head, made.index(), ground, rates)
    assert (lost.total_seconds, lost.farthest) == (pytest.approx((4 * SIZE + 5) / 10), "none")
    stranger = Head(last, "cd" * 20, 50, NOW)
    assert predict_resume(stranger, made.index(), ground, rates).total_seconds == pytest.approx(5.0)


def test_a_model_without_attention_resumes_from_its_checkpoint_alone():
    """Blocks without bytes cost nothing and are not looked for."""
    made, parent = World(LAYOUTS["empty_blocks"]), ROOT
    for i in range(3):
        parent = made.add("block", parent, [i] * SIZE, 0, NOW, "ssd")
    last = made.add("checkpoint", parent, [9] * 5, 0, NOW, "ssd")
    head = Head(last, IDENTITY, 3 * SIZE + 5, NOW)
    forecast = predict_resume(head, made.index(), Ground(made.layout, IDENTITY, NOW), Rates(read=8.0, copy=1e9))
    assert forecast.total_seconds == pytest.approx(made.layout.checkpoint_bytes(3 * SIZE + 5) / 8)


def seconds_of(forward, token, n_tokens, chunk):
    return -(-n_tokens // chunk) * forward + n_tokens * token


COSTS = {"forward": st.floats(1e-4, 0.5), "token": st.floats(1e-5, 0.1)}


@settings(deadline=None)
@given(n_tokens=st.integers(1, 5000), chunk=st.sampled_from([16, 256]), **COSTS)
def test_the_first_forecast_is_what_was_measured(forward, token, n_tokens, chunk):
    """Before any turn the time of a prompt of any length is that of its forwards and its tokens, not a guess."""
    rates = rates_at_first(token, forward, chunk)
    assert rates.computing(n_tokens) == pytest.approx(seconds_of(forward, token, n_tokens, chunk))
    assert rates.measured == {"prefill", "forward"}
    assert rates.computing(0) == 0
    longer = rates_at_first(token, forward, 1, first=chunk)
    assert longer.computing(n_tokens) == pytest.approx(seconds_of(forward, token, n_tokens, 1))
    forwards = 1 + max(0, n_tokens - chunk)
    assert longer.computing(n_tokens, at_start=True) == pytest.approx(forwards * forward + n_tokens * token)
    unknown = rates_at_first(0.0, 0.0, chunk)
    assert (unknown.measured, unknown.prefill) == (frozenset(), Rates().prefill)


@settings(deadline=None, max_examples=30)
@given(
    wrong=st.floats(0.2, 5.0),
    sizes=st.lists(st.tuples(st.integers(1, 63), st.integers(200, 3000)), min_size=30, max_size=30),
    **COSTS,
)
def test_turns_correct_a_pace_that_was_wrong(forward, token, wrong, sizes):
    """A machine that has become slower or faster is known by its turns: long ones tell the tokens, short ones the forwards."""
    rates = rates_at_first(token * wrong, forward * wrong, 256)
    for short, long in sizes:
        for n_tokens in (long, short):
            rates = rates.with_prefill(n_tokens, seconds_of(forward, token, n_tokens, 256))
    for n_tokens in (1, 30, 256, 2000):  # the quarter that is put down to tokens at least may be a third of the rest too much
        assert rates.computing(n_tokens) == pytest.approx(seconds_of(forward, token, n_tokens, 256), rel=0.36)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0.0, 100.0)), max_size=20), COSTS["forward"], COSTS["token"])
def test_no_measurement_leads_to_nonsense(jobs, forward, token):
    """Whatever turns took, what is computed costs something, more tokens never less, and nothing is negative."""
    rates = rates_at_first(token, forward, 256)
    for job in jobs:
        rates = rates.with_prefill(*job)
    assert rates.prefill > 0
    assert rates.forward >= 0
    assert 0 < rates.computing(1) <= rates.computing(300) < rates.computing(3000)
