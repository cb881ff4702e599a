"""Totals of an engine's life from the numbers of its turns."""

import pytest

from localkv.figures import Fallback, Numbers, Source
from localkv.tally import Tally, Turn


def test_fallbacks_count_turns_and_tokens_by_reason():
    """A turn with two reasons is one turn with a fallback, and one of each reason; tokens add up."""
    tally = Tally()
    tally.add(Numbers(prompt_tokens=900, fallbacks=(Fallback("evicted", 300), Fallback("checksum", 256))))
    tally.add(Numbers(prompt_tokens=900, fallbacks=(Fallback("evicted", 100), Fallback("evicted", 50))))
    tally.add(Numbers(prompt_tokens=900))
    assert (tally.turns, tally.fallback_turns) == (3, 2)
    assert tally.fallback_prefills == {"evicted": 2, "checksum": 1}
    assert tally.fallback_tokens == {"evicted": 450, "checksum": 256}


def test_restores_and_their_failures():
    """The rate is broken plans among plans that set out; bytes and times are of those that were carried out."""
    tally = Tally()
    assert tally.restores().failure_rate == 0
    tally.tried(failed=True)
    tally.tried(failed=False)
    tally.add(Numbers(restored=Source(ssd=256), restored_bytes=1000, restore_seconds=0.25))
    tally.tried(failed=False)
    tally.add(Numbers(restored=Source(ram=256), restored_bytes=500, restore_seconds=0.25))
    tally.add(Numbers(prompt_tokens=10))
    restores = tally.restores()
    assert (restores.tried, restores.failed, restores.n_bytes, restores.ms.count) == (3, 1, 1500, 2)
    assert restores.failure_rate == pytest.approx(1 / 3)
    assert restores.ms.p50 == pytest.approx(250, rel=0.05)


def test_a_turn_without_a_token_has_no_time_to_the_first():
    """A stopped turn neither counts as a fast one nor as a slow one."""
    tally = Tally()
    tally.add(Numbers())
    tally.add(Numbers(ttft_ms=120.0, tokens_per_second=40.0))
    assert tally.ttft_ms.spread().count == tally.tokens_per_second.spread().count == 1
    assert tally.ttft_ms.spread().p99 == pytest.approx(120, rel=0.05)
    assert tally.tokens_per_second.spread().p50 == pytest.approx(40, rel=0.05)


def test_a_prompt_is_read_when_its_first_token_can_be_drawn(monkeypatch):
    """A device computes behind the host's back: asked for after 0.1 s, done after 2.0. Later tokens are no part of it."""
    now = [10.0]
    monkeypatch.setattr("localkv.tally.time.monotonic", lambda: now[0])
    turn = Turn(began=10.0)
    turn.planning()
    now[0] += 0.5
    turn.restore_seconds = 0.5
    now[0] += 0.1
    turn.prefilled(256)
    now[0] += 1.9
    turn.drew()
    now[0] += 3.0
    turn.drew()
    numbers = turn.numbers()
    assert numbers.prefill_seconds == pytest.approx(2.0)
    assert numbers.ttft_ms == pytest.approx(2500)
    assert numbers.tokens_per_second == pytest.approx(1 / 3, abs=1e-3)


def test_time_is_saved_only_against_a_measured_rate():
    """Seconds saved are what restored tokens would have taken by this machine's own prefill, less the restore; never below 0."""
    tally = Tally()
    tally.add(Numbers(restored=Source(ram=1000), restore_seconds=0.5))
    assert tally.seconds_saved == 0, "no prefill was measured yet"
    tally.add(Numbers(prefilled_tokens=200, prefill_seconds=2.0))
    tally.add(Numbers(restored=Source(ram=1000), restore_seconds=0.5, prefilled_tokens=8, prefill_seconds=8.0))
    assert tally.seconds_saved == pytest.approx(1000 / 100 - 0.5), "a short prefill measures no rate"
    tally.add(Numbers(restored=Source(ram=10), restore_seconds=5.0))
    assert tally.seconds_saved == pytest.approx(1000 / 100 - 0.5)
