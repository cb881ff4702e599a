"""The store proved against its catalogue, and mended."""

import random
import shutil
import sqlite3

import pytest

from localkv.errors import BadRecord, StoreError
from localkv.events import EventLog
from localkv.files import Files
from localkv.kv.record import tensors_of
from localkv.messages import Forget, TokenLog
from localkv.tiers.audit import audit_store, check_file
from localkv.tiers.catalogue import CATALOGUE, read_rows
from localkv.tiers.publish import record_path
from localkv.tiers.upkeep import Upkeep, forget_on_disk
from tests.tiers.tier_samples import IDENTITY, LAYOUT, chain, open_store, read_back, sample, sweep_all

N = 6


@pytest.fixture
def root(fast_dir):
    """A store with a chain of records and one that is removed."""
    store = open_store(fast_dir / "store")
    store.publish(chain(N))
    store.publish([sample(50)])
    store.remove([sample(50)[0].name], "evicted")
    store.close()
    return fast_dir / "store"


def path_of(root, i):
    return record_path(root, IDENTITY, chain(N)[i][0].name)


def audit(root, budget=None):
    return audit_store(root, budget, lambda done, total: None)


def kinds(root, budget=None):
    return sorted(finding.kind for finding in audit(root, budget).findings)


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def forget_row(root, name):
    db = sqlite3.connect(root / CATALOGUE)
    db.execute("DELETE FROM records WHERE name = ?", (name,))
    db.commit()
    db.close()


DAMAGE = {
    "missing_file": lambda root: path_of(root, 2).unlink(),
    "checksum": lambda root: flip(path_of(root, 1), 5000),
    "short_read": lambda root: path_of(root, 1).write_bytes(path_of(root, 1).read_bytes()[:-1]),
    "no_row": lambda root: forget_row(root, chain(N)[5][0].name),
    "misplaced": lambda root: move(path_of(root, 3), root / IDENTITY / "zz"),
    "temp_file": lambda root: (path_of(root, 0).parent / "x.part").touch(mode=0o600),
    "stray_file": lambda root: (path_of(root, 0).parent / "notes.txt").touch(mode=0o600),
    "permissions": lambda root: path_of(root, 4).chmod(0o644),
    "catalogue": lambda root: (root / CATALOGUE).write_bytes(b"no database" * 500),
    "row_differs": lambda root: change_row(root, chain(N)[4][0].name),
}


def move(path, directory):
    directory.mkdir(mode=0o700)
    path.rename(directory / path.name)


def change_row(root, name):
    db = sqlite3.connect(root / CATALOGUE)
    db.execute("UPDATE records SET fingerprint = 'another' WHERE name = ?", (name,))
    db.commit()
    db.close()


def test_a_sound_store_has_no_finding(root):
    """All records and bytes are counted; an empty place is sound too."""
    found = audit(root)
    assert found.findings == []
    assert (found.records, found.n_bytes) == (N, N * (4096 + LAYOUT.block_bytes))
    assert audit(root / "nowhere").findings == []


@pytest.mark.parametrize("kind", DAMAGE)
def test_every_damage_is_found_and_mended(root, kind):
    """Each kind of damage is found by its name; after mending the store is sound and every good record is still there."""
    lost = {"missing_file": {2}, "checksum": {1}, "short_read": {1}, "misplaced": {3}}.get(kind, set())
    DAMAGE[kind](root)
    assert kind in kinds(root)
    upkeep = Upkeep.open(root, EventLog(None))
    upkeep.mend(audit(root).findings)
    upkeep.close()
    assert kinds(root) == []
    store = open_store(root)
    assert {row.name for row in store.rows()} == {r.name for i, (r, _) in enumerate(chain(N)) if i not in lost}
    for i, (record, payload) in enumerate(chain(N)):
        if i not in lost:
            assert read_back(store, record) == payload
    store.close()


