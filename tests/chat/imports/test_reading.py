"""Exports of other programs: every branch arrives, twice is once, and what is hostile ends in a sentence."""

import contextlib
import json
import os
import random
import sqlite3
import sys
import zipfile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localkv.chat.export import to_json
from localkv.chat.imports.incoming import Incoming, arrive
from localkv.chat.imports.reading import read_file
from localkv.chat.store import ConversationStore
from localkv.commands.importing import Tally, take_file
from localkv.commands.output import ProgressLine
from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import ImportRefused


def gpt_node(key, parent, role, text, **facts):
    message = {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}, "create_time": 1.0, **facts}
    return {key: {"id": key, "parent": parent, "message": message, "children": []}}


CHATGPT = {
    "title": "Rain", "id": "gpt-1", "create_time": 1_700_000_000.5, "update_time": 1_700_000_100.0, "current_node": "a2",
    "mapping": {
        "root": {"id": "root", "parent": None, "message": None, "children": []},
        **gpt_node("s", "root", "system", ""),
        **gpt_node("q", "s", "user", "Does it rain?"),
        **gpt_node("a1", "q", "assistant", "No."),
        **gpt_node("a2", "q", "assistant", "Yes."),
        **gpt_node("h", "a1", "user", "secret", metadata={"is_visually_hidden_from_conversation": True}),
        **gpt_node("p", "a1", "user", {"content_type": "image_asset_pointer", "asset_pointer": "x"}),
    },
}  # fmt: skip

OPENWEBUI = {
    "id": "owui-1", "user_id": "u", "title": "Soup", "created_at": 1_700_000_000, "updated_at": 1_700_000_009, "pinned": True,
    "chat": {
        "title": "Soup", "params": {"system": "You cook."}, "timestamp": 1_700_000_000_000,
        "history": {"currentId": "3", "messages": {
            "1": {"id": "1", "parentId": None, "childrenIds": ["2", "3"], "role": "user", "content": "Soup?", "timestamp": 1_700_000_001},
            "2": {"id": "2", "parentId": "1", "childrenIds": [], "role": "assistant", "content": "Leek.", "timestamp": 1_700_000_002},
            "3": {"id": "3", "parentId": "1", "childrenIds": [], "role": "assistant",
                  "content": [{"type": "text", "text": "Pea."}], "timestamp": 1_700_000_003},
        }},
    },
}  # fmt: skip

OLD_OPENWEBUI = {
    "id": "owui-0",
    "title": "Old",
    "chat": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
}


def llm_database(file):
    with sqlite3.connect(file) as connection:
        connection.executescript("""
            CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
            CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
                options_json TEXT, response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INTEGER,
                datetime_utc TEXT);
            INSERT INTO conversations VALUES ('c1', 'Two plus two', 'gpt'), ('c2', NULL, 'gpt'), ('c3', 'empty', 'gpt');
            INSERT INTO responses VALUES
                ('r2', 'm', 'and 3?', NULL, '', '', '5', '', 'c1', 1, '2024-05-02T10:00:01.5+00:00'),
                ('r1', 'm', '2+2?', 'Be exact.', '', '', '4', '', 'c1', 1, '2024-05-02T10:00:00'),
                ('r3', 'm', 'hello', NULL, '', '', x'6869ff', '', 'c2', 1, 'nonsense');
        """)
    connection.close()


@pytest.fixture
def store(home):
    opened = ConversationStore.open(home.database, home.backups)
    yield opened
    opened.close()


def take(store, file):
    """Import a file; what came of it."""
    tally = Tally()
    import io

    take_file(store, Config(), file, tally, ProgressLine(io.StringIO()))
    return tally


def written(tmp_path, document, name="export.json"):
    file = tmp_path / name
    file.write_text(json.dumps(document))
    return file


def branches(store, conversation):
    """The texts of every path to a leaf."""
    messages = {message.id: message for message in store.messages(conversation)}
    leaves = set(messages) - {message.parent for message in messages.values()}
    return sorted([each.text for each in store.path(conversation, leaf)] for leaf in leaves)


