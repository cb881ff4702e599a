"""The database of conversations: what is durable, what is refused, and the tree against a plain dict."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from localkv.chat.backups import list_backups
from localkv.chat.migrations import MIGRATIONS, Migration
from localkv.chat.store import ConversationStore
from localkv.chat.writers import is_elsewhere
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError, ConversationExists, NotWritable, UnknownConversation, UnusableName
from localkv.kv.record import Head, pack_ids
from tests.chat import forest
from tests.chat.clock import Clock

MODEL = ModelSection()
SAMPLING = SamplingSection()
HEAD = Head("name", "identity", 12, "fingerprint")


@pytest.fixture
def open_store(tmp_path):
    """Opens the same database again and again; all are closed at the end."""
    opened = []

    def opener(**options):
        store = ConversationStore.open(tmp_path / "conversations.db", tmp_path / "backups", **options)
        opened.append(store)
        return store

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store):
    return open_store(clock=Clock())


def create(store, name="talk", **options):
    return store.create(name, **({"model": MODEL, "sampling": SAMPLING} | options))


def sql(store, statement):
    return store._database._connection.execute(statement).fetchall()


def texts(messages):
    return [message.text for message in messages]


# What is stored


def test_a_turn_comes_back_whole_in_order(store, open_store):
    """Everything about a turn survives the process: text, ids, state, head, numbers, order."""
    key = create(store, system="be brief").id
    question = store.ask(key, None, "why?\x00 \N{SMILE}")
    store.set_ids(question.id, pack_ids([1, 2, 2**32 - 1]))
    answer = store.begin_answer(key, question.id)
    store.finish_answer(
        answer.id, text="so", ids=pack_ids([7]), state="complete", head=HEAD, numbers={"ttft_ms": 1.5, "exact": True}
    )
    store.close()
    system, asked, answered = open_store().path(key)
    assert (system.role, system.text, system.parent) == ("system", "be brief", None)
    assert (asked.role, asked.text, asked.parent, asked.state) == ("user", "why?\x00 \N{SMILE}", system.id, "complete")
    assert asked.ids == pack_ids([1, 2, 2**32 - 1])
    assert (answered.role, answered.text, answered.ids, answered.state) == ("assistant", "so", pack_ids([7]), "complete")
    assert (answered.head, answered.numbers) == (HEAD, {"ttft_ms": 1.5, "exact": True})


def test_the_disk_is_waited_for(store, tmp_path):
    """WAL without synchronous=FULL loses every commit at a power cut; the file is the owner's alone."""
    assert sql(store, "PRAGMA journal_mode") == [("wal",)]
    assert sql(store, "PRAGMA synchronous") == [(2,)]
    assert sql(store, "PRAGMA foreign_keys") == [(1,)]
    create(store)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "conversations.db": 0o600,
        "conversations.db-wal": 0o600,
        "conversations.db-shm": 0o600,
    }


def test_a_database_that_others_may_read_is_closed_to_them(open_store, tmp_path):
    """A file copied back from a backup medium gets its mode mended."""
    open_store().close()
    (tmp_path / "conversations.db").chmod(0o644)
    open_store()
    assert (tmp_path / "conversations.db").stat().st_mode & 0o777 == 0o600


def test_settings_are_remembered_per_conversation(store, open_store):
    """Model, sampling, pin, draft, title and system prompt come back as they were set."""
    key = create(store, title="My title", system="s").id
    model, sampling = ModelSection(name="Qwen/Qwen3-4B", quant="4bit"), SamplingSection(seed=5, stop=("\n\n", "END"))
    store.set_model(key, model)
    store.set_sampling(key, sampling)
    store.set_pinned(key, True)
    store.set_draft(key, "half a th")
    store.close()
    known = open_store().get(key)
    assert (known.model, known.sampling, known.pinned, known.draft) == (model, sampling, True, "half a th")
    assert (known.title, known.system, known.trashed) == ("My title", "s", None)


