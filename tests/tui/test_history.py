"""What the face remembers of the engine: bounded, in order, and nothing of what moved is lost or counted twice."""

from hypothesis import given
from hypothesis import strategies as st

from localkv.service.protocol import TierUse
from localkv.tui.history import FLOW_BINS, FLOW_SECONDS, LIMIT, History, Moment, levels, rises, thinned
from tests.tui.fakes import NUMBERS, snapshot

counts = st.integers(0, 1_000)
steps = st.lists(st.tuples(st.floats(-5, 100), counts, counts, st.booleans()), max_size=40)


def history_of(steps):
    """A face that saw these steps, and what moved meanwhile as the steps say it."""
    history, at, came, written, epoch, moved = History(), 1_000.0, 0, 0, 0, [0, 0]
    history.note(snapshot(epoch="0", ram=TierUse(swaps_in=0), written_bytes=0, turns=0), at)
    for seconds, more, bytes_, again in steps:
        at += seconds
        if again:
            epoch, came, written = epoch + 1, 0, 0
        came, written = came + more, written + bytes_
        moved = [moved[0] + more, moved[1] + bytes_]
        history.note(snapshot(epoch=str(epoch), ram=TierUse(swaps_in=came), written_bytes=written), at)
    return history, moved


@given(steps)
def test_counters_continue_over_engines_that_are_started_again(steps):
    """All that moved while the face looked is counted once, whatever engine counted it, and counters and times never fall."""
    history, moved = history_of(steps)
    assert [history.moments[-1].swaps_in[1], history.moments[-1].written] == moved
    for one, two in zip(history.moments, history.moments[1:], strict=False):
        assert one.at <= two.at
        assert one.swaps_in <= two.swaps_in
        assert one.written <= two.written


@given(st.lists(st.integers(), max_size=300), st.integers(3, 50))
def test_memory_is_bounded_and_both_ends_stay(kept, limit):
    """However long a face lives: at most `limit` moments, in order, the first and the newest among them."""
    left = thinned(kept, limit)
    assert len(left) <= limit
    rest = iter(range(len(kept)))
    assert all(any(kept[at] == each for at in rest) for each in left), "not in order"
    assert left[:1] == kept[:1]
    assert left[-1:] == kept[-1:]


def test_a_day_of_snapshots_takes_no_more_memory_than_ten_minutes():
    """One snapshot a second, each with a turn."""
    history = History()
    for second in range(5 * LIMIT):
        history.note(snapshot(turns=second), float(second))
    assert len(history.moments) <= LIMIT
    assert len(history.turns) <= LIMIT
    assert history.moments[-1].at == 5 * LIMIT - 1
    assert history.moments[0].at == 0


def test_ten_snapshots_a_second_are_one_moment():
    """While something streams the engine tells of itself ten times a second: the newest of each second stays."""
    history = History()
    for beat in range(100):
        history.note(snapshot(written_bytes=beat), beat / 10)
    assert len(history.moments) <= 12
    assert history.moments[-1].written == 99


def test_what_was_seen_before_is_not_noted_again():
    """A face that draws ten times a second without news notes nothing."""
    history, same = History(), snapshot()
    for at in range(10):
        history.note(same, float(at))
    assert len(history.moments) == 1


def test_a_turn_is_noted_when_it_is_over_and_not_the_one_before_the_face_came():
    """Its speed, its first token, and which part of its prompt was restored."""
    history = History()
    history.note(snapshot(turns=19), 0.0)
    assert history.turns == []
    history.note(snapshot(turns=20), 2.0)
    history.note(snapshot(turns=20), 4.0)
    (turn,) = history.turns
    assert (turn.at, turn.tokens_per_second, turn.ttft_seconds) == (2.0, NUMBERS.tokens_per_second, 0.34)
    assert turn.restored_share == 12_288 / 12_410


moments = st.lists(st.tuples(st.integers(0, 1_000), counts), max_size=40).map(
    lambda pairs: [
        Moment(float(at), written=sum(rise for _, rise in sorted(pairs)[: index + 1]))
        for index, (at, _) in enumerate(sorted(pairs))
    ]
)


@given(moments, st.integers(1, 80))
def test_bins_hold_all_that_rose_in_their_time(moments, bins):
    """A window over everything holds every rise after the first moment, each in one bin."""
    found = rises(moments, lambda moment: moment.written, -1.0, 1_001.0, bins)
    assert len(found) == bins
    assert sum(found) == (moments[-1].written - moments[0].written if moments else 0)


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(-50, 50)), max_size=40), st.integers(1, 80))
def test_levels_stay_between_what_was_seen(points, bins):
    """A column is never higher or lower than anything that was measured, and once something was seen there is no gap."""
    points = sorted(points)
    found = levels([(float(at), float(value)) for at, value in points], 200.0, 800.0, bins)
    assert len(found) == bins
    seen = [value for value in found if value is not None]
    for value in seen:
        assert min(v for _, v in points) <= value <= max(v for _, v in points)
    assert found[len(found) - len(seen) :] == seen


def test_a_sparkline_is_of_the_last_minutes():
    """What moved in the last quarter of a minute is at the right, what is older than the window is gone, and nothing moves twice."""
    history = History()
    start = 10_000 * FLOW_SECONDS
    history.note(snapshot(ram=TierUse(swaps_in=0, swaps_out=0)), start - 1)
    history.note(snapshot(ram=TierUse(swaps_in=5, swaps_out=2)), start + 1)
    assert history.flows(start + 2).swaps_in[1] == (*[0] * (FLOW_BINS - 1), 5)
    assert history.flows(start + 2).swaps_out[1][-1] == 2
    assert history.flows(start + 2) is history.flows(start + 3)
    later = start + (FLOW_BINS - 1) * FLOW_SECONDS
    assert history.flows(later + 1).swaps_in[1] == (5, *[0] * (FLOW_BINS - 1))
    assert not any(history.flows(later + FLOW_SECONDS + 1).swaps_in[1])


@given(st.lists(st.tuples(st.floats(0.1, 40), counts), max_size=40))
def test_sparklines_show_each_move_of_their_time_once(steps):
    """Whatever moved since the window began is in one of its parts, and nothing older is."""
    history, at, came = History(), 50_000.0, 0
    history.note(snapshot(ram=TierUse(swaps_in=0)), at)
    seen = []
    for seconds, more in steps:
        at, came = at + seconds, came + more
        seen.append((at, more))
        history.note(snapshot(ram=TierUse(swaps_in=came)), at)
    start = (int(at // FLOW_SECONDS) + 1 - FLOW_BINS) * FLOW_SECONDS
    shown = history.flows(at).swaps_in[1]
    assert len(shown) == FLOW_BINS
    assert sum(shown) >= sum(more for when, more in seen if when > start + 1)
    assert sum(shown) <= sum(more for when, more in seen if when > start - 1)
