"""Power cuts and failing calls: afterwards each record is absent or whole, no row lies, and the store works again."""

import errno
import os
import random
import sqlite3

import pytest

from localkv.errors import BadRecord, NoSpace, StoreError
from localkv.events import EventLog, Reason
from localkv.files import TEMP_SUFFIX, Files
from localkv.kv.record import encode_header
from localkv.tiers.disk import CATALOGUE, Store
from localkv.tiers.publish import FILE_SUFFIX, Publisher, record_path
from localkv.tiers.sweep import QUARANTINE
from tests.tiers.power_cut import Disk, Journal, JournalledCatalogue, states_after
from tests.tiers.tier_samples import IDENTITY, LAYOUT, files_below, open_store, read_back, sample, sweep_all

SAMPLES = [sample(seed) for seed in range(1, 6)]

# ---- power cuts ----


class NoSync(Journal):
    """Forgets to sync files."""

    def sync(self, path):
        pass


class NoDirectorySync(Journal):
    """Forgets to sync directories."""

    def sync_dir(self, directory):
        pass


class NoParentSync(Journal):
    """Syncs the directory of a file, but not the one in which that directory is new."""

    def sync_dir(self, directory):
        if directory.parent.name == IDENTITY:
            super().sync_dir(directory)


class RenameFirst(Journal):
    """Gives files their final names and syncs them afterwards."""

    def sync(self, path):
        pass

    def rename(self, source, target):
        super().rename(source, target)
        super().sync(target)


class InPlace(Journal):
    """Writes under the final name."""

    def _final(self, path):
        return path.with_name(path.name.partition(".")[0] + FILE_SUFFIX) if path.name.endswith(TEMP_SUFFIX) else path

    def write_temp(self, path, parts):
        return super().write_temp(self._final(path), parts)

    def sync(self, path):
        super().sync(self._final(path))

    def rename(self, source, target):
        if self._final(source) != target:
            super().rename(source, target)


class Forgetful(Journal):
    """Leaves one step out: the `k`th of its kind that does anything. `left_out` says which one that was."""

    def __init__(self, verb, k):
        super().__init__()
        self.verb, self.k, self.left_out = verb, k, None

    def _leaves_out(self, verb, path):
        if verb != self.verb or self.left_out is not None:
            return False
        self.k -= 1
        self.left_out = path if self.k < 0 else None
        return self.left_out is not None

    def sync(self, path):
        if not self._leaves_out("sync", path):
            super().sync(path)

    def sync_dir(self, directory):
        disk = Disk()
        for step in self.steps:
            disk.apply(step)
        names = [name for _, *both, _ in disk.pending for name in both if name and QUARANTINE not in name.parts]
        changes = any(name.parent == directory for name in names)  # what is put aside is wanted by nobody
        if not (changes and self._leaves_out("sync_dir", directory)):
            super().sync_dir(directory)

    def rename(self, source, target):
        if target.suffix != FILE_SUFFIX or source.suffix != TEMP_SUFFIX or not self._leaves_out("rename", source):
            super().rename(source, target)


class RowFirst(Publisher):
    """Commits the rows before the files have their names."""

    def settle(self, parts):
        pass

    def commit(self, parts, replaces):
        super().commit(parts, replaces)
        super().settle(parts)


class FileGoesFirst(Store):
    """Unlinks a removed record's file before its row is gone."""

    def remove_any(self, pairs, reason):
        for pair in pairs:
            self._files.remove(record_path(self.root, *pair))
        super().remove_any(pairs, reason)