def test_the_list_is_newest_first_and_reads_no_messages(store):
    """Ten thousand conversations are listed without touching a single text."""
    keys = {name: create(store, name).id for name in "abc"}
    store.ask(keys["a"], None, "the newest")
    store.set_draft(keys["b"], "a draft is no news")
    touched = set()

    def authorize(action, table, *_):
        if action == sqlite3.SQLITE_READ:
            touched.add(table)
        return sqlite3.SQLITE_OK

    store._database._connection.set_authorizer(authorize)
    assert [each.name for each in store.list()] == ["a", "c", "b"]
    assert touched == {"conversations"}


def test_titles_come_from_the_first_question_once(store):
    """An untitled conversation is titled by its first words; a title that is there stays."""
    key = create(store).id
    store.ask(key, None, "\x1b[1mWhat is\na monad?")
    store.ask(key, None, "something else")
    assert store.get(key).title == "What is a monad?"


def test_counting_leaves_out_the_system_prompt(store):
    """People count questions and answers, on all branches."""
    key = create(store, system="s").id
    assert store.get(key).n_messages == 0
    first = store.ask(key, None, "one")
    store.begin_answer(key, first.id)
    store.begin_answer(key, first.id)
    assert store.get(key).n_messages == 3


def test_text_that_is_no_text_is_stored_readable(store):
    """Bytes that a pipe made into lone surrogates can't be stored by sqlite; they become U+FFFD, and the caller sees it."""
    key = create(store).id
    assert store.ask(key, None, "a\udcffb").text == "a\ufffdb"
    store.set_draft(key, "\ud800")
    with pytest.raises(UnknownConversation):
        store.by_name("\ud800")


# The tree


def test_an_edit_keeps_the_old_path(store):
    """Editing a question and regenerating an answer add siblings; nothing that was said is lost."""
    key = create(store).id
    question = store.ask(key, None, "v1")
    old = store.begin_answer(key, question.id)
    new = store.begin_answer(key, question.id)
    edited = store.ask(key, question.parent, "v2")
    assert texts(store.path(key)) == ["v2"]
    assert [each.id for each in store.path(key, old.id)] == [question.id, old.id]
    assert store.shown_versions(new.id) == [old.id, new.id]
    assert store.shown_versions(question.id) == [question.id, edited.id]
    assert [each.id for each in store.children(None, key)] == [question.id, edited.id]
    assert store.look_at(question.id) == new.id
    store.set_leaf(key, old.id)
    assert [each.id for each in store.path(key)] == [question.id, old.id]


def test_a_question_without_parent_stands_below_the_system_prompt(store):
    """Editing the first question must not lose the system prompt."""
    key = create(store, system="s").id
    store.ask(key, None, "one")
    store.ask(key, None, "two")
    assert texts(store.path(key)) == ["s", "two"]


def test_a_parent_of_another_conversation_is_refused(store):
    """Paths never cross from one conversation into another."""
    a, b = create(store, "a").id, create(store, "b").id
    foreign = store.ask(a, None, "in a").id
    for attempt in (
        lambda: store.ask(b, foreign, "x"),
        lambda: store.begin_answer(b, foreign),
        lambda: store.set_leaf(b, foreign),
        lambda: store.path(b, foreign),
    ):
        with pytest.raises(UnknownConversation):
            attempt()
    assert store.path(b) == []


def test_an_empty_conversation_has_an_empty_path(store):
    """A fresh conversation opens as an empty transcript."""
    key = create(store).id
    assert store.path(key) == []
    assert store.get(key).leaf is None


def test_a_circle_in_a_damaged_tree_is_no_endless_walk(store):
    """A damaged database must not hang the face."""
    key = create(store).id
    first = store.ask(key, None, "one")
    last = store.ask(key, first.id, "two")
    sql(store, f"UPDATE messages SET parent = '{last.id}' WHERE id = '{first.id}'")
    assert texts(store.path(key)) == ["one", "two"]
    assert store.look_at(first.id) == last.id


