"""`localkv sessions restore`, and what every face says of missing or damaged conversations."""

import json
import os
import sys

import pytest

from localkv.chat.store import ConversationStore
from localkv.cli import main
from localkv.config import ModelSection, SamplingSection
from tests.terminal import Terminal

from .engine import CountingRuntime, serving
from .test_upkeep import run


@pytest.fixture
def backed_up(home):
    """Two conversations, and a backup that has only the first."""
    store = ConversationStore.open(home.database, home.backups)
    for name in ("one", "two"):
        store.ask(store.create(name, model=ModelSection(), sampling=SamplingSection()).id, None, "hello")
        if name == "one":
            store.begin_daily_backup(lambda problem: pytest.fail(problem)).join()
    store.close()
    return home


def names(capsys):
    return [each["session"] for each in run(capsys, "sessions", "list", "--json")[1]]


def test_list_shows_what_is_in_each_backup(backed_up, capsys):
    """Name, age, contents and usability of every backup."""
    _, found, _ = run(capsys, "sessions", "restore", "--list", "--json")
    assert [(each["conversations"], each["messages"], each["usable"]) for each in found] == [(1, 1, True)]
    assert found[0]["backup"] in run(capsys, "sessions", "restore", "--list")[1]


def test_a_backup_of_a_wrong_clock_is_not_the_newest(backed_up, capsys):
    """It is listed, without an age, and chosen only by its name."""
    [real] = backed_up.backups.iterdir()
    wrong = real.with_name("conversations-21011231T000000.000000Z-schema9.db")
    wrong.write_bytes(real.read_bytes())
    found = run(capsys, "sessions", "restore", "--list", "--json")[1]
    assert [each["backup"] for each in found] == [real.name, wrong.name]
    assert run(capsys, "sessions", "restore", "--list")[1].splitlines()[2].split()[1] == "?"
    assert run(capsys, "sessions", "restore", "--yes", "--json")[1]["backup"] == real.name
    assert run(capsys, "sessions", "restore", wrong.name, "--yes", "--json")[1]["backup"] == wrong.name


def test_no_backups_is_a_sentence(home, capsys):
    """A new user learns when there will be one."""
    assert "no backups" in run(capsys, "sessions", "restore", "--list")[1]
    assert run(capsys, "sessions", "restore")[0] == 1


@pytest.mark.parametrize("arguments", [("sessions", "list"), ("say", "hi", "--session", "one"), ("chat", "--plain")])
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_every_face_names_the_command(backed_up, capsys, arguments, damage):
    """Never an empty list and never an overwrite: a sentence with the command, which then works."""
    if damage == "missing":
        backed_up.database.unlink()
    else:
        backed_up.database.write_bytes(b"rubbish" * 2000)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (1, "")
    assert "localkv sessions restore" in err
    assert not backed_up.database.exists() if damage == "missing" else backed_up.database.read_bytes()[:7] == b"rubbish"
    code, report, _ = run(capsys, "sessions", "restore", "--json")
    assert (code, report["conversations"]) == (0, 1)
    assert names(capsys) == ["one"]


def test_sound_conversations_are_not_replaced_without_asking(backed_up, capsys, monkeypatch):
    """Going back costs what was said since: it wants --yes, or a person who agrees."""
    assert run(capsys, "sessions", "restore")[0] == 2
    assert names(capsys) == ["two", "one"]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, left in (("n", ["two", "one"]), ("y", ["one"])):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert run(capsys, "sessions", "restore")[0] == 0
        assert names(capsys) == left


def test_what_still_has_the_text_of_what_is_removed_is_said(backed_up, capsys):
    """Backups, and the file that a restore put aside: how long it stays is said when it is made."""
    said = run(capsys, "sessions", "restore", "--yes")[1]
    assert "until 7 backups are newer, a week at least" in said
    said = run(capsys, "sessions", "rm", "one")[1]
    assert "Backups of the last days still have its text" in said
    assert "What a restore put aside" in said
    for file in backed_up.data_dir.glob("*.before-restore*"):
        file.unlink()
    store = ConversationStore.open(backed_up.database, backed_up.backups)
    store.create("three", model=ModelSection(), sampling=SamplingSection())
    store.close()
    assert "What a restore put aside" not in run(capsys, "sessions", "rm", "three")[1]


def test_a_backup_can_be_named(backed_up, capsys):
    """By the name that --list shows; another name is refused as asked for wrongly."""
    name = run(capsys, "sessions", "restore", "--list", "--json")[1][0]["backup"]
    assert run(capsys, "sessions", "restore", "nonsense", "--yes")[0] == 2
    code, report, _ = run(capsys, "sessions", "restore", name, "--yes", "--json")
    assert (code, report["backup"]) == (0, name)
    assert len(report["kept"]) >= 1


def test_commands_start_the_daily_backup(home, capsys):
    """A face that is used makes the backup of the day."""
    store = ConversationStore.open(home.database, home.backups)
    store.ask(store.create("one", model=ModelSection(), sampling=SamplingSection()).id, None, "hello")
    store.close()
    with pytest.raises(SystemExit):
        main(["say", "hi", "--session", "unknown"])
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["sessions", "restore", "--list", "--json"])
    assert len(json.loads(capsys.readouterr().out)) == 1


# ---- at the start of a chat, at a terminal ----


def at_terminal(*arguments):
    return Terminal([sys.executable, "-m", "localkv", "chat", *arguments], dict(os.environ))


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
@pytest.mark.parametrize("face", [(), ("--plain",)], ids=["screen", "plain"])
@pytest.mark.parametrize("damage", [None, b"", b"x", b"rubbish" * 2000], ids=["missing", "empty", "cut", "damaged"])
def test_a_person_is_led_back(backed_up, face, damage):
    """Missing, empty, cut or damaged: the chat shows the backups, brings the chosen one back, and opens with it."""
    backed_up.database.unlink()
    if damage is not None:
        backed_up.database.write_bytes(damage)
    with serving(backed_up, CountingRuntime()), at_terminal(*face) as terminal:
        terminal.wait_for("Which one? [1]")
        assert "CONVERSATIONS" in terminal.text
        terminal.send("7\r")
        terminal.wait_for(lambda text: text.count("Which one? [1]") == 2)
        terminal.send("\r")
        terminal.wait_for("hello" if not face else "1 conversations are back")
        terminal.send("\x11" if not face else "/list\r/quit\r")
        assert terminal.wait_for_end() == 0
    kept = list(backed_up.data_dir.glob("conversations.db.*.before-restore"))
    assert [path.read_bytes() for path in kept] == ([] if damage is None else [damage])


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
def test_a_person_may_leave_everything_as_it_is(backed_up):
    """Another way back is theirs to choose: nothing changes, and the sentence names the command."""
    backed_up.database.write_bytes(b"rubbish" * 2000)
    with at_terminal() as terminal:
        terminal.wait_for("Which one? [1]")
        terminal.send("q\r")
        terminal.wait_for("The damaged file is kept")
        assert terminal.wait_for_end() == 1
    assert backed_up.database.read_bytes() == b"rubbish" * 2000


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
def test_what_was_typed_ahead_answers_no_question(backed_up):
    """A message that was typed before anything was on the screen brings nothing back by its Enter."""
    backed_up.database.unlink()
    with at_terminal() as terminal:
        terminal.send("hello\rhello\r")
        terminal.wait_for("Which one? [1]")
        terminal.pump(0.3)
        assert not backed_up.database.exists()
        terminal.send("\x04")
        assert terminal.wait_for_end() == 1
    assert not backed_up.database.exists()
