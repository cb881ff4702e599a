"""What people complain about in other caches, once each, on a whole engine's life without a model: keeper, pool, store, threads.

The names say what is prevented. `Life.restore` compares every byte that comes back with the truth.
"""

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from localkv.events import Reason
from localkv.files import Files
from localkv.messages import TierUse
from localkv.placement.jobs import SsdLimits
from localkv.tiers.audit import audit_store
from localkv.tiers.catalogue import CATALOGUE
from tests.placement.lives import LAYOUT, PLENTY, SIZE, Life

FILE = LAYOUT.block_bytes + 4096

LOG = 300_000
"""For the catalogue and its write-ahead log, which grows by some 35 KiB with each commit up to 4 MiB and counts as well."""


def talk(n_blocks, start=0, tail=5):
    """The ids of a conversation: whole blocks and a tail."""
    return list(range(start, start + n_blocks * SIZE + tail))


def records(root):
    return sorted(path for path in root.rglob("*.safetensors") if "quarantine" not in path.parts)


def bytes_below(root):
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def empty_log(root):
    """The catalogue's log is part of what the budget counts; these records are so small that it would be all of it."""
    with contextlib.closing(sqlite3.connect(root / CATALOGUE)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.fixture
def root(fast_dir):
    return fast_dir / "store"


def test_a_restored_length_is_never_more_than_what_was_loaded(root):
    """A hole anywhere in the chain ends what is restored there: no later record is counted, however many lie behind it."""
    life, ids = Life(root), talk(8)
    head = life.admit(ids)
    life.end()
    order = random.Random(3).sample(records(root), 3)
    for path in order:
        path.unlink()
        life = Life(root)
        tokens, plan = life.restore(ids, head)
        assert tokens == (plan.resume_at if plan else 0)
        assert tokens % SIZE == 0 or tokens == len(ids)
        assert tokens == sum(piece.end - piece.start for piece in plan.pieces)
        life.end()


def test_an_empty_or_cut_file_is_an_ordinary_miss(root):
    """Length zero, half, one byte short, one byte too many, and rubbish: each costs its tokens and nothing else."""
    ids = talk(6)
    for damage in (b"", None, -1, +1, "rubbish"):
        life = Life(root)
        head = life.admit(ids)
        assert life.end()
        path = next(path for path in records(root) if path.stat().st_size > FILE - 10)
        content = path.read_bytes()
        match damage:
            case None:
                path.write_bytes(content[: len(content) // 2])
            case -1:
                path.write_bytes(content[:-1])
            case 1:
                path.write_bytes(content + b"\0")
            case "rubbish":
                path.write_bytes(random.Random(1).randbytes(len(content)))
            case _:
                path.write_bytes(damage)
        life = Life(root)
        tokens, _ = life.restore(ids, head)
        assert tokens < len(ids)
        assert [event.kind for event in life.events.recent].count("strike") == 1
        life.end()


def test_a_bad_record_is_not_tried_for_ever(root):
    """One strike: it is out of the catalogue and in quarantine, and the next restore does not meet it again."""
    life, ids = Life(root), talk(3)
    head = life.admit(ids)
    life.end()
    bad = records(root)[0]
    bad.write_bytes(bytes(len(bad.read_bytes())))
    life = Life(root)
    life.restore(ids, head)
    life.restore(ids, head)
    assert [event.kind for event in life.events.recent].count("strike") == 1
    life.end()
    assert not bad.exists()
    assert list((root / "quarantine").iterdir())
    assert audit_store(root, None, lambda done, total: None).findings == []


def test_the_ram_cache_keeps_its_limit(root):
    """Ten times the pool goes through it: what is taken from the system never exceeds the limit, and all of it is visible."""
    life = Life(root, places=8)
    for start in range(0, 20_000, 2_000):
        life.admit(talk(8, start))
        ram = life.keeper.counts().ram
        assert ram.used_bytes <= ram.committed_bytes <= ram.limit_bytes == 8 * LAYOUT.block_bytes
    life.end()


def test_swapping_models_throws_no_context_away(root):
    """Closing a model after a flush and opening it again costs reading: every token of every conversation comes back."""
    life, talks = Life(root), [talk(5, start) for start in range(0, 9_000, 1_000)]
    heads = [life.admit(ids) for ids in talks]
    assert life.end()
    life = Life(root)
    for ids, head in zip(talks, heads, strict=True):
        assert life.restore(ids, head)[0] == len(ids)
    life.end()


def test_files_on_disk_are_found_after_a_restart(root):
    """The index is durable: nothing that is saved is computed or written a second time."""
    life, ids = Life(root), talk(5)
    life.admit(ids)
    assert life.end()
    before = {path: path.stat().st_mtime_ns for path in records(root)}
    life = Life(root)
    life.admit(ids)
    assert life.keeper.flush(10)
    assert life.keeper.counts().written_bytes == 0
    assert {path: path.stat().st_mtime_ns for path in records(root)} == before
    life.end()


def test_a_restart_deletes_nothing(root):
    """No start, and no first request, costs a record."""
    life = Life(root)
    for start in (0, 1_000, 2_000):
        life.admit(talk(4, start))
    assert life.end()
    before = records(root)
    for _ in range(3):
        life = Life(root)
        life.restore(talk(4), None)
        life.end()
    assert records(root) == before


def test_an_idle_machine_saves_by_itself(root):
    """Nobody asks for it: after an answer the records reach the disk, and until then they count as unsaved."""
    saved = Waiting()
    life = Life(root, saved)
    life.admit(talk(4))
    assert life.keeper.counts().unsaved > 0
    saved.gate.set()
    assert saved.wait_for(5)
    assert life.keeper.flush(10)
    assert life.keeper.counts().unsaved == 0
    life.end()


class Waiting(Files):
    """Files that are written when the test says so; counts those that have their final name."""

    def __init__(self):
        import threading

        self.gate, self.named = threading.Event(), threading.Semaphore(0)

    def write_temp(self, path, parts):
        self.gate.wait(30)
        return super().write_temp(path, parts)

    def rename(self, source, target):
        super().rename(source, target)
        self.named.release()

    def wait_for(self, n):
        return all(self.named.acquire(timeout=30) for _ in range(n))


def test_a_conversation_larger_than_the_pool_is_saved_and_comes_back(root):
    """Sessions above some queue's size are not silently refused: one of five times the RAM pool is whole after a restart."""
    life, ids = Life(root, places=8), talk(40)
    head = life.admit(ids)
    assert life.end()
    life = Life(root, places=8)
    assert life.restore(ids, head)[0] == len(ids)
    life.end()


def test_a_turn_does_not_rewrite_the_conversation(root):
    """Fifty turns write what is new and one small state each, not the whole conversation fifty times."""
    life, ids, head = Life(root), talk(1), None
    for turn in range(50):
        ids = [*ids, *range(10_000 + turn * 20, 10_000 + turn * 20 + SIZE)]
        head = life.admit(ids, replaces=head.name if head else "")
        assert life.keeper.flush(10)
    counts = life.keeper.counts()
    state = LAYOUT.checkpoint_bytes(len(ids)) + 2 * 4096
    assert counts.written.total_bytes <= 51 * (FILE + 4096) + 50 * state
    assert len(records(root)) == 52, "51 blocks, and of the states the newest"
    life.end()


def test_a_full_queue_at_exit_drops_nothing(root):
    """Everything of a burst that was never given time is on disk after the flush, the newest as well as the oldest."""
    life = Life(root)
    with life.keeper.quiet():
        talks = [talk(5, start) for start in range(0, 10_000, 1_000)]
        heads = [life.admit(ids) for ids in talks]
    assert life.end()
    life = Life(root)
    assert [life.restore(ids, head)[0] for ids, head in zip(talks, heads, strict=True)] == [len(ids) for ids in talks]
    life.end()


def test_the_disk_budget_counts_every_byte(root):
    """Records, catalogue and its log together: whatever is saved, all bytes below the root stay within the budget."""
    budget = 400_000
    life = Life(root, limits=SsdLimits(budget, 0))
    for start in range(0, 30_000, 1_000):
        life.admit(talk(4, start))
        life.keeper.flush(10)
        assert bytes_below(root) <= budget + 64_000, "the catalogue's log may grow by one commit beyond what was counted"
    assert life.keeper.counts().ssd.used_bytes <= budget
    life.end()
    assert bytes_below(root) <= budget


def test_a_budget_for_one_conversation_keeps_that_one(root):
    """Saving a longer version of the only conversation that fits does not evict it for its own sake."""
    ids = talk(8)
    life = Life(root, limits=SsdLimits(11 * FILE + LOG, 0))
    head = life.admit(ids)
    life.keeper.flush(10)
    for turn in range(5):
        ids = [*ids, 7_000 + turn]
        head = life.admit(ids, replaces=head.name)
        assert life.keeper.flush(10)
    life.end()
    life = Life(root)
    assert life.restore(ids, head)[0] == len(ids)
    life.end()


def test_making_room_for_who_leaves_keeps_who_comes(root):
    """The destination of a switch is held first: saving the outgoing conversation never evicts a record of the incoming one."""
    incoming, outgoing = talk(6), talk(6, 5_000)
    life = Life(root, limits=SsdLimits(10 * FILE + 60_000, 0), places=8)
    head = life.admit(incoming)
    assert life.keeper.flush(10)
    from localkv.placement.plan import Question, SlotView

    plan = life.keeper.plan(Question("in", [*incoming, 1], head), SlotView())
    with life.keeper.hold(plan):
        life.admit(outgoing)
        life.keeper.flush(10)
        assert [piece.name for piece, _ in life.keeper.bring(plan)] == [piece.name for piece in plan.pieces]
    assert life.restore(incoming, head)[0] == len(incoming)
    life.end()


def test_a_use_counts(root):
    """A conversation that is restored again and again outlives those that were saved after it and never opened."""
    life = Life(root, limits=SsdLimits(14 * FILE + LOG, 0), places=10)
    favourite = talk(3)
    head = life.admit(favourite)
    for start in range(1_000, 12_000, 1_000):
        life.admit(talk(3, start))
        life.keeper.flush(10)
        empty_log(root)
        assert life.restore(favourite, head)[0] == len(favourite)
    assert life.keeper.counts().ssd.swaps_out > 8
    life.end()


def test_coming_into_ram_deletes_no_copy_on_ssd(root):
    """Promotion copies: switching back and forth pays one direction, and a crash in between loses nothing."""
    life, ids = Life(root), talk(4)
    head = life.admit(ids)
    life.keeper.flush(10)
    before = records(root)
    for _ in range(3):
        life.keeper.shed()
        assert life.restore(ids, head)[0] == len(ids)
    counts = life.keeper.counts()
    assert records(root) == before
    assert counts.written_bytes == sum(path.stat().st_size for path in before)
    assert isinstance(counts.ram, TierUse)
    life.end()


def test_a_refusal_has_a_name(root):
    """What can't be saved because the budget is full says so, in a sentence and as the reason of what is lost by it."""
    life = Life(root, limits=SsdLimits(0, 0), places=6)
    first = talk(4)
    head = life.admit(first)
    for start in range(1_000, 6_000, 1_000):
        life.admit(talk(4, start))
    assert not life.keeper.flush(2)
    assert "no room" in life.keeper.counts().trouble
    _, plan = life.restore(first, head)
    assert {reason for reason, _ in plan.lost} == {Reason.BUDGET}
    life.end()


def test_deleting_the_cache_directory_loses_time_and_nothing_else(root):
    """It may vanish while the engine runs: what is in RAM is used and saved again, and no turn fails."""
    import shutil

    life, ids = Life(root, limits=PLENTY), talk(4)
    head = life.admit(ids)
    assert life.keeper.flush(10)
    shutil.rmtree(Path(root))
    assert life.restore(ids, head)[0] == len(ids)
    longer = [*ids, *range(9_000, 9_000 + SIZE)]
    head = life.admit(longer)
    assert life.keeper.flush(10) or life.keeper.flush(10)
    assert life.restore(longer, head)[0] == len(longer)
    life.end()