def life(root, files, publisher=Publisher, kind=Store):
    """Open a store and publish, replace, remove and quarantine; returns the steps, and the bytes each name stands for."""
    events = EventLog(None)
    files.make_dir(root)
    catalogue = JournalledCatalogue.open(root / CATALOGUE, events)
    catalogue.steps, catalogue.identity = files.steps, IDENTITY
    store = kind(root, IDENTITY, LAYOUT, files, events, catalogue)
    store._publisher = publisher(root, IDENTITY, LAYOUT, files, catalogue, events)
    store.publish([sample(1), sample(2), sample(3)])
    store.publish([sample(4)], replaces=[sample(3)[0].name])
    store.remove([sample(1)[0].name], "evicted")
    store.quarantine(sample(2)[0].name, Reason.CHECKSUM)
    store.publish([sample(1), sample(5)], replaces=[sample(4)[0].name])
    store.close()
    wanted = {record.name: encode_header(record, LAYOUT) + payload for record, payload in map(sample, range(1, 6))}
    return list(files.steps), wanted


def lies(root, files, rows, wanted):
    """What is wrong with a state of the disk: rows without their whole file, final names on anything else."""
    found = []
    for row in rows:
        content = files.get(record_path(root, IDENTITY, row.name))
        if content != wanted[row.name]:
            found.append(f"row {row.name[:6]} has {'no file' if content is None else 'a bad file'}")
    for path, content in files.items():
        if path.suffix == FILE_SUFFIX and path.parent.parent.name == IDENTITY and content != wanted[path.stem]:
            found.append(f"{path.stem[:6]} has its final name and is not whole")
    return found


def distinct_states(root, steps):
    """Every state of the disk at every step, each once."""
    rng = random.Random(1)
    seen = set()
    for k in range(len(steps) + 1):
        for files, rows in states_after(steps[:k], root, rng):
            key = (frozenset((path, hash(content)) for path, content in files.items()), rows)
            if key not in seen:
                seen.add(key)
                yield files, rows


def test_no_power_cut_makes_a_row_lie(fast_dir):
    """Whatever a power cut leaves, at any step: a row names a whole file, and a final name never stands on a torn one."""
    root = fast_dir / "store"
    steps, wanted = life(root, Journal())
    states = list(distinct_states(root, steps))
    assert len(states) > 150
    assert [wrong for files, rows in states for wrong in lies(root, files, rows, wanted)] == []
    assert {len(rows) for _, rows in states} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("files", "publisher", "kind"),
    [
        (NoSync, Publisher, Store),
        (NoDirectorySync, Publisher, Store),
        (NoParentSync, Publisher, Store),
        (RenameFirst, Publisher, Store),
        (InPlace, Publisher, Store),
        (Journal, RowFirst, Store),
        (Journal, Publisher, FileGoesFirst),
    ],
)
def test_every_part_of_the_order_is_needed(fast_dir, files, publisher, kind):
    """Without the file sync, the directory sync, the parent's sync, the temporary name or the order, some power cut makes a row lie."""
    root = fast_dir / "store"
    steps, wanted = life(root, files(), publisher, kind)
    assert any(lies(root, found, rows, wanted) for found, rows in distinct_states(root, steps))


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sync", "rename", "sync_dir"])
def test_every_single_step_is_needed(fast_dir, verb):
    """Each sync, rename and directory sync of a life, left out by itself: some power cut makes a row lie."""
    for k in range(100):
        root = fast_dir / str(k) / "store"
        files = Forgetful(verb, k)
        steps, wanted = life(root, files)
        if files.left_out is None:
            break
        assert any(lies(root, found, rows, wanted) for found, rows in distinct_states(root, steps)), (k, files.left_out)
    assert k >= 6


def lay_out(root, files, rows):
    """Put a state of the disk where a store can open it."""
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    store = open_store(root)
    store._catalogue.change(IDENTITY, add=rows)
    store.close()


@pytest.mark.slow
def test_a_store_opens_after_any_power_cut(fast_dir):
    """Laid out and opened, a state gives whole records or none; the sweep leaves no litter; publishing works again."""
    root = fast_dir / "store"
    steps, _ = life(root, Journal())
    states = list(distinct_states(root, steps))
    for i, (files, rows) in enumerate(random.Random(2).sample(states, min(150, len(states)))):
        there = fast_dir / f"state{i}" / "store"
        there.parent.mkdir()
        lay_out(there, {there / path.relative_to(root): content for path, content in files.items()}, rows)
        assert_sound(there, expected={row.name for row in rows})