def test_chatgpt(store, tmp_path):
    """All branches, the one that was looked at, no hidden remarks, pictures by name."""
    assert take(store, written(tmp_path, [CHATGPT])).messages == 4
    (conversation,) = store.list()
    assert (conversation.title, conversation.name, conversation.tags) == ("Rain", "Rain", ("chatgpt",))
    assert branches(store, conversation.id) == [
        ["Does it rain?", "No.", "[image_asset_pointer, not imported]"],
        ["Does it rain?", "Yes."],
    ]
    assert store.path(conversation.id)[-1].text == "Yes."
    assert all(message.ids == b"" for message in store.messages(conversation.id))
    assert conversation.updated == 1_700_000_100.0
    assert store.search("rain"), "its words are found"


def test_open_webui(store, tmp_path):
    """The tree, the system prompt, the pin; older exports with a plain list, too."""
    assert take(store, written(tmp_path, [OPENWEBUI, OLD_OPENWEBUI])).conversations == 2
    soup = store.by_name("Soup")
    assert (soup.system, soup.pinned, soup.tags) == ("You cook.", True, ("openwebui",))
    assert branches(store, soup.id) == [["You cook.", "Soup?", "Leek."], ["You cook.", "Soup?", "Pea."]]
    assert store.path(soup.id)[-1].text == "Pea."
    assert branches(store, store.by_name("Old").id) == [["q", "a"]]


def test_llm(store, tmp_path):
    """Questions and answers in the order of asking; bytes and moments that are none are borne; empty ones are told."""
    llm_database(tmp_path / "logs.db")
    tally = take(store, tmp_path / "logs.db")
    assert (tally.conversations, tally.messages, len(tally.refused)) == (2, 7, 1)
    assert branches(store, store.by_name("Two plus two").id) == [["Be exact.", "2+2?", "4", "and 3?", "5"]]
    assert branches(store, store.by_name("hello").id) == [["hello", "hi\ufffd"]]


@pytest.mark.parametrize("kind", ["chatgpt", "openwebui", "llm", "localkv"])
def test_duplicates_after_a_second_import_are_prevented(store, tmp_path, kind):
    """The same file again adds nothing, whatever was said, renamed or trashed meanwhile."""
    if kind == "llm":
        file = tmp_path / "logs.db"
        llm_database(file)
    elif kind == "localkv":
        take(store, written(tmp_path, CHATGPT, "gpt.json"))
        one = store.list()[0]
        file = tmp_path / "own.json"
        file.write_text(to_json(one, store.messages(one.id)))
        store.erase(one.id)
    else:
        file = written(tmp_path, [CHATGPT if kind == "chatgpt" else OPENWEBUI])
    first = take(store, file)
    assert first.messages
    one = store.list()[0]
    store.ask(one.id, one.leaf, "and then?")
    store.rename(one.id, name="renamed")
    before = [store.messages(each.id) for each in store.list()]
    store.trash(one.id)
    again = take(store, file)
    assert (again.conversations, again.messages, again.unchanged) == (0, 0, first.conversations)
    assert [store.messages(each.id) for each in store.list(include_trashed=True)] == before


def test_a_grown_export_adds_what_is_new(store, tmp_path):
    """The next export of the same account brings only the new messages."""
    take(store, written(tmp_path, [CHATGPT]))
    grown = {**CHATGPT, "current_node": "q2", "mapping": {**CHATGPT["mapping"], **gpt_node("q2", "a2", "user", "Umbrella?")}}
    tally = take(store, written(tmp_path, [grown]))
    assert (tally.conversations, tally.messages) == (1, 1)
    (conversation,) = store.list()
    assert [message.text for message in store.path(conversation.id)] == ["Does it rain?", "Yes.", "Umbrella?"]
    assert conversation.n_messages == 5


