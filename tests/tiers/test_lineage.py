"""Which records belong to which tokens."""

from hypothesis import given
from hypothesis import strategies as st

from localkv.kv.record import describe, empty_block, pack_ids, root_name
from localkv.tiers.catalogue import row_of
from localkv.tiers.lineage import Lineage, needed, no_longer_needed

IDENTITY = "a1" * 20
S = 16


def row(kind, parent, ids, position, seed=0):
    record = describe(kind, parent, pack_ids(ids), position, "f", bytes([seed]) * 8)
    return row_of(record, 4096, 0.0)


def chain(ids, seed=0):
    """Blocks for all whole blocks of `ids`, and a checkpoint at its end."""
    rows, parent = [], root_name(IDENTITY)
    for start in range(0, len(ids) - S + 1, S):
        rows.append(row("block", parent, ids[start : start + S], start + S, seed))
        parent = rows[-1].name
    edge = len(ids) // S * S
    return [*rows, row("checkpoint", parent, ids[edge:], len(ids), seed)]


A = list(range(40))
B = [*A[:16], *range(100, 130)]


def test_a_walk_finds_all_versions_of_a_prefix_and_nothing_else():
    """Blocks and checkpoints of these very tokens are found, whoever computed them; others are not."""
    mine, again, other = chain(A), chain(A, seed=1), chain(B)
    found = {each.name for each in Lineage.of(IDENTITY, [*mine, *again, *other]).walk(pack_ids([*A, 7]))}
    assert found == {each.name for each in [*mine, *again, other[0]]}


def test_what_others_share_stays():
    """Forgetting one conversation leaves the common beginning, and everything of the other."""
    rows = {each.name: each for each in [*chain(A), *chain(B)]}
    lineage = Lineage.of(IDENTITY, rows.values())
    gone = no_longer_needed(lineage, pack_ids(A), shared=16)
    assert gone == {each.name for each in chain(A)[1:]}
    assert no_longer_needed(lineage, pack_ids(A), shared=0) == set(rows), "what builds on a removed block is of no use"


def test_blocks_beyond_the_known_tokens_go_along():
    """Tokens that the engine had sampled and the face never stored are forgotten with what they build on."""
    whole = chain(A)
    gone = no_longer_needed(Lineage.of(IDENTITY, whole), pack_ids(A[:20]), shared=0)
    assert gone == {each.name for each in whole}


@given(lost=st.sets(st.integers(0, 5)), others_too=st.booleans())
def test_what_is_behind_a_gap_is_forgotten_too(lost, others_too):
    """Damaged blocks are struck out one by one: what builds on one holds tokens of the conversation, and of no other, all the same."""
    whole, others = chain(list(range(90))), chain(list(range(200, 290)))
    rows = [each for i, each in enumerate(whole) if i not in lost]
    rest = [each for i, each in enumerate(others) if i not in lost] if others_too else []
    gone = no_longer_needed(Lineage.of(IDENTITY, [*rows, *rest]), pack_ids(list(range(90))), shared=0)
    assert gone == {each.name for each in rows}
    shared = {each.name for each in rows if each.position <= 32}
    assert not shared & no_longer_needed(Lineage.of(IDENTITY, [*rows, *rest]), pack_ids(list(range(90))), shared=32)


def test_models_without_blocks_are_walked_too():
    """Recurrent models keep checkpoints only; their parents have no rows and are known by their ids."""
    parent = root_name(IDENTITY)
    for start in (0, 16):
        parent = empty_block(parent, pack_ids(A[start : start + S]), start + S, "f").name
    state = row("checkpoint", parent, A[32:], 40)
    other = row("checkpoint", parent, [1, 2, 3], 35)
    lineage = Lineage.of(IDENTITY, [state, other])
    assert needed(lineage, [pack_ids(A)]) == {state.name}
    assert no_longer_needed(lineage, pack_ids(A), shared=0) == {state.name}


def test_nothing_is_needed_by_nobody():
    """Without a conversation no record is needed; a record whose parent is gone never is."""
    rows = chain(A)
    assert needed(Lineage.of(IDENTITY, rows), []) == set()
    assert needed(Lineage.of(IDENTITY, rows[1:]), [pack_ids(A)]) == set()
