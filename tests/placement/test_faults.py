"""One engine's life with any call of the file layer failing: start, save, restore, evict, exit. The chat's side of it never fails.

Whatever fails: nothing but typed errors gets to the engine, no wrong byte is restored, why nothing is saved is a sentence, the next life
finds a sound store, and the tier comes back by itself.
"""

import contextlib
import errno
import multiprocessing
import os
import shutil
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest
import xxhash

from localkv.errors import StoreError
from localkv.events import EventLog
from localkv.files import Files
from localkv.kv.record import pack_ids
from localkv.messages import TokenLog
from localkv.placement.jobs import SsdLimits
from localkv.tiers.audit import audit_store
from localkv.tiers.catalogue import CATALOGUE
from localkv.tiers.upkeep import Upkeep
from tests.placement.conftest import CASES
from tests.placement.lives import PLENTY, Life

TALKS = [list(range(start, start + 60)) for start in (0, 1000, 2000)]
"""Three blocks and a state each."""

LAST_TALK = list(range(9000, 9060))
"""Said when the fault is over: new, so that the tier has to come back to save it."""

TIGHT = SsdLimits(190_000, 0)
"""With the catalogue and its log: room for about two of the three, so some are evicted or refused."""

FAULTS = [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES, "short", "end", "vanished"]


