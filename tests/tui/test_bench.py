"""`bench tui`: the promised figures, from the real screen; and what they promise, as ratios within one run."""

import contextlib
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from localkv import cli
from localkv.chat.database import Database
from localkv.chat.store import ConversationStore
from localkv.errors import LocalKVError
from localkv.tui.bench import KEYS, face, filling, turns


@pytest.fixture
def small(monkeypatch):
    """The same bench on less."""
    monkeypatch.setattr(face, "ROUNDS", 2)
    monkeypatch.setattr(face, "LONG", 60)
    monkeypatch.setattr(face, "FLUSHES", 20)
    monkeypatch.setattr(face, "CONVERSATIONS", 100)
    monkeypatch.setattr(face, "MESSAGES", 1_000)


@pytest.mark.slow
def test_the_part_without_an_engine(home, small):
    """All its figures are there and are times and sizes of something."""
    figures = face.measure(home, lambda _: None)
    assert set(figures) == set(KEYS) - {"tps_ratio", "restore_stall_ms"}
    assert all(value > 0 for value in figures.values())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.timeout(600)
def test_opening_2000_messages_is_like_opening_20(home):
    """From the key to the first frame, at most twice as long; and a filter step and a search take no second each."""
    # In a process of its own: what the tests before it have imported is no memory of a face.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        figures = processes.submit(face.measure, home, print).result()
    assert figures["open_2000_s"] <= 2 * figures["open_20_s"]
    assert figures["rss_mb"] < 150


def test_names(monkeypatch, capsys):
    """`localkv bench tui --json` prints one document with exactly the promised keys; an unknown bench names this one, too."""
    monkeypatch.setattr("localkv.commands.bench._lock", lambda say: contextlib.nullcontext())
    monkeypatch.setattr(face, "measure", lambda home, say: dict.fromkeys(KEYS[:7], 1.0) | {"rss_mb": 1.0})
    monkeypatch.setattr(turns, "measure", lambda home, say: {"tps_ratio": 1.0, "restore_stall_ms": 1.0})
    cli.app(["bench", "tui", "--json"], standalone_mode=False)
    assert list(json.loads(capsys.readouterr().out)) == list(KEYS)
    with pytest.raises(LocalKVError, match="tui"):
        cli.app(["bench", "screen"], standalone_mode=False)


def test_made_up_conversations_are_sound(home):
    """What the bench writes is what the product writes: no flaw, found by search, in the order of the list."""
    from localkv.chat.audit import audit_conversations

    store = ConversationStore.open(home.database, home.backups)
    database = Database.open(home.database, home.backups)
    key = filling.talk(store, database, "talk", 6)
    filling.many(store, database, 10, 40)
    database.close()
    assert [message.role for message in store.path(key)] == ["user", "assistant"] * 3
    assert len(store.search("borrow", 10)) == 3
    assert len(store.list()) == 12
    assert len(store.search(filling.Words().word(0), 100)) > 20
    store.close()
    assert [flaw.kind for flaw in audit_conversations(home.database).flaws if flaw.kind != "count"] == []