@pytest.mark.slow
def test_a_conversation_of_100000_messages(store):
    """One query, no recursion in Python: the deepest conversation opens, and can be erased."""
    key = create(store).id
    connection = store._database._connection
    n = 100_000
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO messages (id, conversation, parent, role, state, created, text, ids) VALUES (?,?,?,?,?,?,?,?)",
        ((str(i), key, str(i - 1) if i else None, "user", "complete", 0.0, f"text {i}", b"") for i in range(n)),
    )
    connection.execute("COMMIT")
    store.set_leaf(key, str(n - 1))
    statements = []
    connection.set_trace_callback(statements.append)
    path = store.path(key)
    connection.set_trace_callback(None)
    assert texts(path) == [f"text {i}" for i in range(n)]
    assert len(statements) <= 2
    assert store.look_at("0") == str(n - 1)
    store.erase(key)
    assert sql(store, "SELECT count(*) FROM messages") == [(0,)]


class TreeAgainstDict(RuleBasedStateMachine):
    """The store and a dict of messages are driven together and must always agree."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = self.opened()
        self.model = {}
        self.leaf = None

    def opened(self):
        folder = Path(self.folder.name)
        return ConversationStore.open(folder / "c.db", folder / "b")

    @initialize(system=st.sampled_from(["", "be brief"]))
    def begin(self, system):
        known = create(self.store, system=system)
        self.key, self.leaf = known.id, known.leaf
        self.model = {message.id: message for message in self.store.path(self.key)}
        self.system = known.leaf

    def pick(self, data, role=None):
        return data.draw(st.sampled_from([key for key, each in self.model.items() if role in (None, each.role)]))

    @rule(data=st.data(), text=st.text(max_size=8), root=st.booleans())
    def ask(self, data, text, root):
        parent = None if root or not self.model else self.pick(data)
        message = self.store.ask(self.key, parent, text)
        assert message.parent == (self.system if parent is None else parent)
        self.model[message.id] = message
        self.leaf = message.id

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def begin_answer(self, data):
        message = self.store.begin_answer(self.key, self.pick(data))
        self.model[message.id] = message
        self.leaf = message.id

    @precondition(lambda self: any(each.role == "assistant" for each in self.model.values()))
    @rule(data=st.data(), text=st.text(max_size=8), ids=st.binary(max_size=8), state=st.sampled_from(["complete", "stopped"]))
    def finish(self, data, text, ids, state):
        key = self.pick(data, "assistant")
        self.model[key] = self.store.finish_answer(key, text=text, ids=ids, state=state, head=HEAD, numbers=None)
        assert (self.model[key].text, self.model[key].ids, self.model[key].state) == (text, ids, state)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), ids=st.binary(max_size=8))
    def set_ids(self, data, ids):
        key = self.pick(data)
        self.store.set_ids(key, ids)
        self.model[key] = msgspec.structs.replace(self.model[key], ids=ids)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look_elsewhere(self, data):
        self.leaf = self.pick(data)
        self.store.set_leaf(self.key, self.leaf)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look_at_a_branch(self, data):
        key = self.pick(data)
        self.leaf = forest.newest_leaf(self.model, key)
        assert self.store.look_at(key) == self.leaf

    @rule()
    def reopen(self):
        self.store.close()
        self.store = self.opened()

    @rule()
    def crash_and_recover(self):
        streaming = [key for key, each in self.model.items() if each.state == "streaming"]
        self.reopen()
        assert self.store.recover() == len(streaming)
        for key in streaming:
            self.model[key] = msgspec.structs.replace(self.model[key], state="cut")

    @invariant()
    def agree(self):
        if self.leaf is not None:
            assert self.store.path(self.key) == forest.path_to(self.model, self.leaf)
        known = self.store.get(self.key)
        assert known.leaf == self.leaf
        assert known.n_messages == sum(each.role != "system" for each in self.model.values())
        for key in (None, *self.model):
            assert self.store.children(key, self.key) == forest.children(self.model, key)
        for key, each in self.model.items():
            assert self.store.shown_versions(key) == [other.id for other in forest.children(self.model, each.parent)]

    def teardown(self):
        self.store.close()
        self.folder.cleanup()


TestTreeAgainstDict = TreeAgainstDict.TestCase
TestTreeAgainstDict.__doc__ = "Any sequence of edits, tries, switches and restarts leaves the tree that a dict would have."
TestTreeAgainstDict.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# Names and removal


def test_names_are_unique_and_unknown_ones_are_helped(store):
    """`--session` means exactly one conversation, and a typing error is answered with what was meant."""
    create(store, "holiday plans")
    with pytest.raises(ConversationExists, match="holiday plans"):
        create(store, "holiday plans")
    with pytest.raises(UnknownConversation, match='called "holyday plan"; the nearest names are: "holiday plans"'):
        store.by_name("holyday plan")
    with pytest.raises(UnknownConversation, match="no conversation"):
        store.get("no such id")


def test_an_unknown_name_in_an_empty_database(store):
    """The sentence does not promise names that don't exist."""
    with pytest.raises(UnknownConversation, match="none yet"):
        store.by_name("x")


