"""The catalogue: rows and tombstones survive, damage costs the cache and nothing else."""

import sqlite3
import stat

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localkv.errors import StoreError
from localkv.events import EventLog
from localkv.tiers import catalogue as catalogue_module
from localkv.tiers.catalogue import VERSION, Catalogue, row_of, set_aside
from tests.tiers.tier_samples import IDENTITY, chain, open_store, sample

OTHER = "b2" * 20


@pytest.fixture
def events():
    return EventLog(None)


@pytest.fixture
def path(fast_dir):
    return fast_dir / "catalogue.db"


def row(seed, used=1.0):
    return row_of(sample(seed)[0], 4096, used)


def kinds(events):
    return [event.kind for event in events.recent]


def test_rows_survive(path, events):
    """What was committed is there after closing, per identity, and so is why things are gone."""
    catalogue = Catalogue.open(path, events)
    catalogue.change(IDENTITY, add=[row(1), row(2)])
    catalogue.change(OTHER, add=[row(2), row(3)])
    catalogue.change(IDENTITY, remove=[(IDENTITY, row(2).name), (OTHER, row(3).name)], reason="evicted")
    catalogue.close()
    catalogue = Catalogue.open(path, events)
    assert catalogue.rows(IDENTITY) == [row(1)]
    assert catalogue.rows(OTHER) == [row(2)]
    assert catalogue.tombstones(IDENTITY) == {row(2).name: "evicted"}
    assert catalogue.tombstones(OTHER) == {row(3).name: "evicted"}
    assert catalogue.find(IDENTITY, [row(1).name, row(2).name]) == {row(1).name: row(1)}
    assert catalogue.names(IDENTITY, row(1).name[:2]) == {row(1).name}
    assert sorted(catalogue.identities()) == [IDENTITY, OTHER]
    assert kinds(events) == []