def test_names_that_are_taken_get_a_number(store, tmp_path):
    """Two chats of one title are two conversations."""
    take(store, written(tmp_path, [CHATGPT, {**CHATGPT, "id": "gpt-2"}, {**CHATGPT, "id": "gpt-3", "title": "\x1b[31m\n"}]))
    assert {each.name for each in store.list()} == {"Rain", "Rain-2", "Does it rain?"}


HOSTILE = {
    "deep": '[{"mapping": ' + "[" * 5000,
    "a circle": json.dumps([{**CHATGPT, "mapping": {**gpt_node("a", "b", "user", "x"), **gpt_node("b", "a", "assistant", "y")}}]),
    "no messages": json.dumps([{**CHATGPT, "mapping": {}}]),
    "types": json.dumps([{**CHATGPT, "mapping": {"a": 3}}]),
    "more types": json.dumps([{"chat": {"history": {"messages": {"1": {"role": "user", "content": 7}}}}}]),
    "another format": json.dumps([{"hello": 1}]),
    "zeros": "\0" * 4096,
    "raw zero": '[{"mapping": {"a\0": null}}]',
    "half a file": json.dumps([CHATGPT])[:-40],
    "no JSON inside": '[{"mapping": {,}}]',
    "nothing": "",
    "an empty list": "[]",
    "html": "<html></html>",
    "a zip": "PK\x03\x04abc",
    "not a database": "SQLite format 3\0" + "x" * 200,
    "a newer format": json.dumps({"format": "localkv-conversation", "version": 9, "id": "a" * 32, "name": "n", "title": "t",
                                  "created": 1, "updated": 1, "leaf": None}),
    "foreign ids": json.dumps({"format": "localkv-conversation", "id": "../../x", "name": "n", "title": "t", "created": 1,
                               "updated": 1, "leaf": None}),
    "bad settings": json.dumps({"format": "localkv-conversation", "id": "a" * 32, "name": "n", "title": "t", "created": 1,
                                "updated": 1, "leaf": None, "sampling": {"temperature": 99}}),
    "numbers that are none": json.dumps({"format": "localkv-conversation", "id": "a" * 32, "name": "n", "title": "t", "created": 1,
                                         "updated": 1, "leaf": None, "messages": [
        {"id": "b" * 32, "parent": None, "role": "user", "text": "q", "numbers": {"ttft_ms": "soon"}}]}),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused_with_a_sentence(store, tmp_path, what):
    """Deep, circular, cut, empty, of wrong types or no export at all: a sentence that names the file, and nothing is stored."""
    file = tmp_path / "hostile.json"
    file.write_bytes(HOSTILE[what].encode("latin-1"))
    try:
        told = take(store, file).refused
    except ImportRefused as error:
        told = [str(error)]
    assert told
    assert all(str(file) in sentence and "Traceback" not in sentence for sentence in told)
    assert store.list() == []


def test_one_refused_conversation_does_not_keep_the_others_out(store, tmp_path):
    """The rest of the file is taken in, and the refusal says which it was."""
    tally = take(store, written(tmp_path, [OPENWEBUI, {"hello": 1}, CHATGPT]))
    assert tally.conversations == 2
    assert "conversation 2" in tally.refused[0]


def test_views_and_missing_tables_in_a_database_are_refused(store, tmp_path):
    """A file of strangers that pretends with a view is not asked."""
    file = tmp_path / "logs.db"
    with sqlite3.connect(file) as connection:
        connection.execute(
            "CREATE VIEW conversations AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id+1 FROM n) SELECT id, id AS name FROM n"
        )
    connection.close()
    with pytest.raises(ImportRefused, match="no table"):
        take(store, file)


def test_pipes_and_folders_are_refused(tmp_path):
    """Nothing is waited for."""
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none"):
        with pytest.raises(ImportRefused):
            list(read_file(path))


def test_code_of_models_is_not_trusted_because_a_file_says_so(store, tmp_path):
    """trust_remote_code in an export is not believed."""
    take(store, written(tmp_path, CHATGPT))
    one = store.list()[0]
    document = json.loads(to_json(one, store.messages(one.id)))
    document["model"] = {"name": "/tmp/evil", "trust_remote_code": True}
    store.erase(one.id)
    take(store, written(tmp_path, document))
    assert store.list()[0].model == ModelSection(name="/tmp/evil", trust_remote_code=False)


def test_a_chat_from_the_future_does_not_stay_on_top(store, tmp_path):
    """Times after now are now: the list is sorted by them."""
    import time

    take(store, written(tmp_path, [{**CHATGPT, "update_time": 4e9}]))
    assert store.list()[0].updated <= time.time()


def test_what_our_own_format_carries_is_checked_like_what_is_typed(store, tmp_path):
    """Titles become one short line; tags that could not be given are refused."""
    take(store, written(tmp_path, CHATGPT))
    one = store.list()[0]
    document = json.loads(to_json(one, store.messages(one.id)))
    store.erase(one.id)
    assert take(store, written(tmp_path, {**document, "tags": ["a b\x1b"]})).refused
    take(store, written(tmp_path, {**document, "title": "\x1b[31mlong\n" * 40}))
    title = store.list()[0].title
    assert len(title) <= 60
    assert title.startswith("long long")


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.text(max_size=8), st.sampled_from(["complete", "stopped", "cut", "failed"])), max_size=8
    ),
    st.booleans(), st.sets(st.sampled_from(["a", "b"])),
)  # fmt: skip
def test_json_round_trip(tmp_path_factory, turns, pinned, tags):
    """All branches, settings, tags, times and hidden branches come back as they were, with the same ids."""
    folder = tmp_path_factory.mktemp("round")
    store = ConversationStore.open(folder / "a.db", folder)
    made = store.create("x", model=ModelSection(name="m"), sampling=SamplingSection(temperature=0.3), system="s" * pinned)
    questions = [None if made.leaf is None else made.leaf]
    for at, text, state in turns:
        asked = store.ask(made.id, questions[at % len(questions)], text)
        answer = store.begin_answer(made.id, asked.id)
        store.finish_answer(answer.id, text=text, ids=b"", state=state, head=None, numbers=None)
        questions.append(answer.id)
    store.set_pinned(made.id, pinned)
    store.set_tags(made.id, tags)
    store.set_queue(made.id, ["later"])
    if len(questions) > 2:
        store.take_away(questions[1])
    before = (store.get(made.id), store.messages(made.id), store.taken_away(made.id))
    document = to_json(*before)
    store.close()
    file = folder / "x.json"
    file.write_text(document)
    other = ConversationStore.open(folder / "b.db", folder)
    if turns:
        assert take(other, file).refused == []
        after = (other.get(made.id), other.messages(made.id), other.taken_away(made.id))
        assert after[0] == msgspec.structs.replace(before[0])
        assert [msgspec.structs.replace(each, ids=b"") for each in before[1]] == sorted(
            after[1], key=lambda each: [m.id for m in before[1]].index(each.id)
        )
        assert after[2] == before[2]
        assert to_json(*after) == document
    other.close()


