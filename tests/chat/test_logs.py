"""Token logs of conversations."""

from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.logs import leaf_logs, shared_tokens
from localkv.chat.store import ConversationStore
from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import pack_ids


def test_every_branch_is_a_log(tmp_path):
    """Each leaf of each conversation, trashed ones too, gives the ids from the root to it."""
    store = ConversationStore.open(tmp_path / "c.db", tmp_path / "backups")
    made = {}
    for name in ("one", "two"):
        key = store.create(name, model=ModelSection(), sampling=SamplingSection()).id
        question = store.ask(key, None, "q")
        store.set_ids(question.id, pack_ids([1, 2]))
        for ids in ([3], [4, 5]):
            answer = store.begin_answer(key, question.id)
            store.finish_answer(answer.id, text="", ids=pack_ids(ids), state="complete", head=None, numbers=None)
        made[name] = key
    store.trash(made["two"])
    logs = store.token_logs()
    assert sorted(owner for owner, _ in logs) == sorted([made["one"]] * 2 + [made["two"]] * 2)
    assert {log for _, log in store.token_logs(made["one"])} == {pack_ids([1, 2, 3]), pack_ids([1, 2, 4, 5])}
    store.close()


def test_a_log_ends_before_what_was_never_tokenised():
    """Ids after a gap stand at unknown positions."""
    steps = {"a": (None, pack_ids([1])), "b": ("a", b""), "c": ("b", pack_ids([2]))}
    assert list(leaf_logs(steps)) == [pack_ids([1])]


def test_a_circle_ends():
    """A damaged tree is no endless walk."""
    assert len(list(leaf_logs({"a": ("b", b"1234"), "b": ("a", b"1234"), "c": ("a", b"1234")}))) == 1


@given(st.lists(st.integers(0, 3)), st.lists(st.lists(st.integers(0, 3))))
def test_shared_tokens_are_the_longest_common_prefix(one, others):
    """As counted token by token."""

    def common(other):
        n = 0
        while n < min(len(one), len(other)) and one[n] == other[n]:
            n += 1
        return n

    assert shared_tokens(pack_ids(one), map(pack_ids, others)) == max(map(common, others), default=0)