@pytest.mark.parametrize("name", ["", " ", " a", "a\n", "a\tb", "\x1b[2J", "a\u202eb", "x" * 101, "\ud800"])
def test_unusable_names(store, name):
    """A name can be typed after --session and printed anywhere."""
    with pytest.raises(UnusableName):
        create(store, name)
    key = create(store, "good").id
    with pytest.raises(UnusableName):
        store.rename(key, name=name)


def test_rename(store):
    """Name and title change apart from each other, and a taken name changes nothing."""
    key = create(store, "a", title="old").id
    create(store, "b")
    store.rename(key, title="new\ntitle")
    store.rename(key, name="c")
    store.rename(key, name="c")
    with pytest.raises(ConversationExists):
        store.rename(key, name="b", title="lost")
    known = store.get(key)
    assert (known.name, known.title) == ("c", "new title")


def test_trash_and_back(store):
    """Delete with undo: everything is there again, and the name was kept meanwhile."""
    key = create(store).id
    store.ask(key, None, "keep me")
    store.trash(key)
    assert store.list() == []
    assert store.list(include_trashed=True)[0].trashed is not None
    with pytest.raises(ConversationExists, match="trash"):
        create(store)
    store.untrash(key)
    assert [each.id for each in store.list()] == [key]
    assert texts(store.path(key)) == ["keep me"]


def test_erased_text_is_gone_from_the_disk(store, tmp_path):
    """Erase means erase: no page of the database or its log still has the words."""
    key = create(store).id
    question = store.ask(key, None, "the secret password is swordfish")
    other = create(store, "other").id
    store.ask(other, None, "harmless")
    store.erase(key)
    assert b"swordfish" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    with pytest.raises(UnknownConversation):
        store.get(key)
    with pytest.raises(UnknownConversation, match="erased"):
        store.finish_answer(question.id, text="", ids=b"", state="complete", head=None, numbers=None)
    with pytest.raises(UnknownConversation):
        store.erase(key)
    assert texts(store.path(other)) == ["harmless"]


@pytest.mark.parametrize("how", ["complete", "streamed", "stopped and continued"])
def test_erased_words_are_gone_from_the_index(store, tmp_path, how):
    """The index of words keeps deleted ones until it is merged; erasing merges it, so no file has them any more."""
    keys = [create(store, f"talk {n}").id for n in range(3)]
    for n, key in enumerate(keys):
        question = store.ask(key, None, f"the password number {n} is swordfish" if key == keys[1] else "harmless words")
        answer = store.begin_answer(key, question.id)
        if how != "complete":
            store.checkpoint_answer(answer.id, "zanzi", b"")
        text = "zanzibar it is" if key == keys[1] else "so is this"
        store.finish_answer(answer.id, text=text, ids=b"", state="stopped", head=None, numbers=None)
        if how == "stopped and continued":
            store.reopen_answer(answer.id)
            store.finish_answer(answer.id, text=text + " now", ids=b"", state="complete", head=None, numbers=None)
    assert [hit.conversation for hit in store.search("swordfish")] == [keys[1]]
    store.erase(keys[1])
    left = b"".join(file.read_bytes() for file in tmp_path.iterdir()).lower()
    assert [word for word in (b"swordfish", b"dfish", b"zanzi", b"zibar") if word in left] == []
    assert store.search("swordfish") == []
    assert len(store.search("harmless")) == 2


