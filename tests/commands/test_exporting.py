"""`localkv export`, `localkv import` and /export: files whole or not at all, and back again."""

import contextlib
import json
import os
import sys

import pytest

from localkv.chat.store import ConversationStore
from localkv.commands import exporting
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ExportRefused
from tests.chat.imports.test_reading import CHATGPT
from tests.test_cli import call
from tests.test_plain import chat
from tests.tui.conftest import notices, play, until


@pytest.fixture
def talks(home):
    """Two stored conversations."""
    store = ConversationStore.open(home.database, home.backups)
    for name in ("one", "two"):
        made = store.create(name, model=ModelSection(), sampling=SamplingSection(), title=f"About {name}")
        asked = store.ask(made.id, None, f"say {name}")
        answer = store.begin_answer(made.id, asked.id)
        store.finish_answer(answer.id, text=f"I say {name}", ids=b"", state="complete", head=None, numbers=None)
    store.close()


def test_formats(home, talks, tmp_path, capfd):
    """Markdown by default, else what --format or the file's suffix says; all of them only as JSON."""
    assert call(capfd, "export", "one")[1].startswith("# About one\n")
    assert call(capfd, "export", "one", "--format", "text")[1].startswith("About one\n=")
    assert json.loads(call(capfd, "export", "one", "--format", "json")[1])["name"] == "one"
    assert call(capfd, "export", "one", "-o", str(tmp_path / "x.json"))[:2] == (0, "")
    assert json.loads((tmp_path / "x.json").read_text())["name"] == "one"
    assert {each["name"] for each in json.loads(call(capfd, "export", "--all", "--format", "json")[1])} == {"one", "two"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["none"], 2, ["none"]),
        ([], 2, ["--all"]),
        (["one", "--all"], 2, ["--all"]),
        (["one", "two"], 2, ["--format json"]),
        (["one", "--format", "pdf"], 2, ["pdf", "md, json and text"]),
        (["one", "-o", "/nowhere/x.md"], 1, ["/nowhere/x.md", "another place"]),
    ],
)
def test_what_cannot_be_exported_is_said(home, talks, capfd, arguments, code, words):
    """Which thing, and what to do."""
    found, out, err = call(capfd, "export", *arguments)
    assert (found, out) == (code, "")
    assert all(word in err for word in words)


def test_a_file_is_not_written_over(home, talks, tmp_path, capfd):
    """Unless that is asked for."""
    file = tmp_path / "x.md"
    file.write_text("mine")
    assert call(capfd, "export", "one", "-o", str(file))[0] == 1
    assert file.read_text() == "mine"
    assert call(capfd, "export", "one", "-o", str(file), "--force")[0] == 0
    assert "I say one" in file.read_text()


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    """No half file and no part beside it."""
    from pathlib import Path

    def fail(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ExportRefused, match="No space left"):
        exporting.write(tmp_path / "x.md", "text", force=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["~nobody-at-all/x.md", "x" * 300, "x/" * 3000, "a\0b", "~\0", "\ud800"], ids=range(6))
def test_no_name_of_a_file_breaks_an_export(home, tmp_path, monkeypatch, name):
    """Whatever is written after /export that can't be a file, it is refused with a sentence, and nothing is half done."""
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(ConversationStore.open(home.database, home.backups)) as store:
        one = store.create("one", model=ModelSection(), sampling=SamplingSection())
        with pytest.raises(ExportRefused, match="cannot be written"):
            exporting.export_open(store, one, name)
    assert [each for each in tmp_path.rglob("*") if each.suffix == ".md" or "part" in each.name] == []


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links of POSIX")
def test_what_is_no_plain_file_stays_what_it_is(home, talks, tmp_path, capfd):
    """A pipe gets the text, a link stays a link and its file gets it, and a folder is refused: none of them is replaced."""
    pipe, link, file = tmp_path / "pipe", tmp_path / "link.md", tmp_path / "real.md"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert call(capfd, "export", "one", "-o", str(pipe))[0] == 0
    assert b"I say one" in os.read(reader, 65536)
    os.close(reader)
    assert pipe.is_fifo()
    file.write_text("old")
    link.symlink_to(file)
    assert call(capfd, "export", "one", "-o", str(link))[0] == 1
    assert call(capfd, "export", "one", "-o", str(link), "--force")[0] == 0
    assert link.is_symlink()
    assert "I say one" in file.read_text()
    assert call(capfd, "export", "one", "-o", str(tmp_path), "--force")[0] == 1
    assert tmp_path.is_dir()