def test_nothing_is_changed_by_looking(root):
    """A look leaves every byte as it is, whatever it finds."""
    DAMAGE["checksum"](root)
    DAMAGE["no_row"](root)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    audit(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_budget_that_is_exceeded_is_found_and_kept(root):
    """What was not wanted for longest goes, children before parents."""
    assert kinds(root, 40_000) == ["over_budget"]
    upkeep = Upkeep.open(root, EventLog(None))
    upkeep.mend(audit(root, budget=120_000).findings)
    upkeep.mend(audit(root, budget=40_000).findings)
    upkeep.close()
    assert audit(root, 40_000).findings == []


def test_shapes_that_differ_from_the_others_are_found(root):
    """A whole file with other tensors than its model's is no record of that model."""
    from localkv.kv.layout import Layer, Layout, Rows
    from localkv.kv.record import describe, encode_header, pack_ids, root_name

    other = Layout((Layer(0, Rows(2, 64, "BF16"), Rows(2, 64, "BF16")),), 16)
    payload = random.Random(3).randbytes(other.block_bytes)
    record = describe("block", root_name(IDENTITY), pack_ids(range(900, 916)), 16, "print", payload)
    path = record_path(root, IDENTITY, record.name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.write_bytes(encode_header(record, other) + payload)
    path.chmod(0o600)
    assert kinds(root) == ["no_row", "shapes"]


def test_every_flipped_byte_is_found(root):
    """Any byte of a file, header and payload: the file does not pass as the record of its name."""
    path = path_of(root, 0)
    content = path.read_bytes()
    rng = random.Random(4)
    for offset in [*range(0, 1200, 7), *rng.sample(range(len(content)), 100)]:
        changed = bytearray(content)
        changed[offset] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(BadRecord):
            check_file(path, Files())


def test_tensors_lie_without_holes(root):
    """The list in the header is what safetensors asks for; any other list is refused."""
    header = path_of(root, 0).read_bytes()[:4096]
    assert len(tensors_of(header, "n")) == 4
    for bad in (
        header.replace(b'"BF16"', b'"F32" ', 1),
        header.replace(b"[0,", b"[8,", 1),
        header.replace(b'"shape"', b'"shapE"', 1),
    ):
        with pytest.raises(BadRecord):
            tensors_of(bad, "n")


def test_a_store_at_work_has_no_finding(root, monkeypatch):
    """What an engine removes or publishes while the audit reads is no problem."""
    from localkv.tiers import audit as module

    store, real = open_store(root), module.check_file

    def meanwhile(path, files):
        if not store.tombstones().get(chain(N)[3][0].name):
            store.remove([chain(N)[i][0].name for i in (3, 4, 5)], "evicted")
            store.publish([sample(70)])
        return real(path, files)

    monkeypatch.setattr(module, "READERS", 1)
    monkeypatch.setattr(module, "check_file", meanwhile)
    assert kinds(root) == []
    store.close()


# ---- forgetting and clearing up ----


def test_forgetting_takes_rows_and_files_of_all_identities(root):
    """The records of a log go in every identity; those of the shared beginning and of other logs stay."""
    store = open_store(root, identity="b2" * 20)
    store.publish([sample(9)])
    store.close()
    ids = b"".join(record.ids for record, _ in chain(N))
    freed = forget_on_disk(root, EventLog(None), Forget(request=1, logs=(TokenLog(ids=ids, shared=16),)))
    assert freed.records == 0, "positions of these samples are all 16, which is shared"
    freed = forget_on_disk(root, EventLog(None), Forget(request=1, logs=(TokenLog(ids=ids),)))
    assert freed.records == N
    assert freed.n_bytes == N * (4096 + LAYOUT.block_bytes)
    assert [path for path in root.rglob("*.safetensors") if IDENTITY in str(path)] == []
    assert [identity for identity, _ in read_rows(root / CATALOGUE)] == ["b2" * 20]
    assert kinds(root) == []


@pytest.mark.parametrize("spoil", ["nothing", "payload", "header"])
@pytest.mark.parametrize("where", ["quarantine", "orphan", "temporary"])
def test_forgetting_takes_what_no_row_names(root, spoil, where):
    """A bad file that was put aside and what a killed engine left hold the conversation's tokens: they go, those of others stay."""
    mine, other, shared = sample(200)[0], sample(300)[0], sample(400)[0]
    store = open_store(root)
    store.publish([sample(200), sample(300), sample(400)])
    if spoil != "nothing":
        flip(record_path(root, IDENTITY, mine.name), 5000 if spoil == "payload" else 200)
    for record in (mine, other, shared):
        if where == "quarantine":
            store.quarantine(record.name, "checksum")
        else:
            forget_row(root, record.name)
            path = record_path(root, IDENTITY, record.name)
            path.rename(path.with_name(f"{record.name}.0a.part") if where == "temporary" else path)
    store.close()
    left = {path.name.rpartition("-")[2][:40] for path in root.rglob("*") if path.is_file()}
    assert {mine.name, other.name, shared.name} <= left
    logs = (TokenLog(ids=mine.ids), TokenLog(ids=shared.ids + mine.ids, shared=16))
    forget_on_disk(root, EventLog(None), Forget(request=1, logs=logs))
    left = {path.name.rpartition("-")[2][:40] for path in root.rglob("*") if path.is_file()}
    assert left >= {other.name, shared.name, *(record.name for record, _ in chain(N))}
    assert mine.name not in left


def test_mending_brings_nothing_back_that_was_removed(root):
    """The row went and the file could not: with --fix it goes, too; it may be of a conversation that was deleted."""
    store = open_store(root)
    store.publish([sample(50)])
    path = record_path(root, IDENTITY, sample(50)[0].name)
    content = path.read_bytes()
    store.remove([sample(50)[0].name], "evicted")
    store.close()
    path.write_bytes(content)
    path.chmod(0o600)
    assert kinds(root) == ["no_row"]
    upkeep = Upkeep.open(root, EventLog(None))
    upkeep.mend(audit(root).findings)
    upkeep.close()
    assert not path.exists()
    assert kinds(root) == []
    assert sample(50)[0].name not in {row.name for _, row in read_rows(root / CATALOGUE)}


def test_forgetting_where_there_is_no_store(tmp_path):
    """Nothing to forget is no error, and makes no file."""
    assert forget_on_disk(tmp_path, EventLog(None), Forget(request=1)).records == 0
    assert list(tmp_path.iterdir()) == []


def test_what_no_conversation_has_is_not_needed(root):
    """All records of a log are needed with it, and none without it; leftovers are files without a row."""
    ids = b"".join(record.ids for record, _ in chain(N))
    upkeep = Upkeep.open(root, EventLog(None))
    assert upkeep.not_needed([ids]) == []
    assert len(upkeep.not_needed([ids[:64]])) == N - 1
    shutil.copy(path_of(root, 0), path_of(root, 0).with_name("x.safetensors"))
    (root / "catalogue.2020.old").touch()
    left = upkeep.leftovers()
    assert sorted(each.path.name for each in left) == ["catalogue.2020.old", "x.safetensors"]
    assert upkeep.clear(left).n_bytes == 4096 + LAYOUT.block_bytes
    assert upkeep.leftovers() == []
    upkeep.close()
    store = open_store(root)
    sweep_all(store)
    assert len(store.rows()) == N
    store.close()


def test_reading_rows_from_outside_sets_nothing_aside(tmp_path):
    """A damaged catalogue is a sentence with the way out, and stays where it is."""
    (tmp_path / CATALOGUE).write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match="verify --fix"):
        read_rows(tmp_path / CATALOGUE)
    assert [path.name for path in tmp_path.iterdir()] == [CATALOGUE]