def assert_sound(root, expected=None):
    """The store at `root` opens, what it lists reads back, nothing lies about, and it takes records again."""
    store = open_store(root)
    originals = {record.name: (record, payload) for record, payload in SAMPLES}
    names = {row.name for row in store.rows()}
    assert expected is None or names == expected
    for name in names:
        record, payload = originals[name]
        assert read_back(store, record) == payload
    assert store.check() == []
    sweep_all(store)
    left = [path for path in files_below(root) if path.parent.name != "quarantine"]
    assert sorted(path.stem for path in left) == sorted(names)
    assert not any(path.name.endswith(TEMP_SUFFIX) for path in left)
    for row in store.publish([originals[name] for name in originals]):
        found = bytearray(row.n_bytes)
        store.read(row, originals[row.name][0].ids, memoryview(found))
        assert found == originals[row.name][1]
    store.remove([row.name for row in store.rows()], "evicted")
    assert [path for path in files_below(root) if path.parent.name != "quarantine"] == []
    store.close()


# ---- failing calls ----


class Failing(Files):
    """The k-th call fails; with `sticky`, all after it too."""

    def __init__(self, k, fault, *, sticky=False):
        self.k, self.fault, self.sticky = k, fault, sticky
        self.calls = 0

    def _due(self):
        self.calls += 1
        return self.calls == self.k or (self.sticky and self.calls > self.k > 0)

    def _call(self, step, *args):
        if self._due() and isinstance(self.fault, int):
            raise OSError(self.fault, os.strerror(self.fault))
        return step(*args)

    def write_some(self, fd, view):
        if self._due():
            if isinstance(self.fault, int):
                raise OSError(self.fault, os.strerror(self.fault))
            return super().write_some(fd, view[: max(1, len(view) // 3)])
        return super().write_some(fd, view)

    def read_some(self, fd, views, offset):
        if self._due():
            if isinstance(self.fault, int):
                raise OSError(self.fault, os.strerror(self.fault))
            if self.fault == "end":
                return 0
            return super().read_some(fd, [views[0][: max(1, len(views[0]) // 3)]], offset)
        return super().read_some(fd, views, offset)

    def sync(self, path):
        self._call(super().sync, path)

    def rename(self, source, target):
        self._call(super().rename, source, target)

    def sync_dir(self, directory):
        self._call(super().sync_dir, directory)

    def make_dir(self, directory):
        self._call(super().make_dir, directory)

    def remove(self, path):
        self._call(super().remove, path)

    def size(self, path):
        return self._call(super().size, path)

    def list_dir(self, directory):
        return self._call(super().list_dir, directory)

    def modified(self, path):
        return self._call(super().modified, path)

    def free_bytes(self, directory):
        return self._call(super().free_bytes, directory)


def attempt(step):
    """Do `step`; what fails must fail as StoreError, with a sentence."""
    try:
        return step()
    except StoreError as error:
        assert len(str(error)) > 20
        return None


def one_life(root, files):
    """Open, publish, read, replace, remove, quarantine and sweep, going on after each failure as an engine would."""
    store = attempt(lambda: open_store(root, files))
    if store is None:
        return
    attempt(lambda: store.publish([sample(1), sample(2), sample(3)]))
    for row in store.rows():
        original = next(sample(seed) for seed in (1, 2, 3) if sample(seed)[0].name == row.name)
        found = bytearray(row.n_bytes)
        try:
            store.read(row, original[0].ids, memoryview(found))
        except BadRecord as error:
            assert error.reason in (Reason.READ_ERROR, Reason.SHORT_READ)
        else:
            assert found == original[1]
    attempt(lambda: store.publish([sample(2), sample(4)], replaces=[sample(3)[0].name]))
    attempt(lambda: store.remove([sample(1)[0].name], "evicted"))
    attempt(lambda: store.quarantine(sample(2)[0].name, Reason.CHECKSUM))
    attempt(lambda: store.sweep(0.0))
    attempt(store.used_bytes)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EMFILE, "short", "end"])
def test_any_call_may_fail(fast_dir, fault, sticky, record_property):
    """With any one call failing, or all from there on: only StoreError gets out, and the store is sound afterwards."""
    counting = Failing(0, fault)
    one_life(fast_dir / "0", counting)
    assert counting.calls > 40
    record_property("cases", counting.calls)
    for k in range(1, counting.calls + 1):
        one_life(fast_dir / str(k), Failing(k, fault, sticky=sticky))
        assert_sound(fast_dir / str(k))


def test_a_full_disk_says_how_much_was_needed(fast_dir):
    """ENOSPC at any step of a save becomes NoSpace with numbers, and the batch leaves nothing behind, not even a temporary file."""
    root = fast_dir / "store"
    store = open_store(root)
    store.publish([sample(1)])
    failed = 0
    for k in range(1, 30):
        store._publisher._files = Failing(k, errno.ENOSPC)
        try:
            store.publish([sample(2), sample(3)], replaces=[sample(1)[0].name])
        except NoSpace as error:
            failed += 1
            assert error.needed_bytes == 2 * (4096 + LAYOUT.block_bytes)
            assert error.allowed_bytes > 0
            assert [path.stem for path in files_below(root)] == [sample(1)[0].name]
            assert read_back(store, sample(1)[0]) == sample(1)[1]
        else:
            break
    assert failed > 10
    assert {row.name for row in store.rows()} == {sample(2)[0].name, sample(3)[0].name}


def test_a_failed_sync_is_not_tried_again(fast_dir):
    """After a failed sync the file is given up: a second sync of it may report success with the data gone."""

    class OneBadSync(Files):
        synced: list[object] = []

        def sync(self, path):
            OneBadSync.synced.append(path)
            if len(OneBadSync.synced) == 1:
                raise OSError(errno.EIO, "Input/output error")
            super().sync(path)

    store = open_store(fast_dir / "store", OneBadSync())
    with pytest.raises(StoreError):
        store.publish([sample(1)])
    store.publish([sample(1)])
    assert len(set(OneBadSync.synced)) == len(OneBadSync.synced) == 2
    assert read_back(store, sample(1)[0]) == sample(1)[1]


def test_a_commit_that_fails_takes_the_files_along(fast_dir, monkeypatch):
    """When the rows can't be committed no file stays, the replaced record is still there, and the next save succeeds."""
    root = fast_dir / "store"
    store = open_store(root)
    store.publish([sample(1)])
    (pages,) = store._catalogue._connected().execute("PRAGMA page_count").fetchone()
    store._catalogue._connected().execute(f"PRAGMA max_page_count = {pages}")
    batch = [sample(seed) for seed in range(2, 40)]
    with pytest.raises(NoSpace):
        store.publish(batch, replaces=[sample(1)[0].name])
    assert [path.stem for path in files_below(root)] == [sample(1)[0].name]
    assert read_back(store, sample(1)[0]) == sample(1)[1]
    store._catalogue._connected().execute("PRAGMA max_page_count = 1000000")
    assert len(store.publish(batch)) == len(batch)


def test_a_busy_catalogue_is_a_sentence(fast_dir, monkeypatch):
    """Another program holding the catalogue fails the save after a while, with a sentence; later saves work."""
    monkeypatch.setattr("localkv.tiers.catalogue.BUSY_SECONDS", 0.01)
    root = fast_dir / "store"
    store = open_store(root)
    holder = sqlite3.connect(root / CATALOGUE, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.publish([sample(1)])
    assert files_below(root) == []
    holder.execute("ROLLBACK")
    holder.close()
    store.publish([sample(1)])
    assert read_back(store, sample(1)[0]) == sample(1)[1]