def test_import_and_back(home, talks, tmp_path, capfd):
    """What was exported and removed comes back with its import; the second time adds nothing; refusals give exit code 1."""
    file = tmp_path / "all.json"
    assert call(capfd, "export", "--all", "-o", str(file))[0] == 0
    assert call(capfd, "sessions", "rm", "one")[0] == 0
    code, out, _ = call(capfd, "import", str(file), "--json")
    assert (code, json.loads(out)) == (0, {"conversations": 1, "messages": 2, "unchanged": 1, "refused": [], "refusals": 0})
    assert "0 conversations with 0 new messages taken in, 2 were there already" in call(capfd, "import", str(file))[1]
    assert "I say one" in call(capfd, "export", "one")[1]
    bad = tmp_path / "bad.json"
    bad.write_text("hello")
    code, out, err = call(capfd, "import", str(bad), str(file))
    assert code == 1
    assert str(bad) in err
    assert "1 refused" in out


def test_batches(home, tmp_path, capfd):
    """More conversations than one transaction holds."""
    file = tmp_path / "many.json"
    file.write_text(json.dumps([{**CHATGPT, "id": str(n), "conversation_id": str(n)} for n in range(120)]))
    code, out, _ = call(capfd, "import", str(file), "--json")
    assert (code, json.loads(out)["conversations"], json.loads(out)["messages"]) == (0, 120, 480)


def test_imported_messages_are_sent_as_text_for_the_engine_to_tokenise(home, tmp_path, capfd):
    """They have no ids until their first turn, whose model makes them."""
    file = tmp_path / "x.json"
    file.write_text(json.dumps(CHATGPT))
    call(capfd, "import", str(file))
    result = chat(home, "/open Rain\nsay Umbrella\n")
    lines = result.engine.requests[0].lines
    assert [(line.role, line.text) for line in lines] == [
        ("user", "Does it rain?"), ("assistant", "Yes."), ("user", "say Umbrella"),
    ]  # fmt: skip
    assert [line.ids for line in lines] == [b"", b"", b""]


def test_export_in_a_chat(home, tmp_path, monkeypatch):
    """/export writes a Markdown file named after the conversation, or the file that is given."""
    monkeypatch.chdir(tmp_path)
    result = chat(home, f"/new my talk\nsay A\n/export\n/export {tmp_path}/b.json\n/export\n")
    assert "my talk.md" in result.err
    assert "## You" in (tmp_path / "my talk.md").read_text()
    assert json.loads((tmp_path / "b.json").read_text())["name"] == "my talk"
    assert "exists already" in result.err


def test_export_on_the_screen(world, tmp_path):
    """The same command there; the notice names the file."""
    world.talk("first", "hello", "Hi.")
    app = world.app(session="first")

    async def scene(pilot):
        app.chat_screen.composer.insert(f"/export {tmp_path}/x.md")
        await pilot.press("enter")
        await until(pilot, lambda: "written:" in notices(app), "the notice")
        await pilot.press("ctrl+n")
        app.chat_screen.composer.insert("/export")
        await pilot.press("enter")
        await until(pilot, lambda: "nothing to export" in notices(app), "the refusal")
        assert len(world.store.list()) == 1

    play(app, scene)
    assert "Hi." in (tmp_path / "x.md").read_text()
