"""The order by which the rehearsal judges a store: the real one keeps it, every sabotage breaks it, and no step can be left out."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.drill.law import Law
from localkv.commands.drill.marks import Journal, Mark, Watch
from localkv.commands.drill.recorder import RecordingCatalogue, RecordingFiles, RecordingStore
from localkv.commands.drill.sabotage import files_of
from localkv.errors import BadRecord
from localkv.events import EventLog, Reason
from localkv.tiers import disk
from tests.tiers.tier_samples import IDENTITY, LAYOUT, chain, files_below


def lead_a_life(tmp_path, monkeypatch, sabotage=""):
    """A store that saves, saves again, evicts, is flipped a byte of and read; returns its marks and what reading said."""
    folder = tmp_path / "marks"
    folder.mkdir()
    journal = Journal(folder)
    monkeypatch.setattr(disk, "Publisher", disk.Publisher)
    monkeypatch.setattr(disk, "verify", disk.verify)
    monkeypatch.setattr(disk, "Catalogue", lambda path, events: RecordingCatalogue(journal, path, events))
    monkeypatch.setattr(RecordingStore, "journal", journal, raising=False)
    files = files_of(sabotage, journal)()
    store = RecordingStore.open(tmp_path / "store", IDENTITY, LAYOUT, files, EventLog(None))
    with contextlib.closing(store):
        batch = chain(6)
        rows = [row for i in range(0, 6, 2) for row in store.publish(batch[i : i + 2])]
        store.remove_any([(IDENTITY, rows[5].name)], Reason.EVICTED)
        store.publish(batch[5:])
        flipped = next(path for path in files_below(tmp_path / "store") if path.stem == rows[0].name)
        content = bytearray(flipped.read_bytes())
        content[-1] ^= 1
        flipped.write_bytes(content)
        said = []
        for row, (record, _) in zip(rows, batch, strict=True):
            try:
                store.read(row, record.ids, memoryview(bytearray(row.n_bytes)))
            except BadRecord as error:
                said.append(error.reason)
    watch = Watch(folder)
    watch.poll()
    return watch.marks, said


def breaches(marks):
    law = Law()
    return [breach for mark in marks for breach in law.feed(mark)]


def test_the_real_store_keeps_the_law(tmp_path, monkeypatch):
    """Nothing is held against it, and the flipped record is refused."""
    marks, said = lead_a_life(tmp_path, monkeypatch)
    assert breaches(marks) == []
    assert said == [Reason.CHECKSUM]
    assert [mark.good for mark in marks if mark.what == "restored"] == [True] * 5
    assert {"saving", "saved", "evicting", "evicted", "made_dir", "removed"} <= {mark.what for mark in marks}


@pytest.mark.parametrize("sabotage", ["row-before-file", "no-fsync-order", "in-place-write"])
def test_sabotage_breaks_the_law(tmp_path, monkeypatch, sabotage):
    """Each of these is seen in the order of the steps, also where nothing was lost."""
    marks, _ = lead_a_life(tmp_path, monkeypatch, sabotage)
    assert breaches(marks)


def test_a_store_without_checksums_is_seen_by_what_it_lets_through(tmp_path, monkeypatch):
    """The spoilt record is used, and another digest than the store's own says so."""
    marks, said = lead_a_life(tmp_path, monkeypatch, "no-checksum")
    assert said == []
    assert [mark.good for mark in marks if mark.what == "restored"].count(False) == 1


def test_no_step_can_be_left_out(tmp_path, monkeypatch):
    """Every sync, rename and directory sync before a commit is needed: without any one of them the law is broken."""
    marks, _ = lead_a_life(tmp_path, monkeypatch)
    ordered = [mark for mark in marks if mark.what in {"synced", "renamed", "dir_synced", "committed"}]
    kept = [mark for mark in ordered if mark.what != "committed"]
    needed = [mark for mark in kept if mark.what in {"synced", "renamed"} or str(mark.path).count(IDENTITY)]
    assert len(needed) > 15
    for missing in needed:
        assert breaches([mark for mark in marks if mark is not missing]), missing


@given(st.data())
def test_what_had_only_begun_is_not_believed(data):
    """A commit after which the process died neither proves nor excludes a row: the file may go, or stay."""
    known = data.draw(st.booleans())
    name = "ab" * 20
    final = f"/s/i/ab/{name}.safetensors"
    steps = [
        ("written", {"path": f"/s/i/ab/{name}.1.part"}), ("synced", {"path": f"/s/i/ab/{name}.1.part"}),
        ("renamed", {"path": f"/s/i/ab/{name}.1.part", "target": final}), ("dir_synced", {"path": "/s/i/ab"}),
        ("commit", {"names": (name,)}), *([("committed", {"names": (name,)})] if known else []), ("removing", {"path": final}),
    ]  # fmt: skip
    marks = [Mark(at=float(i), pid=1, what=what, **fields) for i, (what, fields) in enumerate(steps)]
    assert len(breaches(marks)) == known


def test_a_file_is_written_in_pieces(tmp_path):
    """A kill in the middle of a large file leaves it torn: there is a mark between two pieces."""
    watch = Watch(tmp_path)
    files = RecordingFiles(Journal(tmp_path))
    files.write_temp(tmp_path / "a.part", [bytes(100_000)])
    watch.poll()
    assert [mark.what for mark in watch.marks].count("piece") >= 2
    assert (tmp_path / "a.part").stat().st_size == 100_000
