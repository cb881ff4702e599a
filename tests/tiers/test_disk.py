"""The store: what is published comes back byte for byte or not at all, and every byte on the disk is accounted for."""

import os
import shutil
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localkv.errors import BadRecord, StoreError
from localkv.events import EventLog, Reason
from localkv.files import TEMP_SUFFIX, Files
from localkv.tiers import sweep as sweep_module
from localkv.tiers.publish import SUPERSEDED, record_path
from tests.tiers.tier_samples import IDENTITY, LAYOUT, chain, files_below, open_store, read_back, sample, sweep_all

OTHER = "b2" * 20


@pytest.fixture
def root(fast_dir):
    return fast_dir / "store"


def path_of(store, record):
    return record_path(store.root, store.identity, record.name)


def reason_of(store, record, ids=None):
    row = next(row for row in store.rows() if row.name == record.name)
    with pytest.raises(BadRecord) as caught:
        store.read(row, record.ids if ids is None else ids, memoryview(bytearray(row.n_bytes)))
    assert caught.value.name == record.name
    return caught.value.reason


class Watching(Files):
    """Counts the steps taken."""

    def __init__(self):
        self.writes = self.reads = self.syncs = 0

    def write_temp(self, path, parts):
        self.writes += 1
        return super().write_temp(path, parts)

    def read_some(self, fd, views, offset):
        self.reads += 1
        return super().read_some(fd, views, offset)

    def sync(self, path):
        self.syncs += 1
        super().sync(path)


def test_records_survive_closing(root):
    """After a restart every published record is listed and reads back with the same bytes and description."""
    batch = chain(3)
    store = open_store(root)
    published = store.publish(batch)
    store.close()
    store = open_store(root)
    assert sorted(store.rows(), key=lambda row: row.name) == sorted(published, key=lambda row: row.name)
    for (record, payload), row in zip(batch, published, strict=True):
        assert row.record(record.ids) == record
        assert row.lookup == record.lookup
        assert read_back(store, record) == payload


def test_opening_reads_no_record(root):
    """Start-up takes the catalogue and opens no record file, however many there are."""
    store = open_store(root)
    store.publish(chain(5))
    store.close()
    files = Watching()
    assert len(open_store(root, files).rows()) == 5
    assert files.reads == 0


