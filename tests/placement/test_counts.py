"""Figures that placement reports about itself, against what can be seen from outside: files, their sizes, the kernel's count."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from localkv.files import Files
from localkv.flows import Traffic
from localkv.placement.counts import at_rest
from localkv.placement.jobs import SsdLimits
from localkv.placement.plan import Question
from tests.placement.lives import LAYOUT, SIZE, Life
from tests.tiers.tier_samples import chain, open_store

IDS = list(range(SIZE * 5 + 3))
"""Five blocks and a state."""


def sizes(root):
    return {path: path.stat().st_size for path in root.rglob("*.safetensors")}


def bytes_below(root):
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def test_written_bytes_are_those_of_the_files(tmp_path):
    """What was written is what lies there, to the byte, as long as nothing leaves."""
    life = Life(tmp_path / "store")
    life.admit(IDS)
    assert life.keeper.flush(10)
    counts = life.keeper.counts()
    there = sizes(tmp_path / "store")
    assert counts.written_bytes == counts.written.today_bytes == counts.written.total_bytes == sum(there.values())
    assert (counts.ssd.swaps_in, counts.ssd.bytes_in) == (len(there), sum(there.values()))
    assert counts.ssd.ms_in.count == len(there)
    life.end()


def test_written_bytes_survive_a_restart_and_count_by_day(tmp_path, monkeypatch):
    """Another engine goes on counting; tomorrow begins at 0, the total does not, and nobody has to save for it to be true."""
    import time

    real, offset = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    life = Life(tmp_path / "store")
    life.admit(IDS)
    assert life.end()
    first = sum(sizes(tmp_path / "store").values())
    life = Life(tmp_path / "store")
    assert life.keeper.counts().written_bytes == 0
    assert life.keeper.counts().written.today_bytes == first
    life.admit([7, *IDS])
    assert life.keeper.flush(10)
    total = sum(sizes(tmp_path / "store").values())
    assert life.keeper.counts().written_bytes == total - first
    offset[0] = 86400.0
    counts = life.keeper.counts()
    assert (counts.written.today_bytes, counts.written.total_bytes) == (0, total)
    life.end()
    life = Life(tmp_path / "store")
    assert (life.keeper.counts().written.today_bytes, life.keeper.counts().written.total_bytes) == (0, total)
    life.end()


class Failing(Files):
    """The first renames fail: files were written for nothing. Counts what goes through write(2)."""

    def __init__(self, failures):
        self.failures = failures
        self.written = 0

    def write_some(self, fd, view):
        n = super().write_some(fd, view[:5000])
        self.written += n
        return n

    def rename(self, source, target):
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "the disk failed")
        super().rename(source, target)

    def sync(self, path):
        if self.failures % 2:
            self.failures -= 1
            raise OSError(errno.EIO, "the disk failed")
        super().sync(path)


def test_bytes_of_failed_saves_count_too(tmp_path):
    """They wear the disk the same: every byte that went through write(2) is in the figure, and none twice."""
    files = Failing(3)
    life = Life(tmp_path / "store", files)
    life.admit(IDS)
    while not life.keeper.flush(10):
        pass
    assert files.failures == 0
    counts = life.keeper.counts()
    assert counts.written_bytes == counts.written.total_bytes == files.written > sum(sizes(tmp_path / "store").values())
    life.end()


def test_a_write_that_breaks_off_counts(tmp_path):
    """Half a file was written before the disk was full."""

    class Full(Failing):
        def write_some(self, fd, view):
            if 10_000 < self.written < 20_000:
                self.written += 20_000
                self.torn = self.written - 20_000
                raise OSError(errno.ENOSPC, "full")
            return super().write_some(fd, view)

    files = Full(0)
    life = Life(tmp_path / "store", files)
    life.admit(IDS)
    while not life.keeper.flush(10):
        pass
    assert life.keeper.counts().written_bytes == files.written - 20_000
    life.end()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel's count of written bytes is Linux's")
def test_written_bytes_agree_with_the_kernel(tmp_path):
    """A process of its own that saves: its write(2) calls moved what it says, and little more for catalogue and log."""
    code = (
        "import sys; from pathlib import Path; from tests.placement.lives import Life\n"
        "count = lambda: int(Path('/proc/self/io').read_text().split('wchar: ')[1].split()[0])\n"
        "life = Life(Path(sys.argv[1])); before = count()\n"
        "for start in range(0, 4000, 100): life.admit(list(range(start, start + 90)))\n"
        "assert life.keeper.flush(60)\n"
        "print(life.keeper.counts().written_bytes, count() - before); life.end()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "store")], capture_output=True, text=True, check=True)
    said, kernel = map(int, done.stdout.split())
    assert said == sum(sizes(tmp_path / "store").values())
    assert said <= kernel, "it cannot have written more than went through write(2)"
    assert kernel < 3 * said, "these records are 8 KiB: the catalogue's pages weigh as much again, but not more than twice"


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel's count of read bytes is Linux's")
@pytest.mark.parametrize("ahead", [False, True])
def test_read_bytes_agree_with_the_kernel(tmp_path, ahead):
    """A process of its own that restores, or preloads: what it says it brought is what came through read(2), headers aside."""
    code = (
        "import sys, threading; from pathlib import Path; from tests.placement.lives import Life\n"
        "from localkv.placement.plan import Question\n"
        "count = lambda: int(Path('/proc/self/io').read_text().split('rchar: ')[1].split()[0])\n"
        "root, ids, ahead = Path(sys.argv[1]), list(range(640)), sys.argv[2] == 'True'\n"
        "life = Life(root); head = life.admit(ids); life.keeper.flush(60); life.keeper.shed(); before = count()\n"
        "ended = threading.Event()\n"
        "if ahead: life.keeper.preload(Question('c', [*ids, 1], head), ended.set, pointed_at=True); ended.wait(60)\n"
        "else: assert life.restore(ids, head)[0] == len(ids)\n"
        "read, counts = count() - before, life.keeper.counts()\n"
        "print(counts.ram.bytes_in, counts.preloads.loaded_bytes, read); life.end()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store"), str(ahead)], capture_output=True, text=True, check=True
    )
    said, early, kernel = map(int, done.stdout.split())
    assert said == 40 * LAYOUT.block_bytes
    assert early == (said if ahead else 0)
    files = sum(sizes(tmp_path / "store").values())
    assert files <= kernel < 1.1 * files, "each file once, and nothing else but a page of the catalogue"


def test_use_of_the_ssd_is_every_byte_below_the_root(tmp_path):
    """The bar shows what the budget counts: other models' records, the catalogue, bad files."""
    root = tmp_path / "store"
    life = Life(root)
    life.admit(IDS)
    assert life.end()
    other = open_store(root)
    other.publish(chain(3))
    other.close()
    (root / "quarantine").mkdir()
    (root / "quarantine" / "00-bad.safetensors").write_bytes(bytes(70_000))
    life = Life(root)
    life.admit([5, *IDS])
    assert life.keeper.flush(10)
    used = life.keeper.counts().ssd.used_bytes
    assert used == pytest.approx(bytes_below(root), rel=0.02)
    life.end()