def test_several_are_erased_at_once_or_not_at_all(store):
    """Emptying the trash is one transaction: an unknown id in it leaves all of them."""
    keys = [create(store, f"talk {n}").id for n in range(3)]
    with pytest.raises(UnknownConversation):
        store.erase(*keys, "x")
    assert len(store.list()) == 3
    store.erase(*keys)
    assert store.list() == []


def test_tags_the_archive_and_waiting_messages_are_remembered(store, open_store):
    """They survive the process; tags are small, sorted and unique; a lone surrogate does not lose a waiting message."""
    key = create(store).id
    store.set_tags(key, ["#Work", "abc", "work"])
    store.set_archived(key, True)
    store.set_queue(key, ["first", "then\nthis", "\ud800"])
    known = open_store().get(key)
    assert (known.tags, known.queue) == (("abc", "work"), ("first", "then\nthis", "\ufffd"))
    assert known.archived is not None
    assert [each.id for each in store.list()] == [key], "what is archived is not lost from the list of all"
    store.set_archived(key, False)
    assert store.get(key).archived is None


@pytest.mark.parametrize("tag", ["", " ", "a b", "a,b", "x" * 31, "\x1b[2J", "a\nb", "\u202ex"])
def test_unusable_tags(store, tag):
    """A tag is one word that can be typed."""
    with pytest.raises(UnusableName, match="tag"):
        store.set_tags(create(store).id, [tag])


def test_every_change_of_an_unknown_id_is_refused(store):
    """A change that reaches nothing is never taken for success."""
    for attempt in (
        lambda: store.set_model("x", MODEL),
        lambda: store.set_sampling("x", SAMPLING),
        lambda: store.set_pinned("x", True),
        lambda: store.set_draft("x", ""),
        lambda: store.set_tags("x", ["a"]),
        lambda: store.set_archived("x", True),
        lambda: store.set_queue("x", ["a"]),
        lambda: store.set_leaf("x", None),
        lambda: store.rename("x", title="t"),
        lambda: store.trash("x"),
        lambda: store.untrash("x"),
        lambda: store.ask("x", None, ""),
        lambda: store.begin_answer("x", "y"),
        lambda: store.set_ids("x", b""),
        lambda: store.checkpoint_answer("x", "", b""),
        lambda: store.reopen_answer("x"),
        lambda: store.message("x"),
        lambda: store.shown_versions("x"),
        lambda: store.look_at("x"),
        lambda: store.path("x"),
    ):
        with pytest.raises(UnknownConversation):
            attempt()


def test_a_question_is_never_overwritten_by_an_answer(store):
    """A mixed-up id can't destroy what the person wrote."""
    question = store.ask(create(store).id, None, "mine")
    with pytest.raises(ConversationError, match="role user"):
        store.checkpoint_answer(question.id, "not mine", b"")
    assert store.message(question.id).text == "mine"


# Crashes


def test_a_crashed_answer_is_cut_and_keeps_its_text(store, open_store):
    """What was streamed and checkpointed before a crash is there, marked, and can be continued."""
    key = create(store).id
    answer = store.begin_answer(key, store.ask(key, None, "q").id)
    store.checkpoint_answer(answer.id, "half an ans", pack_ids([1, 2]))
    store.close()
    again = open_store()
    assert again.recover() == 1
    assert again.recover() == 0
    cut = again.message(answer.id)
    assert (cut.state, cut.text, cut.ids) == ("cut", "half an ans", pack_ids([1, 2]))
    assert again.reopen_answer(answer.id).state == "streaming"
    done = again.finish_answer(answer.id, text="half an answer", ids=b"", state="complete", head=HEAD, numbers=None)
    assert (done.state, done.text) == ("complete", "half an answer")
    assert again.recover() == 0


LIVE_WRITER = """
import sys
from pathlib import Path
from localkv.chat.store import ConversationStore
store = ConversationStore.open(Path(sys.argv[1]), Path(sys.argv[2]))
key = store.by_name("talk").id
print(store.begin_answer(key, store.ask(key, None, "q").id).id, flush=True)
sys.stdin.read()
"""


