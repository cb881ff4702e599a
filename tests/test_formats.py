"""Stores that earlier versions wrote are opened, read and brought up to date: one folder of tests/fixtures for each format."""

import shutil
from pathlib import Path

import pytest

from localkv.chat.audit import audit_conversations
from localkv.chat.backups import list_backups, look
from localkv.chat.migrations import MIGRATIONS
from localkv.chat.store import ConversationStore
from localkv.kv.record import pack_ids, unpack_ids
from localkv.tiers.audit import audit_store
from tests.tiers.tier_samples import IDENTITY, chain, open_store, read_back, sample

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(params=sorted(path.name for path in FIXTURES.glob("store-v*")))
def old(request, tmp_path):
    """A copy of what a version wrote, private as it was."""
    target = tmp_path / "home"
    shutil.copytree(FIXTURES / request.param, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return target


def test_conversations_of_every_format_are_all_there(old):
    """Text, ids, branches, settings, heads and the trash of an old database are read; an unfinished answer is cut, not lost."""
    store = ConversationStore.open(old / "conversations.db", old / "backups")
    assert store.recover() == 1
    assert [each.name for each in store.list(include_trashed=True)] == ["trashed", "first"]
    first = store.by_name("first")
    assert (first.system, first.sampling.seed, first.title, first.n_messages) == ("be brief", 7, "What is a KV cache?", 3)
    system, question, cut = store.path(first.id)
    assert (system.role, question.text, question.ids) == ("system", "What is a KV cache?", pack_ids(range(16)))
    assert (cut.text, cut.state, unpack_ids(cut.ids)) == ("half an ans", "cut", [5])
    answer = store.message(store.shown_versions(cut.id)[0])
    assert (answer.text, answer.state, answer.head.tokens) == ("State. \U0001f642", "complete", 32)
    assert answer.head.name == chain(2)[1][0].name
    assert (first.tags, first.archived, first.queue) == ((), None, ())
    assert {hit.message for hit in store.search("kv cach")} == {question.id}, "what was said before is found by its words"
    assert [hit.message for hit in store.search("half ans")] == [cut.id], "also what was cut"
    was_private = store.by_name("trashed").private
    store.ask(first.id, answer.id, "and now?")
    store.close()
    assert audit_conversations(old / "conversations.db").flaws == []
    copies = [look(path, len(MIGRATIONS)) for path in list_backups(old / "backups", old / "conversations.db")]
    assert copies, "the schema has changed since, so there is a copy of what was there before"
    assert all((copy.conversations, copy.messages, copy.problem) == (2, 4, "") for copy in copies)
    assert was_private == (copies[-1].schema > 1), "what was private stays private"


def test_records_of_every_format_are_read_back(old):
    """Rows, tombstones and the bytes of records of an old cache are what they were."""
    assert audit_store(old / "store", None, lambda done, total: None).findings == []
    store = open_store(old / "store")
    for record, payload in chain(2):
        assert read_back(store, record) == payload
    assert store.tombstones() == {sample(9)[0].name: "evicted"}
    assert {row.name for row in store.rows()} == {record.name for record, _ in chain(2)}
    assert store.identity == IDENTITY
    store.close()