def test_the_share_that_is_done_grows(tmp_path):
    """Progress is told from the beginning of a file to its end."""
    shares = [item.share for item in read_file(written(tmp_path, [{**CHATGPT, "id": str(n)} for n in range(3000)]))]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert shares[0] < 0.7


def test_an_archive_as_it_is_downloaded(store, tmp_path):
    """conversations.json is read out of the archive, in several files if it has them, with progress over all."""
    file = tmp_path / "export.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chat.html", "<html>")
        archive.writestr("x/conversations-001.json", json.dumps([{**CHATGPT, "id": "b"}]))
        archive.writestr("x/conversations-000.json", json.dumps([CHATGPT]))
    shares = [item.share for item in read_file(file)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert take(store, file).conversations == 2
    assert take(store, file).unchanged == 2


@pytest.mark.parametrize("damage", ["empty", "torn", "flipped"])
def test_archives_that_are_damaged_or_hold_nothing_are_refused(store, tmp_path, damage):
    """A sentence, and nothing half unpacked."""
    file = tmp_path / "export.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt" if damage == "empty" else "conversations.json", json.dumps([CHATGPT]) * 1)
    data = bytearray(file.read_bytes())
    if damage == "torn":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[60:90] = bytes(30)
    file.write_bytes(data)
    with pytest.raises(ImportRefused, match="archive"):
        take(store, file)
    assert store.list() == []


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_with_any_byte_wrong_is_read_or_refused(tmp_path, method):
    """Whatever is wrong in it, names that are no UTF-8 and other ways of packing among it: a sentence at most."""
    file, source = tmp_path / "export.zip", random.Random(method)
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("ü/conversations.json", json.dumps([CHATGPT, OPENWEBUI]))
    whole = file.read_bytes()
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(source.choice([1, 1, 3])):
            data[source.randrange(4, len(data))] = source.randrange(256)
        file.write_bytes(data)
        with contextlib.suppress(ImportRefused):
            list(read_file(file))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_is_packed_otherwise_is_refused(tmp_path, method):
    """The sentence says what to do."""
    file = tmp_path / "export.zip"
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("conversations.json", json.dumps([CHATGPT]))
    with pytest.raises(ImportRefused, match="unpack it"):
        list(read_file(file))


