"""The test bed: what one measurement leaves behind is of no use to another."""

from localkv.commands.bench.bed import random_ids


def test_no_list_of_ids_begins_like_another():
    """A prompt that begins like an earlier one would be restored in part, and its prefill come out too short."""
    starts = [tuple(random_ids(n, seed)[:16]) for n in (512, 2048, 4096) for seed in range(40)]
    assert len(set(starts)) == len(starts)
    assert random_ids(512, 1) == random_ids(512, 1)