def test_ram_tells_its_holes(tmp_path):
    """Taken memory is what records use and what is free between them; nothing is counted twice."""
    life = Life(tmp_path / "store")
    life.admit(IDS)
    assert life.keeper.flush(10)
    before = life.keeper.counts().ram
    assert before.used_bytes == 5 * LAYOUT.block_bytes + life.keeper._pool.place_bytes["checkpoint"]
    assert before.committed_bytes == before.used_bytes + before.hole_bytes
    assert life.keeper.shed() == 6
    after = life.keeper.counts().ram
    assert (after.used_bytes, after.committed_bytes) == (0, before.committed_bytes)
    assert after.hole_bytes == before.committed_bytes
    assert (after.swaps_out, after.ms_out.count) == (6, 6)
    assert after.bytes_out == 5 * LAYOUT.block_bytes + LAYOUT.checkpoint_bytes(len(IDS))
    life.end()


def test_reads_are_counted_with_their_times(tmp_path):
    """Each record that came from SSD is one swap in, with its bytes and how long reading it took."""
    life = Life(tmp_path / "store")
    head = life.admit(IDS)
    life.keeper.flush(10)
    life.keeper.shed()
    assert life.restore(IDS, head)[0] == len(IDS)
    ram = life.keeper.counts().ram
    assert (ram.swaps_in, ram.ms_in.count) == (6, 6)
    assert ram.bytes_in == 5 * LAYOUT.block_bytes + LAYOUT.checkpoint_bytes(len(IDS))
    assert 0 < ram.ms_in.p50 <= ram.ms_in.p99
    life.end()


