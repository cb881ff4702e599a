"""Records of a deleted conversation leave RAM and SSD; those of others stay."""

import threading

import pytest

from localkv.files import Files
from localkv.kv.record import pack_ids
from localkv.messages import TokenLog
from tests.placement.lives import IDENTITY, Life
from tests.placement.logbook import by_the_book, by_the_log

A = list(range(40))
B = [*A[:16], *range(100, 130)]


def files_in(root):
    return sorted(path.name for path in root.rglob("*.safetensors"))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


def forget(life, ids, shared=0):
    return life.keeper.forget([TokenLog(ids=pack_ids(ids), shared=shared)], (), 10.0)


def test_a_saved_conversation_is_forgotten(root):
    """Its own records go from index, RAM and SSD; the common beginning stays, and the other conversation is restored whole."""
    life = Life(root)
    heads = [life.admit(A), life.admit(B)]
    assert life.keeper.flush(10)
    freed = forget(life, A, shared=16)
    assert freed.records == 2, "the second block and the state at the end"
    assert life.restore(A, heads[0])[0] == 16
    assert life.restore(B, heads[1])[0] == len(B)
    assert life.end()
    assert len(files_in(root)) == 3


def test_what_is_not_saved_yet_never_is(root):
    """Forgotten before it was saved: it leaves RAM, and nothing of it is written afterwards."""

    class Slow(Files):
        gate = threading.Event()

        def write_temp(self, path, parts):
            self.gate.wait(20)
            return super().write_temp(path, parts)

    life = Life(root, Slow())
    long = list(range(200, 200 + 16 * 12))
    life.admit(long)
    timer = threading.Timer(0.1, Slow.gate.set)
    timer.start()
    forget(life, long)
    timer.join()
    assert life.restore(long, None)[0] == 0
    assert life.keeper.counts().ram.records == 0
    assert life.end()
    assert files_in(root) == []


def test_records_can_be_named(root):
    """What is named goes; other identities' names are left to the store."""
    life = Life(root)
    head = life.admit(A)
    life.keeper.flush(10)
    freed = life.keeper.forget((), ((IDENTITY, head.name), ("cd" * 20, "no such name")), 10.0)
    assert freed.records == 1
    assert life.restore(A, head)[0] == 32
    life.end()


def test_each_that_goes_has_its_line(root):
    """From RAM and from SSD, with the reason: what the log adds up to is what lies there, files included."""
    life = Life(root)
    life.admit(A)
    life.admit(B)
    assert life.keeper.flush(10)
    forget(life, A, shared=16)
    told, files = by_the_log(life.events.recent), {name[:12] for name in files_in(root)}
    assert told == by_the_book(life.keeper)
    assert told["ssd"] == files
    assert len(files) == 3
    gone = [event.fields for event in life.events.recent if event.fields.get("reason") == "forgotten"]
    assert sorted((move["from"], move["to"]) for move in gone) == [("ram", ""), ("ram", ""), ("ssd", ""), ("ssd", "")]
    assert life.end()