def test_only_the_owner_may_look(root):
    """Files are 0600 and directories 0700 whatever the umask: a KV cache contains the conversation."""
    before = os.umask(0o000)
    try:
        store = open_store(root)
        store.publish(chain(2))
        store.quarantine(chain(1)[0][0].name, Reason.CHECKSUM)
    finally:
        os.umask(before)
    for path in [root, *root.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_record_that_is_there_is_not_written_again(root):
    """An equal name means equal bytes, so publishing it again writes nothing and gives its row."""
    files = Watching()
    store = open_store(root, files)
    (row,) = store.publish([sample(1)])
    written = files.writes
    again = store.publish([sample(1), sample(2), sample(2)])
    assert files.writes == written + 1
    assert again[0] == row
    assert [one.name for one in again] == [sample(1)[0].name, sample(2)[0].name, sample(2)[0].name]


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_row_whose_file_is_not_whole_is_mended(root, damage):
    """Publishing a record whose file went missing or was cut writes it again."""
    store = open_store(root)
    store.publish([sample(1)])
    path = path_of(store, sample(1)[0])
    path.unlink() if damage == "gone" else os.truncate(path, 5000)
    store.publish([sample(1)])
    assert read_back(store, sample(1)[0]) == sample(1)[1]


def test_a_new_checkpoint_replaces_the_old_one(root):
    """Replaced records leave in the same commit, with a tombstone; one that the batch holds itself stays."""
    store = open_store(root)
    store.publish([sample(1), sample(2)])
    store.publish([sample(3), sample(2)], replaces=[sample(1)[0].name, sample(2)[0].name, "0" * 40])
    assert {row.name for row in store.rows()} == {sample(2)[0].name, sample(3)[0].name}
    assert store.tombstones() == {sample(1)[0].name: SUPERSEDED}
    assert not path_of(store, sample(1)[0]).exists()
    store.publish([], replaces=[sample(2)[0].name])
    assert {row.name for row in store.rows()} == {sample(3)[0].name}


def test_reading_is_one_system_call(root):
    """A whole record comes in with one preadv: small reads would cost more than the bytes."""
    files = Watching()
    store = open_store(root, files)
    store.publish([sample(1)])
    read_back(store, sample(1)[0])
    assert files.reads == 2  # the second finds the end of the file


def test_a_record_is_refused_with_the_reason(root):
    """Gone, cut, longer, asked for with other ids, unreadable: each is a BadRecord with its own reason."""
    store = open_store(root)
    store.publish([sample(seed) for seed in range(1, 6)])
    gone, cut, longer, ids, unreadable = (sample(seed)[0] for seed in range(1, 6))
    path_of(store, gone).unlink()
    os.truncate(path_of(store, cut), 6000)
    with path_of(store, longer).open("ab") as stream:
        stream.write(b"x")
    path_of(store, unreadable).unlink()
    path_of(store, unreadable).mkdir()
    assert reason_of(store, gone) == Reason.MISSING_FILE
    assert reason_of(store, cut) == Reason.SHORT_READ
    assert reason_of(store, longer) == Reason.CHECKSUM
    assert reason_of(store, ids, sample(9)[0].ids) == Reason.CHECKSUM
    assert reason_of(store, unreadable) == Reason.READ_ERROR


@pytest.fixture(scope="module")
def one_file(fast_module_dir):
    """A store with one record: its row, its path, and the bytes of its file."""
    store = open_store(fast_module_dir / "flip")
    (row,) = store.publish([sample(1)])
    path = path_of(store, sample(1)[0])
    yield store, row, path, path.read_bytes()
    store.close()


@settings(max_examples=300)
@given(st.data())
def test_no_flipped_byte_is_read(one_file, data):
    """Any byte of the file changed, header or payload, is found when it is read; mended, the record is good again."""
    store, row, path, whole = one_file
    found, flipped = memoryview(bytearray(row.n_bytes)), bytearray(whole)
    at = data.draw(st.one_of(st.integers(0, 1500), st.integers(0, len(whole) - 1)))
    flipped[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(flipped)
    with pytest.raises(BadRecord):
        store.read(row, sample(1)[0].ids, found)
    path.write_bytes(whole)
    store.read(row, sample(1)[0].ids, found)
    assert found == sample(1)[1]


def test_many_threads_read_while_one_writes(root):
    """Readers see whole records on any thread, also while others are published and removed."""
    store = open_store(root)
    batch = [sample(seed) for seed in range(8)]
    rows = store.publish(batch)
    wrong: list[object] = []
    start, stop = threading.Barrier(5), threading.Event()

    def read_all():
        start.wait()
        while not stop.is_set():
            for (record, payload), row in zip(batch, rows, strict=True):
                found = bytearray(row.n_bytes)
                store.read(row, record.ids, memoryview(found))
                if found != payload:
                    wrong.append(record.name)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    start.wait()
    for seed in range(20, 40):
        store.publish([sample(seed)], replaces=[sample(seed - 1)[0].name])
        store.warm({batch[0][0].name: float(seed)})
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_removing_leaves_a_tombstone_and_no_file(root):
    """A removed record is gone with its reason; publishing it again takes the tombstone away."""
    store = open_store(root)
    store.publish([sample(1), sample(2)])
    store.remove([sample(1)[0].name], "evicted")
    assert [row.name for row in store.rows()] == [sample(2)[0].name]
    assert store.tombstones() == {sample(1)[0].name: "evicted"}
    assert files_below(root) == [path_of(store, sample(2)[0])]
    store.publish([sample(1)])
    assert store.tombstones() == {}


@pytest.mark.parametrize(("files", "records"), [(2, 100), (100, 2)])
def test_quarantine_keeps_the_newest_bad_files(root, monkeypatch, files, records):
    """A bad file moves aside for a person to look at; their number and bytes are bounded, a missing one is no error."""
    monkeypatch.setattr(sweep_module, "MAX_QUARANTINED", files)
    monkeypatch.setattr(sweep_module, "MAX_QUARANTINED_BYTES", records * (4096 + LAYOUT.block_bytes))
    store = open_store(root)
    store.publish([sample(seed) for seed in range(5)])
    path_of(store, sample(4)[0]).unlink()
    for seed in range(5):
        store.quarantine(sample(seed)[0].name, Reason.CHECKSUM)
    kept = [path.name[21:-12] for path in files_below(root)]
    assert kept == [sample(2)[0].name, sample(3)[0].name]
    assert set(store.tombstones().values()) == {"checksum"}
    sweep_all(store)
    assert len(files_below(root)) == 2


def test_used_bytes_are_the_bytes_on_the_disk(root):
    """The budget sees every byte below the root: records of all identities, catalogue and quarantine."""
    store, other = open_store(root), open_store(root, identity=OTHER)
    store.publish(chain(4))
    other.publish(chain(2))
    store.remove([chain(4)[3][0].name], "evicted")
    store.quarantine(chain(4)[2][0].name, Reason.CHECKSUM)
    other.warm({chain(2)[0][0].name: 5.0})
    assert store.used_bytes() == sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    other.remove([chain(2)[0][0].name], "evicted")
    assert store.used_bytes() == sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def test_other_identities_can_be_evicted(root):
    """The records of other models, longest unused first, can be listed and removed; one's own are left out."""
    store, other = open_store(root), open_store(root, identity=OTHER)
    store.publish([sample(9)])
    other.publish([sample(1), sample(2), sample(3)])
    for seed, when in ((1, 30.0), (2, 10.0), (3, 20.0)):
        other.warm({sample(seed)[0].name: when})
    size = other.rows()[0].file_bytes
    cold = [(each.identity, each.name, each.file_bytes) for each in store.coldest(2)]
    assert cold == [(OTHER, sample(2)[0].name, size), (OTHER, sample(3)[0].name, size)]
    store.remove_any([(OTHER, sample(2)[0].name), (IDENTITY, sample(9)[0].name)], "budget")
    assert {row.name for row in other.rows()} == {sample(1)[0].name, sample(3)[0].name}
    assert other.tombstones() == {sample(2)[0].name: "budget"}
    assert store.tombstones() == {sample(9)[0].name: "budget"}
    assert len(files_below(root)) == 2


def test_warmth_is_remembered(root):
    """When a record was last wanted survives a restart."""
    store = open_store(root)
    store.publish([sample(1), sample(2)])
    store.warm({sample(1)[0].name: 12.5, "0" * 40: 12.5})
    store.close()
    used = {row.name: row.used for row in open_store(root).rows()}
    assert used[sample(1)[0].name] == 12.5
    assert used[sample(2)[0].name] > 1e9


def test_sweeping_takes_what_no_row_names(root):
    """Old temporary files and orphans go, young ones and everything with a row stay, whatever the clock says."""
    store = open_store(root)
    store.publish([sample(1), sample(2), sample(3)])
    home = path_of(store, sample(1)[0]).parent
    old, young, ahead = home / f"old{TEMP_SUFFIX}", home / f"young{TEMP_SUFFIX}", home / "ahead.safetensors"
    foreign = home / "notes.txt"
    now = time.time()
    for path, when in ((old, now - 7200), (young, now), (ahead, now + 7200), (foreign, now - 7200)):
        path.write_bytes(b"x")
        os.utime(path, (when, when))
    sweep_all(store, 3600)
    assert not old.exists()
    assert not ahead.exists()
    assert young.exists()
    assert foreign.exists()
    assert store.check() == []
    sweep_all(store)
    assert not young.exists()
    assert len(store.rows()) == 3
    assert store.check() == []


def test_sweeping_is_done_in_steps(root):
    """One call looks at so many directories and says whether more remain; the pass reaches all, then begins anew."""
    store, other = open_store(root), open_store(root, identity=OTHER)
    store.publish(chain(6))
    other.publish(chain(6))
    temps = [path.parent / f"x{TEMP_SUFFIX}" for path in files_below(root)]
    n_directories = len({temp.parent for temp in temps})
    for _ in range(2):
        for temp in temps:
            temp.write_bytes(b"x")
        answers = [store.sweep(0.0, max_directories=1) for _ in range(n_directories)]
        assert answers == [True] * (n_directories - 1) + [False]
        assert not any(temp.exists() for temp in temps)


def test_check_names_rows_that_are_not_as_their_files(root):
    """Missing files and wrong sizes are found, in every identity, without reading a record."""
    store, other = open_store(root), open_store(root, identity=OTHER)
    store.publish([sample(1), sample(2)])
    other.publish([sample(3)])
    path_of(store, sample(1)[0]).unlink()
    os.truncate(path_of(other, sample(3)[0]), 17)
    found = {(problem.kind, problem.identity, problem.name) for problem in store.check()}
    assert found == {("missing_file", IDENTITY, sample(1)[0].name), ("wrong_size", OTHER, sample(3)[0].name)}


def test_a_row_of_an_impossible_length_is_dropped(root):
    """A length that no record of this model has never reaches those who make room for it."""
    store = open_store(root)
    store.publish([sample(1), sample(2)])
    store._catalogue._connected().execute("UPDATE records SET n_bytes = n_bytes * 1000 WHERE name = ?", (sample(1)[0].name,))
    assert [row.name for row in store.rows()] == [sample(2)[0].name]
    assert store.tombstones() == {sample(1)[0].name: "checksum"}
    assert len(files_below(root)) == 1


def test_a_vanished_cache_directory_comes_back(root):
    """If someone deletes the cache while the engine runs, saving goes on in a new one."""
    events = EventLog(None)
    store = open_store(root, events=events)
    store.publish([sample(1)])
    shutil.rmtree(root)
    store.publish([sample(1), sample(2)])
    assert read_back(store, sample(1)[0]) == sample(1)[1]
    assert {row.name for row in store.rows()} == {sample(1)[0].name, sample(2)[0].name}
    assert "catalogue.vanished" in [event.kind for event in events.recent]


def test_a_root_that_cannot_be_made_is_a_sentence(root):
    """A store that can't be made says where and what to check."""
    root.write_bytes(b"a file is in the way")
    with pytest.raises(StoreError, match="cannot be made"):
        open_store(root)