def test_a_commit_is_durable_and_private(path, events):
    """The journal is a write-ahead log synced at each commit, and the files are 0600."""
    catalogue = Catalogue.open(path, events)
    catalogue.change(IDENTITY, add=[row(1)])
    db = catalogue._connected()
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert db.execute("PRAGMA fullfsync").fetchone() == (1,)
    files = list(path.parent.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_record_bytes_follow_every_change(path, events):
    """The sum is right after one's own changes and after those of another connection."""
    ours, theirs = Catalogue.open(path, events), Catalogue.open(path, events)
    assert ours.record_bytes() == 0
    ours.change(IDENTITY, add=[row(1), row(2)])
    assert ours.record_bytes() == theirs.record_bytes() == row(1).file_bytes * 2
    theirs.change(OTHER, add=[row(3)])
    assert ours.record_bytes() == row(1).file_bytes * 3
    ours.change(IDENTITY, remove=[(OTHER, row(3).name)], reason="budget")
    assert ours.record_bytes() == theirs.record_bytes() == row(1).file_bytes * 2


def test_tombstones_are_bounded(path, events, monkeypatch):
    """Only the newest tombstones stay; one is made only for a row that was there, and goes when the record comes back."""
    monkeypatch.setattr(catalogue_module, "MAX_TOMBSTONES", 3)
    catalogue = Catalogue.open(path, events)
    catalogue.change(IDENTITY, add=[row(seed) for seed in range(6)])
    for seed in range(6):
        catalogue.change(IDENTITY, remove=[(IDENTITY, row(seed).name)], reason=f"r{seed}")
    catalogue.change(IDENTITY, remove=[(IDENTITY, row(5).name), (IDENTITY, "0" * 40)], reason="never")
    assert catalogue.tombstones(IDENTITY) == {row(seed).name: f"r{seed}" for seed in (3, 4, 5)}
    catalogue.change(IDENTITY, add=[row(4)])
    assert set(catalogue.tombstones(IDENTITY)) == {row(3).name, row(5).name}


def test_least_used_gives_children_before_parents(path, events):
    """Of records used at the same time the later in a chain goes first; the excluded identity never goes."""
    records = [record for record, _ in chain(3)]
    rows = [
        catalogue_module.Row(
            r.name, r.kind, r.parent, r.lookup, 16 * (i + 1), r.fingerprint, r.n_bytes, r.digest, r.check, 4096, 7.0
        )
        for i, r in enumerate(records)
    ]
    catalogue = Catalogue.open(path, events)
    catalogue.change(OTHER, add=rows)
    catalogue.change(IDENTITY, add=[row(9, used=1.0)])
    assert [name for _, name, _ in catalogue.least_used(10, IDENTITY)] == [one.name for one in reversed(rows)]


def test_many_names_are_found(path, events):
    """More names than one statement may carry are no problem."""
    catalogue = Catalogue.open(path, events)
    catalogue.change(IDENTITY, add=[row(1)])
    assert set(catalogue.find(IDENTITY, [f"{i:040x}" for i in range(3000)] + [row(1).name])) == {row(1).name}


def test_a_newer_catalogue_is_set_aside(path, events):
    """A catalogue of another version is neither read nor changed: it is renamed, and an empty one begins."""
    catalogue = Catalogue.open(path, events)
    catalogue.change(IDENTITY, add=[row(1)])
    catalogue._connected().execute(f"PRAGMA user_version = {VERSION + 1}")
    catalogue.close()
    catalogue = Catalogue.open(path, events)
    assert catalogue.rows(IDENTITY) == []
    catalogue.change(IDENTITY, add=[row(2)])
    assert kinds(events) == ["catalogue.set_aside"]
    (aside,) = path.parent.glob("catalogue.*.old")
    kept = sqlite3.connect(aside)
    assert kept.execute("SELECT name FROM records").fetchall() == [(row(1).name,)]
    kept.close()


def test_a_log_is_set_aside_with_its_database(path, events):
    """Database, log and shared memory are renamed together: SQLite would replay a log that lies beside a new database."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"x")
    set_aside(path, events, "a test asks for it")
    assert sorted(left.suffix for left in path.parent.iterdir()) == [".old", ".old-shm", ".old-wal"]
    assert kinds(events) == ["catalogue.set_aside"]


def test_a_change_that_fails_half_way_leaves_nothing(path, events):
    """If one row of a change can't be written none of it is there, and the next change works."""
    catalogue = Catalogue.open(path, events)
    catalogue.change(IDENTITY, add=[row(1)])
    nameless = msgspec.structs.replace(row(3), name=None)
    with pytest.raises(StoreError):
        catalogue.change(IDENTITY, add=[row(2), nameless], remove=[(IDENTITY, row(1).name)], reason="superseded")
    assert catalogue.rows(IDENTITY) == [row(1)]
    assert catalogue.tombstones(IDENTITY) == {}
    catalogue.change(IDENTITY, add=[row(2)])
    assert len(catalogue.rows(IDENTITY)) == 2


def test_only_the_newest_set_aside_file_is_kept(path, events):
    """Catalogues that were set aside do not pile up."""
    for i in range(3):
        path.write_bytes(b"not a database, attempt %d " % i * 100)
        Catalogue.open(path, events).close()
        for aside in path.parent.glob("catalogue.*.old"):
            aside.rename(path.with_name(f"catalogue.2000010{i}T000000.old"))
    path.write_bytes(b"not a database either " * 100)
    Catalogue.open(path, events).close()
    assert len(list(path.parent.glob("*.old*"))) == 1


@pytest.fixture(scope="module")
def forty_rows(fast_module_dir):
    """A path for a catalogue, and the bytes of one with forty rows."""
    path = fast_module_dir / "damage" / "catalogue.db"
    path.parent.mkdir()
    catalogue = Catalogue.open(path, EventLog(None))
    catalogue.change(IDENTITY, add=[row(seed) for seed in range(40)])
    catalogue.close()
    return path, path.read_bytes()


@settings(max_examples=100)
@given(st.data())
def test_a_damaged_catalogue_never_stops_the_engine(forty_rows, data):
    """Whatever bytes are in the file, opening gives rows that were written, or none; and it takes new ones."""
    path, content = forty_rows
    whole = bytearray(content)
    how = data.draw(st.sampled_from(["cut", "noise", "empty", "header"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    if how == "cut":
        whole = whole[:at]
    elif how == "empty":
        whole.clear()
    else:
        start = at if how == "noise" else at % 100
        whole[start : start + 50] = data.draw(st.binary(min_size=1, max_size=50))
    for left in path.parent.iterdir():
        left.unlink()
    path.write_bytes(whole)
    catalogue = Catalogue.open(path, EventLog(None))
    for found in catalogue.rows(IDENTITY):
        assert found.record(b"").name == found.name
        assert found.file_bytes >= 0
    catalogue.tombstones(IDENTITY)
    catalogue.least_used(5, OTHER)
    catalogue.change(IDENTITY, add=[row(50)])
    assert row(50) in catalogue.rows(IDENTITY)
    catalogue.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("name", "../../x"),
        ("n_bytes", b"\x00"),
        ("n_bytes", -1),
        ("kind", "blok"),
        ("header_bytes", 1 << 40),
        ("used", "soon"),
    ],
)
def test_a_row_of_nonsense_is_damage(path, events, column, value):
    """Values that were never written, as a flipped bit leaves them, get no further than the catalogue, which begins anew."""
    catalogue = Catalogue.open(path, events)
    catalogue.change(IDENTITY, add=[row(1)])
    catalogue._connected().execute(f"UPDATE records SET {column} = ?", (value,))
    assert catalogue.rows(IDENTITY) == []
    assert kinds(events) == ["catalogue.set_aside"]


def test_damage_found_while_running_is_left_behind(fast_dir):
    """A catalogue that goes bad under a running engine is set aside with an event, and saving goes on in a new one."""
    root = fast_dir / "store"
    events = EventLog(None)
    store = open_store(root, events=events)
    store.publish(chain(60))
    store._catalogue._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    path = root / "catalogue.db"
    whole = bytearray(path.read_bytes())
    whole[4096:] = b"\xff" * (len(whole) - 4096)
    store = open_store(root, events=events)
    path.write_bytes(whole)
    assert store.rows() == []
    assert "catalogue.set_aside" in kinds(events)
    store.publish([sample(1)])
    assert [one.name for one in store.rows()] == [sample(1)[0].name]


def test_a_path_that_cannot_be_opened_is_a_sentence(path, events):
    """A catalogue that can't be opened says where and what to check, and is not taken for damaged."""
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        Catalogue.open(path, events)
    assert path.is_dir()
