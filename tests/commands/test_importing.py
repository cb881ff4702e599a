"""`localkv import`: what it holds at a time, whatever the file is."""

import io
import json
import sqlite3

import pytest

from localkv.chat.store import ConversationStore
from localkv.commands import importing
from localkv.commands.importing import BATCH_BYTES, SENTENCES, Tally, take_file
from localkv.commands.output import ProgressLine
from localkv.config import Config
from tests.chat.imports.test_reading import CHATGPT, OPENWEBUI
from tests.test_cli import call

BIG = 5 << 20


@pytest.fixture
def store(home):
    opened = ConversationStore.open(home.database, home.backups)
    yield opened
    opened.close()


def chatgpt(file, n):
    with file.open("w") as stream:
        for each in range(n):
            node = {"message": {"author": {"role": "user"}, "content": {"parts": ["x" * BIG]}}}
            stream.write(json.dumps({"id": str(each), "mapping": {"q": node}}))


def own(file, n):
    with file.open("w") as stream:
        for each in range(n):
            message = {"id": f"{each:032x}", "parent": None, "role": "user", "text": "q"}
            facts = {"name": str(each), "title": "", "created": 1, "updated": 1, "leaf": None, "draft": "x" * BIG}
            stream.write(json.dumps({"format": "localkv-conversation", "id": f"{each:032x}", "messages": [message], **facts}))


def llm(file, n):
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE conversations (id, name)")
        connection.execute("CREATE TABLE responses (id, conversation_id, prompt, response, system, datetime_utc)")
        connection.executemany("INSERT INTO conversations VALUES (?, 'n')", [(str(each),) for each in range(n)])
        connection.executemany(
            "INSERT INTO responses VALUES (?1, ?1, 'q', ?2, NULL, NULL)", [(str(each), "x" * BIG) for each in range(n)]
        )
    connection.close()


@pytest.mark.parametrize("write", [chatgpt, own, llm])
def test_a_batch_is_bounded_in_bytes(store, tmp_path, write):
    """A few conversations of enormous texts, drafts or answers are not held together: each batch is written when it is large."""
    n = 2 * BATCH_BYTES // BIG
    write(tmp_path / "file", n)
    batches = []
    store.take_in = lambda batch: batches.append(len(batch)) or [1] * len(batch)
    tally = Tally()
    take_file(store, Config(), tmp_path / "file", tally, ProgressLine(io.StringIO()))
    assert tally.conversations == sum(batches) == n
    assert max(batches) * BIG < BATCH_BYTES + 2 * BIG


def test_refusals_are_counted_and_the_first_are_told(home, tmp_path, capfd):
    """A file of nothing but wrong values takes no memory for each of them; what is right in it is taken in."""
    file = tmp_path / "x.json"
    file.write_text(",".join(["[" + json.dumps(CHATGPT), *["{}"] * 5000, json.dumps(OPENWEBUI) + "]"]))
    code, out, err = call(capfd, "import", str(file))
    assert code == 1
    assert "2 conversations" in out
    assert "5,000 refused" in out
    assert [line for line in err.splitlines() if str(file) in line] == err.splitlines()[:SENTENCES]
    assert err.splitlines()[SENTENCES:] == ["and 4,900 more were refused"]
    code, out, _ = call(capfd, "import", str(file), "--json")
    assert (code, json.loads(out)["refusals"], len(json.loads(out)["refused"])) == (1, 5000, SENTENCES)


def test_refusals_of_the_store_are_counted_too(store, tmp_path, monkeypatch):
    """Whoever refuses a conversation: one sentence each, up to the same number."""
    monkeypatch.setattr(importing, "SENTENCES", 1)
    documents = []
    for n in range(3):
        message = {"id": "a" * 32, "parent": None, "role": "user", "text": "q"}
        documents.append({"format": "localkv-conversation", "id": f"{n:032x}", "messages": [message], "name": str(n),
                          "title": "t", "created": 1, "updated": 1, "leaf": None})  # fmt: skip
    (tmp_path / "x.json").write_text(json.dumps(documents))
    tally = Tally()
    take_file(store, Config(), tmp_path / "x.json", tally, ProgressLine(io.StringIO()))
    assert (tally.conversations, tally.refusals, len(tally.refused)) == (1, 2, 1)