def test_what_leaves_the_ssd_is_counted_when_it_is_gone(tmp_path):
    """Evicted records with the time that removing them took, and as many as there are files fewer."""
    root = tmp_path / "store"
    life = Life(root, limits=SsdLimits(150_000, 0))
    for start in range(0, 3000, 1000):
        life.admit(list(range(start, start + SIZE * 4)))
        life.keeper.flush(10)
    counts = life.keeper.counts()
    assert counts.ssd.swaps_out > 0
    assert counts.ssd.ms_out.count == counts.ssd.swaps_out
    assert counts.ssd.swaps_in - counts.ssd.swaps_out == len(sizes(root))
    assert counts.ssd.bytes_in - counts.ssd.bytes_out == sum(sizes(root).values())
    life.end()


def test_kept_conversations_are_counted(tmp_path):
    """How many records the person wants resident, and none after they have changed their mind."""
    life = Life(tmp_path / "store")
    head = life.admit(IDS)
    life.keeper.keep([head.name])
    assert life.keeper.counts().kept_records == 6
    life.keeper.keep([head.name], resident=False)
    assert life.keeper.counts().kept_records == 0
    life.end()


def totals(use):
    """What of a tier only ever grows."""
    spread = (use.ms_in.count, use.ms_out.count)
    return (use.swaps_in, use.swaps_out, use.bytes_in, use.bytes_out, *spread)


def test_a_model_that_is_loaded_again_counts_on(tmp_path):
    """Swaps, bytes, times and what was written never fall in an engine's life, whatever is open; what is held is as of now."""
    root, traffic = tmp_path / "store", Traffic()
    before = [(0,) * 6] * 3
    for again in range(3):
        life = Life(root, limits=SsdLimits(150_000, 0), places=12, traffic=traffic)
        opened = life.keeper.counts()
        assert [totals(use) for use in (opened.vram, opened.ram, opened.ssd)] == before
        ids = list(range(again * 1000, again * 1000 + SIZE * 4 + 3))
        head = life.admit(ids)
        assert life.keeper.flush(10)
        life.keeper.shed()
        assert life.restore(ids, head)[0] == len(ids)
        counts = life.keeper.counts()
        after = [totals(use) for use in (counts.vram, counts.ram, counts.ssd)]
        assert after[1] > before[1]
        assert after[2] > before[2]
        assert counts.written_bytes == traffic.written_bytes == counts.written.total_bytes
        assert life.end()
        resting = at_rest(traffic)
        before = [totals(use) for use in resting]
        assert all(a >= b for now, then in zip(before, after, strict=True) for a, b in zip(now, then, strict=True))
        assert all((use.used_bytes, use.records, use.held, use.limit_bytes) == (0, 0, 0, 0) for use in resting)
    assert before[2][1] > 0, "nothing had to leave"


def test_what_was_preloaded_and_never_used_is_wasted_when_the_model_goes(tmp_path):
    """No preload waits for ever: what lay in RAM when the model was let go was brought for nothing."""
    import threading

    root, traffic = tmp_path / "store", Traffic()
    life = Life(root, traffic=traffic)
    head = life.admit(IDS)
    assert life.end()
    life, ended = Life(root, traffic=traffic), threading.Event()
    life.keeper.preload(Question("c", [*IDS, 1], head), ended.set, pointed_at=True)
    assert ended.wait(30)
    assert life.keeper.counts().preloads.waiting == 6
    assert life.end()
    assert (traffic.preloads.loaded, traffic.preloads.wasted, traffic.preloads.waiting) == (6, 6, 0)
    life = Life(root, traffic=traffic)
    assert life.keeper.counts().preloads == traffic.preloads
    life.end()