def test_an_answer_that_another_face_streams_is_not_cut(store, tmp_path):
    """`say` beside `chat` starts while the other one streams: only dead writers leave cut answers."""
    create(store)
    child = subprocess.Popen(
        [sys.executable, "-c", LIVE_WRITER, str(tmp_path / "conversations.db"), str(tmp_path / "backups")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        answer = child.stdout.readline().strip()
        assert store.recover() == 0
        assert store.message(answer).state == "streaming"
        child.kill()
    assert store.recover() == 1
    assert store.message(answer).state == "cut"


def test_an_answer_taken_up_during_recovery_is_not_cut(store, monkeypatch):
    """Another face may continue a cut answer while this one starts; then it is theirs."""
    key = create(store).id
    answer = store.begin_answer(key, store.ask(key, None, "q").id)

    def taken_up_meanwhile(_):
        sql(store, "UPDATE messages SET writer = 'another face'")
        return False

    monkeypatch.setattr("localkv.chat.store.is_elsewhere", taken_up_meanwhile)
    assert store.recover() == 0
    assert store.message(answer.id).state == "streaming"


def test_a_process_number_used_again_is_another_process():
    """After a reboot some other program has the writer's number; the answer was cut all the same."""
    parent = os.getppid()
    assert not is_elsewhere(f"{parent}:1.0")
    assert not is_elsewhere(f"{os.getpid()}:1.0")
    assert not any(map(is_elsewhere, (None, "", "x:y", "99999999:1.0", f"{parent}:soon")))


ENDLESS_WRITER = """
import sys
from pathlib import Path
from localkv.chat.store import ConversationStore
store = ConversationStore.open(Path(sys.argv[1]), Path(sys.argv[2]))
conversation = store.by_name("talk")
parent = conversation.leaf
n = conversation.n_messages
while True:
    question = store.ask(conversation.id, parent, f"question {n}")
    print(question.id, question.text, sep="|", flush=True)
    answer = store.begin_answer(conversation.id, question.id)
    store.checkpoint_answer(answer.id, "part", b"1234")
    store.finish_answer(answer.id, text=f"answer {n}", ids=b"12345678", state="complete", head=None, numbers={"n": n})
    print(answer.id, f"answer {n}", sep="|", flush=True)
    parent = answer.id
    n += 2
"""


def test_kill_9_loses_nothing_that_was_acknowledged(store, open_store, tmp_path):
    """Whatever a call returned for is in the database after the process was killed at any moment."""
    key = create(store).id
    store.close()
    acknowledged = []
    for n_lines in (1, 2, 37, 64):
        child = subprocess.Popen(
            [sys.executable, "-c", ENDLESS_WRITER, str(tmp_path / "conversations.db"), str(tmp_path / "backups")],
            stdout=subprocess.PIPE,
            text=True,
        )
        with child:
            lines = [child.stdout.readline() for _ in range(n_lines)]
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.readlines()
        acknowledged += [line.strip().split("|") for line in lines if line.endswith("\n")]
        again = open_store()
        again.recover()
        stored = {message.id: message.text for message in again.path(key)}
        assert [text for message, text in acknowledged if stored.get(message) != text] == []
        assert sql(again, "PRAGMA integrity_check") == [("ok",)]
        again.close()


# Refusals


def refused(store, key):
    with pytest.raises(NotWritable) as caught:
        store.ask(key, None, "UNSAVED " * 10_000)
    return str(caught.value)


def test_a_read_only_database_is_reported_and_usable_again(store):
    """The answer goes on as UNSAVED; reading works all the while, and the retry succeeds once writing does."""
    key = create(store).id
    store.ask(key, None, "before")
    sql(store, "PRAGMA query_only = ON")
    assert "read-only" in refused(store, key)
    assert texts(store.path(key)) == ["before"]
    sql(store, "PRAGMA query_only = OFF")
    store.ask(key, None, "after")
    assert texts(store.children(None, key)) == ["before", "after"]


def test_a_full_disk_is_reported_and_usable_again(store):
    """A write that does not fit leaves no half of itself behind."""
    key = create(store).id
    before = store.get(key)
    pages = sql(store, "PRAGMA page_count")[0][0]
    sql(store, f"PRAGMA max_page_count = {pages}")
    assert "free some space" in refused(store, key)
    assert store.get(key) == before
    sql(store, "PRAGMA max_page_count = 1000000")
    store.ask(key, None, "UNSAVED " * 10_000)
    assert store.get(key).n_messages == 1


def test_a_full_disk_in_the_middle_of_an_answer_keeps_the_checkpoint(store):
    """What was checkpointed before the disk filled up is still there, and finishing later works."""
    key = create(store).id
    answer = store.begin_answer(key, store.ask(key, None, "q").id)
    store.checkpoint_answer(answer.id, "so far", b"1234")
    sql(store, f"PRAGMA max_page_count = {sql(store, 'PRAGMA page_count')[0][0]}")
    with pytest.raises(NotWritable):
        store.finish_answer(answer.id, text="long " * 50_000, ids=b"", state="complete", head=None, numbers=None)
    assert store.message(answer.id).text == "so far"
    sql(store, "PRAGMA max_page_count = 1000000")
    store.finish_answer(answer.id, text="long", ids=b"", state="complete", head=None, numbers=None)
    assert store.message(answer.id).state == "complete"


def test_a_database_locked_by_another_program(open_store):
    """After the busy timeout the writer gives up with a sentence, and goes on when the lock is gone."""
    store, other = open_store(busy_seconds=0.05), open_store()
    key = create(store).id
    sql(other, "BEGIN IMMEDIATE")
    assert "another program" in refused(store, key)
    sql(other, "ROLLBACK")
    store.ask(key, None, "now")


def test_a_folder_that_cannot_be_written(tmp_path):
    """Opening where no file can be made is NotWritable too, with the path in the sentence."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritable, match="conversations.db"):
        ConversationStore.open(tmp_path / "file" / "conversations.db", tmp_path / "backups")


def test_a_corrupt_file_names_the_backups(store, open_store, tmp_path):
    """The person is told which file to copy back; nothing is overwritten."""
    create(store)
    store.close()
    open_store(migrations=(*MIGRATIONS, Migration("more", ("CREATE TABLE more (a)",)))).close()
    file = tmp_path / "conversations.db"
    backup = list_backups(tmp_path / "backups", file)[0]
    file.write_bytes(b"these are not the bytes of a database" * 1000)
    with pytest.raises(ConversationError, match=backup.name):
        open_store()
    assert file.read_bytes().startswith(b"these are not")
    file.write_bytes(backup.read_bytes())
    assert [each.name for each in open_store().list()] == ["talk"]


def test_damage_found_later_names_the_place_of_backups(store, open_store, tmp_path):
    """Pages that rot while the app runs are reported as damage, not as a traceback."""
    key = create(store).id
    for n in range(50):
        store.ask(key, None, f"{n} " * 2000)
    store.close()
    file = tmp_path / "conversations.db"
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(ConversationError, match=r"damaged.*backup"):
        again = open_store()
        again.list()
        again.path(key)


def test_rows_of_a_newer_localkv_are_read_and_wrong_ones_named(store):
    """A setting that this version lacks does not hide the conversation; a wrong value names it."""
    create(store, "odd")
    sql(store, """UPDATE conversations SET sampling = '{"temperature": 0.5, "from_the_future": 1}'""")
    assert store.by_name("odd").sampling == SamplingSection(temperature=0.5)
    sql(store, """UPDATE conversations SET model = '{"name": 5}'""")
    with pytest.raises(ConversationError, match="model of conversation odd"):
        store.list()


def test_threads_may_share_a_store(store):
    """Calls from several threads are one after the other; none is lost and none fails."""
    key = create(store).id
    failures = []

    def ask_often():
        try:
            for n in range(20):
                store.ask(key, None, str(n))
                store.list()
        except ConversationError as error:
            failures.append(error)

    threads = [threading.Thread(target=ask_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.get(key).n_messages == 80


def test_two_faces_see_each_other(store, open_store):
    """What `say` writes is in the list of the open `chat` at its next look."""
    other = open_store()
    key = create(other).id
    other.ask(key, None, "from the other")
    assert texts(store.path(key)) == ["from the other"]