class Faulty(Files):
    """The k-th call fails; with `sticky`, all after it too, until `mend`. Counts calls by step."""

    def __init__(self, k, fault, root, *, sticky=False):
        self.k, self.fault, self.root, self.sticky = k, fault, root, sticky
        self.calls = 0
        self.steps = Counter()
        self._lock = threading.Lock()

    def mend(self):
        self.k = 0

    def _due(self, step):
        with self._lock:
            self.calls += 1
            self.steps[step] += 1
            due = self.k and (self.calls == self.k or (self.sticky and self.calls > self.k))
        if due and self.fault == "vanished":
            shutil.rmtree(self.root, ignore_errors=True)
            return False
        if due and isinstance(self.fault, int):
            raise OSError(self.fault, os.strerror(self.fault))
        return due

    def write_some(self, fd, view):
        return super().write_some(fd, view[: max(1, len(view) // 3)] if self._due("write") else view)

    def read_some(self, fd, views, offset):
        if self._due("read"):
            return 0 if self.fault == "end" else super().read_some(fd, [views[0][: max(1, len(views[0]) // 3)]], offset)
        return super().read_some(fd, views, offset)


def _counted(name):
    def step(self, *arguments):
        self._due(name)
        return getattr(Files, name)(self, *arguments)

    return step


for _name in (
    "write_temp",
    "sync",
    "rename",
    "sync_dir",
    "make_dir",
    "remove",
    "read_parts",
    "list_dir",
    "modified",
    "size",
    "free_bytes",
):
    setattr(Faulty, _name, _counted(_name))


def live(root, files, limits=PLENTY):
    """A life in which the file layer may fail at any time; returns what each talk's head is, and whether all was saved at last."""
    life = Life(root, files, limits, places=10)
    heads = []
    for ids in TALKS:
        heads.append(life.admit(ids))
        life.keeper.flush(5)
        life.keeper.shed()
        for known, head in zip(TALKS, heads, strict=False):
            tokens, _ = life.restore(known, head)
            assert 0 <= tokens <= len(known)
    longer = [*TALKS[1], 7, 8, 9]
    heads[1] = life.admit(longer, replaces=heads[1].name)
    life.keeper.flush(5)
    with contextlib.suppress(StoreError):
        life.keeper.forget([TokenLog(ids=pack_ids(TALKS[2]))], (), 5.0)
    files.mend()
    life.admit(TALKS[0])
    life.admit(LAST_TALK)
    saved = life.keeper.flush(5) or life.keeper.flush(5)  # the first may be what notices that a directory is gone
    if not saved:
        assert len(life.keeper.counts().trouble) > 20, "why nothing is saved must be a sentence"
    bugs = [event for event in life.events.recent if event.kind == "control.bug"]
    assert not bugs, bugs
    life.end(5)
    return heads, saved


def assert_sound(root, heads):
    """The next engine finds whole records or none, and saves and restores all that it is given."""
    life = Life(root)
    for ids, head in zip(TALKS, heads, strict=True):
        life.restore(ids, head)
    heads = [life.admit(ids) for ids in TALKS]
    assert life.end()
    findings = audit_store(root, None, lambda done, total: None).findings
    assert findings == []
    life = Life(root)
    for ids, head in zip(TALKS, heads, strict=True):
        assert life.restore(ids, head)[0] == len(ids)
    life.end()


@pytest.fixture(scope="module")
def n_calls(tmp_path_factory):
    """How many calls a life without faults makes; it has saves, restores, evictions and clearing up."""
    root = tmp_path_factory.mktemp("counting") / "store"
    files = Faulty(0, 0, root)
    _, saved = live(root, files)
    assert saved
    assert set(files.steps) >= {"write_temp", "write", "sync", "rename", "sync_dir", "make_dir", "remove", "read_parts", "read", "list_dir", "size", "free_bytes"}  # fmt: skip
    return files.calls


@pytest.fixture
def cases(request):
    """Counted, and told at the end of the run."""
    return request.config.stash.setdefault(CASES, Counter())


def name_of(fault):
    return errno.errorcode[fault] if isinstance(fault, int) else fault


def outcome_of(root, heads):
    """What a life left behind, times and the count of written bytes aside: lives that left the same are equally sound."""
    if not (root / CATALOGUE).is_file():
        return repr((heads, "nothing"))
    with contextlib.closing(sqlite3.connect(root / CATALOGUE)) as db:
        rows = db.execute(
            "SELECT name, kind, parent, lookup, position, n_bytes, digest, xxh3, header_bytes FROM records"
        ).fetchall()
        gone = db.execute("SELECT name, reason FROM tombstones").fetchall()
    files = [(str(path.relative_to(root)), path) for path in root.rglob("*") if path.is_file() and CATALOGUE not in path.name]
    content = [(name.split("-")[-1], xxhash.xxh3_64_hexdigest(path.read_bytes())) for name, path in files]
    return repr((heads, sorted(rows), sorted(gone), sorted(content)))


SOUND = set()
"""Outcomes that were found sound by this process."""


def one_case(root, fault, k, sticky):
    """One life with its fault, and what the next engine makes of what it left."""
    tight = k % 3 == 0
    heads, saved = live(root, Faulty(k, fault, root, sticky=sticky), TIGHT if tight else PLENTY)
    assert saved or tight, f"call {k}: the tier did not come back"
    assert not saved or (root / CATALOGUE).is_file(), f"call {k}: said to be saved, and there is no store"
    outcome = outcome_of(root, heads)
    if outcome not in SOUND:
        assert_sound(root, heads)
        SOUND.add(outcome)
    shutil.rmtree(root.parent)


def some_cases(folder, fault, ks, sticky):
    for k in ks:
        one_case(folder / f"{k}-{sticky}" / "store", fault, k, sticky)
    return len(ks)


@pytest.fixture(scope="module")
def workers():
    """Processes: a life is a hundred short waits of one thread for another, and leaves most of a machine idle."""
    with ProcessPoolExecutor(max(2, os.cpu_count() or 2), multiprocessing.get_context("spawn")) as pool:
        yield pool


def run_lives(workers, fast_dir, fault, n_calls, cases, *, sticky, step):
    ks = range(1, n_calls + 1, step)
    n = workers._max_workers
    for future in [workers.submit(some_cases, fast_dir, fault, ks[i::n], sticky) for i in range(n)]:
        cases[name_of(fault)] += future.result()


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_some_calls_may_fail(workers, fast_dir, fault, n_calls, cases):
    """Every 11th call of a life, once and from there on."""
    run_lives(workers, fast_dir, fault, n_calls, cases, sticky=False, step=11)
    run_lives(workers, fast_dir, fault, n_calls, cases, sticky=True, step=23)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "from there on"])
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_every_call_may_fail(workers, fast_dir, fault, sticky, n_calls, cases):
    """Every single call of a life."""
    run_lives(workers, fast_dir, fault, n_calls, cases, sticky=sticky, step=1)


# ---- the catalogue ----


def test_a_full_catalogue_ends_in_a_sentence_and_comes_back(tmp_path):
    """SQLite without room: what is saved stays, what is new stays in RAM with the reason, and is saved when there is room."""
    root = tmp_path / "store"
    life = Life(root)
    heads = [life.admit(TALKS[0])]
    assert life.keeper.flush(10)
    db = life.keeper._store._catalogue._connected()
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    long = list(range(5000, 5000 + 16 * 40))
    life2 = life.admit(long)
    assert not life.keeper.flush(10)
    assert "no room" in life.keeper.counts().trouble
    assert life.restore(long, life2)[0] == len(long)
    db.execute("PRAGMA max_page_count = 1000000")
    assert life.end()
    assert_sound(root, [*heads, None, None])


def test_a_busy_catalogue_ends_in_a_sentence_and_comes_back(tmp_path, monkeypatch):
    """Another program that holds the catalogue delays saving and nothing else."""
    monkeypatch.setattr("localkv.tiers.catalogue.BUSY_SECONDS", 0.01)
    root = tmp_path / "store"
    life = Life(root)
    holder = sqlite3.connect(root / CATALOGUE, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    head = life.admit(TALKS[0])
    assert not life.keeper.flush(10)
    assert "locked" in life.keeper.counts().trouble
    assert life.restore(TALKS[0], head)[0] == 60
    holder.execute("ROLLBACK")
    holder.close()
    assert life.end()
    assert_sound(root, [head, None, None])


def test_a_corrupt_catalogue_is_set_aside_and_found_again(tmp_path):
    """While running and at the start: an empty one begins, the chat goes on, and the good files get their rows back by mending."""
    root = tmp_path / "store"
    life = Life(root)
    head = life.admit(TALKS[0])
    assert life.end()
    (root / CATALOGUE).write_bytes(b"rubbish" * 3000)
    upkeep = Upkeep.open(root, EventLog(None))
    upkeep.mend(audit_store(root, None, lambda done, total: None).findings)
    upkeep.close()
    life = Life(root)
    assert life.restore(TALKS[0], head)[0] == 60
    life.end()
    (root / CATALOGUE).write_bytes(b"rubbish" * 3000)
    life = Life(root)
    assert life.restore(TALKS[0], head)[0] == 0
    life.end()
    assert_sound(root, [head, None, None])


def test_a_clock_set_back_changes_nothing(tmp_path, monkeypatch):
    """Wall time jumps to the past and to the future: saving, restoring and evicting go on, and nothing is dropped for its age."""
    import time

    root, real, offset = tmp_path / "store", time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    life = Life(root, limits=TIGHT, places=10)
    heads = []
    for jump, ids in zip((0.0, -400 * 86400.0, 400 * 86400.0), TALKS, strict=True):
        offset[0] = jump
        heads.append(life.admit(ids))
        life.keeper.flush(10)
        assert life.restore(ids, heads[-1])[0] == len(ids)
    offset[0] = -800 * 86400.0
    life.end()
    assert_sound(root, heads)