@pytest.mark.parametrize("name", [b"caf\xe9.db", b"a%3f?#b.db", "ü.db".encode()])
@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="file names are Unicode there")
def test_a_database_of_any_name_is_read(store, tmp_path, name):
    """Bytes that are no text, and what has a meaning in an address: it is the same file."""
    file = tmp_path / os.fsdecode(name)
    llm_database(tmp_path / "logs.db")
    (tmp_path / "logs.db").rename(file)
    assert take(store, file).conversations == 2


@pytest.mark.parametrize("key", ["system", "system\0", ""])
def test_a_message_of_any_id_goes_with_a_system_prompt(store, tmp_path, key):
    """The prompt that stands beside the messages takes no id of theirs: the conversation is whole, and so are those around it."""
    messages = {"system": {"role": "user", "content": "q"}}
    messages[key] = messages.get(key) or {"role": "assistant", "content": "a", "parentId": "system"}
    chat = {"id": "odd", "title": "Odd", "chat": {"system": "You cook.", "history": {"messages": messages}}}
    file = written(tmp_path, [CHATGPT, chat, OPENWEBUI])
    assert take(store, file).conversations == 3
    [odd] = [each.id for each in store.list() if each.title == "Odd"]
    assert [each.text for each in store.path(odd)] == ["You cook.", "q", "a"][: len(messages) + 1]
    assert take(store, file).unchanged == 3


def test_a_prompt_of_our_own_format_comes_back(store, tmp_path):
    """Files that name a prompt and have no message for it: each gets one of its own, which can be exported and read again."""
    for n in "ab":
        message = {"id": n * 32, "parent": None, "role": "user", "text": "q"}
        document = {"format": "localkv-conversation", "id": n * 31 + "0", "name": n, "title": n, "created": 1, "updated": 1,
                    "leaf": n * 32, "system": "You cook.", "messages": [message]}  # fmt: skip
        assert take(store, written(tmp_path, document)).refused == []
        known = store.by_name(n)
        assert [each.text for each in store.path(known.id)] == ["You cook.", "q"]
        again = take(store, written(tmp_path, json.loads(to_json(known, store.messages(known.id)))))
        assert (again.refused, again.unchanged) == ([], 1)


def test_arrivals_have_no_token_ids(tmp_path):
    """They are tokenised by the model that answers, at their first turn."""
    (item,) = read_file(written(tmp_path, CHATGPT))
    assert isinstance(item.found, Incoming)
    arrival = arrive(item.found, ModelSection(), SamplingSection(), 0.0)
    assert {message.ids for message in arrival.messages} == {b""}
