"""Values, orders, marks, admission: the pure rules by which records stay or go."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.kv.layout import Layer, Layout, Rows, State
from localkv.placement.policy import (
    GIB,
    Policy,
    Rank,
    Resident,
    admits,
    eviction_order,
    saved_by_ram,
    saved_by_ssd,
    ssd_budget,
    victims,
    with_all_that_need_it,
)  # fmt: skip
from localkv.placement.rates import Rates
from localkv.placement.warmth import Habit, HalfLives, first_use, used_again
from localkv.tiers.catalogue import Row

DAY = 86_400.0
HALF = 3 * DAY
NOW = 1.8e9


def resident(name, *, parent="", warmth=NOW, position=16, n_bytes=10, worth=1.0, rank=Rank.ORDINARY, is_end=False):
    return Resident(("id", name), parent, warmth, position, n_bytes, worth, rank, is_end)


def names(residents):
    return [one.key[1] for one in residents]


@st.composite
def forests(draw):
    """Chains that branch, with any warmth, worth and rank."""
    made = []
    for i in range(draw(st.integers(1, 14))):
        parent = draw(st.sampled_from([None, *(one for one in made if not one.is_end)]))
        is_end = draw(st.booleans())
        step = draw(st.integers(0, 15)) if is_end else 16
        made.append(
            resident(
                f"r{i}", parent=parent.key[1] if parent else "root", position=(parent.position if parent else 0) + step, is_end=is_end,
                warmth=NOW - draw(st.integers(0, 40)) * DAY, n_bytes=draw(st.integers(1, 50)),
                worth=draw(st.sampled_from([0.0, 0.5, 1.0, 8.0])), rank=draw(st.sampled_from(list(Rank))),
            )
        )  # fmt: skip
    return draw(st.permutations(made))


@given(forests())
def test_no_record_goes_before_one_that_needs_it(forest):
    """Children before parents, whatever they are worth."""
    order = names(eviction_order(forest, HALF))
    assert sorted(order) == sorted(names(forest))
    for one in forest:
        if one.parent in order:
            assert order.index(one.key[1]) < order.index(one.parent)


@given(forests(), st.integers(0, 400))
def test_victims_free_enough_and_no_more(forest, excess):
    """The first in order, as many as are needed; held ones, and what they need, never."""
    chosen = victims(forest, excess, HALF)
    order = eviction_order(forest, HALF)
    assert chosen == order[: len(chosen)]
    assert all(one.rank is not Rank.HELD for one in chosen)
    freed = sum(one.n_bytes for one in chosen)
    assert freed - (chosen[-1].n_bytes if chosen else 0) < max(excess, 1)
    if freed < excess and len(chosen) < len(order):
        blocked = order[len(chosen)]
        below = {blocked.key[1]}
        for one in sorted(forest, key=lambda one: (one.position, one.is_end)):
            below |= {one.key[1]} if one.parent in below else set()
        assert any(one.rank is Rank.HELD for one in forest if one.key[1] in below)


@given(forests(), st.integers(0, 13))
def test_one_goes_with_all_that_need_it(forest, n):
    """If one of a kind must go, its descendants go before it, and nobody else does."""
    order = eviction_order(forest, HALF)
    chosen = with_all_that_need_it(order, lambda one: one.key[1] == f"r{n}")
    if n >= len(forest):
        assert chosen == []
        return
    below = {f"r{n}"}
    for one in sorted(forest, key=lambda one: (one.position, one.is_end)):
        below |= {one.key[1]} if one.parent in below else set()
    assert set(names(chosen)) == below
    assert names(chosen)[-1] == f"r{n}"


def test_ranks_go_before_values():
    """Ordinary, just written, kept, open, held: in this order, however cold or dear."""
    made = [resident(rank.name, rank=rank, warmth=NOW - rank * DAY * 100) for rank in Rank]
    assert names(eviction_order(made[::-1], HALF)) == ["ORDINARY", "FRESH", "KEPT", "OPEN", "HELD"]


def test_the_colder_goes_first_and_a_half_life_is_worth_a_factor_of_two():
    """Twice the seconds per byte make up for one half-life without use, and no more."""
    cold = resident("cold", warmth=NOW - HALF, worth=2.0)
    warm = resident("warm", warmth=NOW, worth=1.0)
    assert cold.score(HALF) == pytest.approx(warm.score(HALF))
    assert names(eviction_order([warm, resident("cold", warmth=NOW - HALF, worth=1.9)], HALF)) == ["cold", "warm"]
    assert names(eviction_order([warm, resident("cold", warmth=NOW - HALF, worth=2.1)], HALF)) == ["warm", "cold"]


def test_what_saves_nothing_goes_first():
    """A record that is read no faster than it is computed has no value, however warm."""
    assert names(eviction_order([resident("old", warmth=0.0), resident("useless", worth=-1.0)], HALF))[0] == "useless"


def test_admission():
    """A newcomer displaces only what is less dear, and only if that is room enough."""
    dear, cheap = resident("dear", warmth=NOW), resident("cheap", warmth=NOW - 9 * DAY)
    newcomer = (Rank.ORDINARY, resident("new", warmth=NOW - DAY).score(HALF))
    assert names(victims([dear, cheap], 15, HALF, newcomer)) == ["cheap"]
    assert admits(newcomer, [cheap], 10, HALF)
    assert not admits(newcomer, [cheap], 15, HALF)
    assert not admits(newcomer, [dear], 10, HALF)
    assert admits((Rank.FRESH, 0.0), [dear, cheap], 20, HALF), "what was just written comes before all ordinary value"


def test_marks():
    """Nothing happens up to the high mark; above it the tier is brought down to the low one."""
    policy = Policy()
    assert policy.excess(90, 100) == 0
    assert policy.excess(91, 100) == 11
    assert policy.excess(5, 0) == 5
    assert Policy(high=1.0, low=0.5).excess(100, 100) == 0


FULL = Layout((Layer(0, Rows(1, 64, "BF16"), Rows(1, 64, "BF16")),), 16)
MIXED = Layout((*FULL.layers, Layer(1, states=(State("ssm", (256,), "F32"),))), 16)
RATES = Rates(read=1e6, copy=1e7, prefill=100.0)


def row(kind, position, n_bytes):
    return Row("aa", kind, "", "", position, "", n_bytes, "", "", 0, 0.0)


def test_what_a_record_saves():
    """On SSD it saves computing less reading; in RAM it saves reading if SSD has it too, else computing."""
    block = row("block", 16, FULL.block_bytes)
    compute = 16 / 100 / FULL.block_bytes
    assert saved_by_ssd(block, FULL, RATES) == pytest.approx(compute - 1 / 1e6)
    assert saved_by_ram(block, FULL, RATES, on_ssd=True) == pytest.approx(1 / 1e6)
    assert saved_by_ram(block, FULL, RATES, on_ssd=False) == pytest.approx(compute - 1 / 1e7)
    tail = row("checkpoint", 20, 4 * FULL.token_bytes)
    assert saved_by_ssd(tail, FULL, RATES) == pytest.approx(compute - 1 / 1e6), "a tail is worth as much per byte as a block"


def test_a_checkpoint_stands_for_its_chain_where_it_is_the_only_place_to_resume():
    """In a model with recurrent layers blocks alone save nothing, and a checkpoint saves all tokens before it."""
    assert saved_by_ssd(row("block", 16, MIXED.block_bytes), MIXED, RATES) < 0
    state = row("checkpoint", 64, 1024)
    in_all = 1024 + 64 * MIXED.token_bytes
    assert saved_by_ssd(state, MIXED, RATES) == pytest.approx(64 / 100 / in_all - 1 / 1e6)
    chain = [
        resident("block", position=64, worth=saved_by_ssd(row("block", 64, MIXED.block_bytes), MIXED, RATES)),
        resident("state", parent="block", position=64, worth=saved_by_ssd(state, MIXED, RATES), is_end=True),
        resident("other", warmth=NOW - 30 * DAY, worth=saved_by_ssd(state, MIXED, RATES)),
    ]
    assert names(eviction_order(chain, HALF)) == ["other", "state", "block"], "the state keeps its blocks"


@pytest.mark.parametrize(
    ("setting", "disk", "free", "stored", "budget"),
    [
        (5, 1000 * GIB, 0, 0, 5),
        (None, 1000 * GIB, 500 * GIB, 0, 20 * GIB),
        (None, 100 * GIB, 50 * GIB, 0, 10 * GIB),
        (None, 1000 * GIB, 12 * GIB, 0, 2 * GIB),
        (None, 1000 * GIB, 12 * GIB, 3 * GIB, 5 * GIB),
        (None, 1000 * GIB, 1 * GIB, 0, 0),
    ],
)
def test_the_budget_of_the_store(setting, disk, free, stored, budget):
    """The setting, or the least of 20 GiB, a tenth of the disk, and what is free less 10 GiB, its own bytes counted as free."""
    assert ssd_budget(setting, disk, free, stored) == budget


uses = st.lists(st.floats(0.0, 90 * DAY), min_size=1, max_size=12).map(sorted)


@given(uses)
def test_a_warmth_is_the_decayed_count_of_uses(times):
    """It stands for the sum of all uses, each halved per half-life, except that uses of one sitting are one."""
    half_lives, warmth, counted = HalfLives(HALF), None, []
    for time in times:
        if warmth is None or time - warmth.used >= 1800:
            counted.append(time)
        elif counted:
            counted_in_sitting = time
            assert counted_in_sitting >= counted[-1]
        warmth = first_use(time) if warmth is None else used_again(warmth, time, half_lives)
    total = math.log2(sum(2 ** ((time - times[-1]) / HALF) for time in counted))
    assert warmth.slow >= times[-1] + HALF * total - 1e-3
    assert warmth.slow <= times[-1] + HALF * total + len(times) * 1800
    assert warmth.slow >= times[-1]
    assert times[-1] <= warmth.fast + 1e-6


def test_a_clock_that_was_set_back_changes_nothing_for_the_worse():
    """A use in the past neither cools a record nor counts twice."""
    warmth = used_again(first_use(NOW), NOW - 5 * DAY, HalfLives(HALF))
    assert warmth.slow == NOW
    assert warmth.fast == NOW


def follow(visits):
    """The habit after conversations were used at these times, and all warmths."""
    habit, warmths = Habit(HalfLives(HALF)), {}
    for time, talk in visits:
        habit = habit.after(warmths.get(talk), time)
        known = warmths.get(talk)
        warmths[talk] = first_use(time) if known is None else used_again(known, time, habit.half_lives)
    return habit


def test_habits():
    """Where favourites come back after days, the long half-life leads; where tasks follow each other, the short one."""
    favourites = follow([(NOW + i * DAY / 4, ("a", "b", "c", "d", "e", "f", f"once {i}")[i % 7]) for i in range(200)])
    assert favourites.pace == "slow"
    tasks = follow([(NOW + i * DAY / 12, f"task {i // 30} {i % 3}") for i in range(400)])
    assert tasks.pace == "fast"
    assert tasks.half_life == HALF / 12


def test_messages_of_one_sitting_teach_nothing():
    """Twenty messages in an hour foretell nothing about tomorrow."""
    habit = Habit(HalfLives(HALF)).after(None, NOW)
    assert habit.after(first_use(NOW), NOW + 60) is habit
