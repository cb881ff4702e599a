"""Which records are looked at closely when many must go."""

from hypothesis import given
from hypothesis import strategies as st

from localkv.placement.index import Entry, Saving
from localkv.placement.judge import Judge
from localkv.tiers.catalogue import Row
from tests.placement.worlds import LAYOUTS


@st.composite
def forests(draw):
    made = []
    for i in range(draw(st.integers(1, 20))):
        parent = draw(st.sampled_from([None, *made]))
        position = (parent.row.position if parent else 0) + 16
        used = float(draw(st.integers(0, 9)))
        row = Row(f"{i:x}", "block", parent.row.name if parent else "root", "", position, "", 80, "", "", 20, used)
        made.append(Entry(row, None, Saving.SAVED))
    return made


@given(forests(), st.integers(0, 2500))
def test_the_coldest_are_ends_of_chains(forest, n_bytes):
    """Nobody among them is needed by one that is not, none is warmer than one left out for its warmth, and they are enough."""
    judge = Judge(LAYOUTS["only_full"], "ab")
    cold = {entry.row.name for entry in judge.coldest(forest, n_bytes)}
    for entry in forest:
        if entry.row.name not in cold:
            assert entry.row.parent not in cold
    most = sorted(entry.row.used for entry in forest)[: -(-n_bytes // 100)]
    assert all(entry.row.used <= max(most, default=-1) for entry in forest if entry.row.name in cold)
    if n_bytes >= 100 * len(forest):
        assert len(cold) == len(forest)
