"""Flaws of the conversations that are found, and what is none."""

import sqlite3

import pytest

from localkv.chat.audit import audit_conversations
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import Head, pack_ids


@pytest.fixture
def path(tmp_path):
    """A database with one conversation of two turns."""
    store = ConversationStore.open(tmp_path / "c.db", tmp_path / "backups")
    key = store.create("talk", model=ModelSection(), sampling=SamplingSection(), system="be brief").id
    parent = None
    for number in range(2):
        question = store.ask(key, parent, f"question {number}")
        store.set_ids(question.id, pack_ids([1, 2]))
        answer = store.begin_answer(key, question.id)
        head = Head(f"head{number}", "identity", 3)
        store.finish_answer(answer.id, text="answer", ids=pack_ids([3]), state="complete", head=head, numbers={})
        parent = answer.id
    store.close()
    return tmp_path / "c.db"


def test_a_sound_database_has_no_flaw(path):
    """Everything is counted, every head is listed, nothing is complained of, nothing changes."""
    before = path.read_bytes()
    audit = audit_conversations(path)
    assert audit.flaws == []
    assert (audit.conversations, audit.messages) == (1, 5)
    assert audit.heads == {("identity", "head0"), ("identity", "head1")}
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("tree", "UPDATE messages SET parent = id WHERE seq = 3"),
        ("reference", "UPDATE messages SET parent = 'nobody' WHERE seq = 3"),
        ("reference", "UPDATE conversations SET leaf = 'nobody'"),
        ("ids", "UPDATE messages SET ids = x'010203' WHERE seq = 2"),
        ("message", "UPDATE messages SET head = '{\"name\": 7}' WHERE seq = 3"),
        ("message", "UPDATE messages SET numbers = 'nonsense' WHERE seq = 3"),
        ("settings", "UPDATE conversations SET sampling = '{\"temperature\": -1}'"),
        ("count", "UPDATE conversations SET n_messages = 7"),
        ("schema", "PRAGMA user_version = 99"),
    ],
)
def test_every_flaw_is_found(path, kind, change):
    """Circles, missing parents and leaves, odd ids, heads and settings that do not parse, wrong counts, a newer schema."""
    db = sqlite3.connect(path)
    db.execute(change)
    db.commit()
    db.close()
    assert kind in {flaw.kind for flaw in audit_conversations(path).flaws}


@pytest.mark.parametrize("damage", ["header", "middle"])
def test_damage_is_a_flaw_that_names_the_way_back(path, damage):
    """A file that SQLite cannot read points to the backups."""
    content = bytearray(path.read_bytes())
    start = 0 if damage == "header" else 4096
    content[start : start + 4000] = b"x" * 4000
    path.write_bytes(content)
    flaws = audit_conversations(path).flaws
    assert flaws
    assert "localkv sessions restore" in flaws[0].what


def test_a_missing_database_has_no_flaw(tmp_path):
    """A new user has nothing to complain of, and no file is made."""
    assert audit_conversations(tmp_path / "none.db").flaws == []
    assert not (tmp_path / "none.db").exists()
