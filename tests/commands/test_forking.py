"""`localkv sessions` about branches: what it prints, changes and refuses."""

import json

import pytest
from typer.testing import CliRunner

from localkv.chat.store import ConversationStore
from localkv.commands.sessions import app
from localkv.config import ModelSection, SamplingSection
from localkv.paths import find_home


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALKV_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    home = find_home()
    home.prepare()
    opened = ConversationStore.open(home.database, home.backups)
    yield opened
    opened.close()


@pytest.fixture
def talk(store):
    """Two branches below the first answer; the second is looked at. Its id, and the ids of its messages."""
    talk = store.create("talk", model=ModelSection(), sampling=SamplingSection(), title="A talk").id
    asked = store.ask(talk, None, "first").id
    answer = store.begin_answer(talk, asked).id
    store.finish_answer(answer, text="\x1b[31mone needle", ids=b"", state="complete", head=None, numbers=None)
    old = store.ask(talk, answer, "old question").id
    new = store.ask(talk, answer, "new needle").id
    return talk, asked, answer, old, new


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def document(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.isascii()
    return json.loads(result.stdout)


def test_branches_and_branch(store, talk):
    """All ends with what leads back to them; the beginning of an id is enough."""
    key, _, _, old, new = talk
    found = document("branches", "talk")
    assert [(each["leaf"], each["messages"], each["shown"], each["text"]) for each in found] == [
        (new, 3, True, "new needle"), (old, 3, False, "old question"),
    ]  # fmt: skip
    lines = run("branches", "talk").stdout.splitlines()
    assert lines[0].startswith(f"> {new[:8]}")
    assert lines[1].startswith(f"  {old[:8]}")
    assert run("branch", "talk", old[:8]).stdout == '"A talk" ends in You: old question\n'
    assert store.get(key).leaf == old
    assert document("branch", "talk", new)["leaf"] == new


def test_fork(store, talk):
    """A fork has a free name, shares what was said up to the message, and leaves the old one alone."""
    key, _, answer, *_ = talk
    made = document("fork", "talk", "--at", answer[:8])
    assert (made["session"], made["title"], made["forked_from"], made["messages"]) == ("talk-fork", "A talk (fork)", "talk", 2)
    assert run("fork", "talk").stdout == '"talk-fork-2" goes on from "A talk".\n'
    assert document("fork", "talk", "--as", "mine")["messages"] == 3
    assert len(store.path(key)) == 3
    assert [m.text for m in store.path(store.by_name("mine").id)][2] == "new needle"


def test_prune_and_unprune(store, talk):
    """What is taken away is out of the branches and comes back whole."""
    key, _, answer, old, new = talk
    assert document("prune", "talk", answer) == {"message": answer, "messages": 3}
    assert [each["messages"] for each in document("branches", "talk")] == [1]
    said = run("unprune", "talk", answer[:8])
    assert said.exit_code == 0
    assert {each["leaf"] for each in document("branches", "talk")} == {old, new}
    assert store.get(key).leaf == new


@pytest.mark.parametrize("way", ["unprune", "branch"])
def test_what_is_said_where_it_was_pruned_outlives_the_trash(store, talk, way):
    """A message pruned twice over, by itself and with the one above it, is gone on with: nothing of that path is erased."""
    key, asked, _, old, _ = talk
    document("prune", "talk", old)
    document("prune", "talk", asked)
    document(way, "talk", old)
    written = store.ask(key, store.get(key).leaf, "written since").id
    assert document("empty-trash")["removed_messages"] == 0
    assert [each["leaf"] for each in document("branches", "talk") if each["shown"]] == [written]


def test_find(talk):
    """Each place with its message, harmless on a terminal."""
    places = document("find", "talk", "NEEDLE")
    assert [(place["role"], place["message"]) for place in places] == [("assistant", talk[2]), ("user", talk[4])]
    shown = run("find", "talk", "needle").stdout
    assert "\x1b" not in shown
    assert shown.startswith(f"1/2  {talk[2][:8]}  ")
    assert run("find", "talk", "nothing").stdout == "No message has these words.\n"


@pytest.mark.parametrize(("arguments", "code", "sentence"), [
    (("branch", "talk", "zzz"), 2, "no message of this conversation"),
    (("branch", "talk", ""), 2, "no message of this conversation"),
    (("fork", "talk", "--as", "talk"), 2, "exists already"),
    (("fork", "empty"), 2, "no message to fork at"),
    (("prune", "nobody", "x"), 2, "no conversation is called"),
])  # fmt: skip
def test_refusals(store, talk, arguments, code, sentence):
    """A sentence on stderr and a code that a script understands; nothing changed."""
    store.create("empty", model=ModelSection(), sampling=SamplingSection())
    before = [(each.name, each.leaf) for each in store.list()]
    result = run(*arguments)
    assert result.exit_code == code
    assert sentence in result.stderr
    assert [(each.name, each.leaf) for each in store.list()] == before


def test_an_id_that_means_two_messages_is_refused(store, talk, monkeypatch):
    """More characters are asked for; the wrong branch is never taken."""
    with store._database.writing() as connection:
        for n, key in enumerate(talk[3:]):
            connection.execute("UPDATE conversations SET leaf = NULL")
            connection.execute("UPDATE messages SET id = ? WHERE id = ?", (f"same{n}", key))
    result = run("branch", "talk", "same")
    assert result.exit_code == 1
    assert "write more of it" in result.stderr
    assert run("branch", "talk", "same1").exit_code == 0


def test_emptying_the_trash_erases_what_was_taken_away(store, talk):
    """Branches that were taken away go for good, and nothing else does."""
    key, _, _, old, new = talk
    document("prune", "talk", old)
    assert document("empty-trash")["removed_messages"] == 1
    assert run("unprune", "talk", old).exit_code == 2
    assert [each["leaf"] for each in document("branches", "talk")] == [new]
    document("prune", "talk", new)
    assert "and 1 message of branches removed" in run("empty-trash").stdout
    assert store.get(key).n_messages == 2
