"""`paths`, `logs`, `config`, `models` and how plain commands print."""

import functools
import io
import json

import pytest
from huggingface_hub import constants

from localkv.commands import logs, models, output, paths
from localkv.commands.console import Console
from localkv.commands.setup import Setup, find_setup
from localkv.commands.talk import open_talk
from localkv.errors import FetchFailed, PathError
from localkv.events import Event, EventLog
from localkv.models import hub, starter
from localkv.plain import Draft, PlainChat
from localkv.tui.desk import Desk


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def no_hub(tmp_path, monkeypatch):
    """An empty Hugging Face cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_paths_name_every_place(home, capsys):
    """Every directory is told, with what it is for; nothing is made."""
    paths.run(find_setup(), as_json=True)
    places = json.loads(capsys.readouterr().out)
    assert places["conversations"] == str(home.database)
    assert places["store"] == str(home.store)
    paths.run(find_setup(), as_json=False)
    out = capsys.readouterr().out
    assert all(place in out for place in places.values())
    assert "precious" in out


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("little", "{here}/little"),
        ("./little", "{here}/little"),
        ("org/little", "{here}/org/little"),
        ("none.gguf", "{here}/none.gguf"),
        ("org/other", "org/other"),
        ("starter", "starter"),
    ],
)
def test_a_model_of_the_settings_means_the_same_everywhere(home, tmp_path, monkeypatch, written, meant):
    """A folder that is written from here is absolute in what faces begin, wherever the engine runs; a hub id and the starter stay."""
    for folder in ("little", "org/little", "starter"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    home.config_file.write_text(f'[model]\nname = "{written}"\n')
    with open_talk(find_setup(), io.StringIO()) as talk:
        face = PlainChat(talk, Console(io.StringIO(), io.StringIO(), io.StringIO()), Draft(None, None, ""))
        face.new("")
        names = {face.draft.model.name, Desk(talk.store, talk.config).model.name}
    assert names == {meant.format(here=tmp_path)}


@pytest.mark.parametrize("time", [1e300, -1e300, 1e12, -1.0, 0.0])
def test_a_time_that_no_clock_shows_is_one_line_all_the_same(time):
    """A damaged or foreign line of the log does not hide the others."""
    assert logs.describe(Event(time, "engine.start", {"pid": 1})).endswith("pid=1")


def test_logs(home, capsys):
    """The newest events, oldest first, in words or as JSON."""
    log = EventLog(home.event_log)
    for number in range(5):
        log.emit("move", number=number)
    logs.run(find_setup(), last=2, engine=False, as_json=True)
    events = json.loads(capsys.readouterr().out)
    assert [event["fields"]["number"] for event in events] == [3, 4]
    logs.run(find_setup(), last=2, engine=False, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("number=4")


def test_no_log_and_zero_events(home, capsys):
    """Before the first event, and for -n 0, nothing is printed."""
    logs.run(find_setup(), last=2, engine=False, as_json=False)
    EventLog(home.event_log).emit("move")
    logs.run(find_setup(), last=0, engine=False, as_json=False)
    logs.run(find_setup(), last=2, engine=True, as_json=False)
    assert capsys.readouterr().out == ""


def test_engine_log(home, capsys):
    """The last lines of the engine's output, whatever bytes are in it."""
    home.engine_log.write_bytes(b"one\ntwo\n\xffthree\n")
    logs.run(find_setup(), last=2, engine=True, as_json=False)
    assert capsys.readouterr().out == "two\n\ufffdthree\n"


def test_unreadable_log(home):
    """A directory in its place is an error with a sentence."""
    home.event_log.mkdir()
    with pytest.raises(PathError, match="events"):
        logs.run(find_setup(), last=2, engine=False, as_json=False)


def test_models_list(home, capsys):
    """Without models the command to fetch one is told; with them, a table or JSON."""
    models.list_models(find_setup(), as_json=False)
    assert "localkv models pull starter" in capsys.readouterr().out
    (home.models_dir / "starter").mkdir()
    (home.models_dir / "starter" / "config.json").write_text("{}")
    models.list_models(find_setup(), as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {"name": "starter", "source": "starter", "path": str(home.models_dir / "starter"), "bytes": 2, "complete": True}
    ]
    models.list_models(find_setup(), as_json=False)
    assert "starter" in capsys.readouterr().out


def test_models_pull(home, capsys, monkeypatch, tmp_path):
    """The starter and hub models are fetched by their own modules; code comes along only if the settings allow it."""
    seen = []
    monkeypatch.setattr(starter, "fetch", lambda folder, progress: seen.append(folder) or folder / "starter")
    monkeypatch.setattr(hub, "pull", lambda name, progress, with_code: seen.append((name, with_code)) or tmp_path)
    models.pull(find_setup(), "starter", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"name": "starter", "path": str(home.models_dir / "starter")}
    models.pull(find_setup(), "Org/model", as_json=False)
    home.config_file.write_text('[model]\nname = "Org/model"\ntrust_remote_code = true\n')
    models.pull(find_setup(), "Org/model", as_json=False)
    assert seen == [home.models_dir, ("Org/model", False), ("Org/model", True)]
    assert "localkv chat --model Org/model" in capsys.readouterr().out


def test_models_pull_failure_clears_its_line(home, monkeypatch):
    """The progress line does not stay beside the sentence of a failure."""
    errors = Terminal()
    monkeypatch.setattr("sys.stderr", errors)
    monkeypatch.setattr(
        models, "ProgressLine", functools.partial(output.ProgressLine, clock=iter(range(0, 1000, 10)).__next__)
    )

    def fail(folder, progress):
        progress("fetching", 10, 100)
        raise FetchFailed("no network")

    monkeypatch.setattr(starter, "fetch", fail)
    with pytest.raises(FetchFailed):
        models.pull(find_setup(), "starter", as_json=False)
    assert "fetching" in errors.getvalue()
    assert errors.getvalue().endswith("\r")


def test_models_rm_asks(home, capsys, monkeypatch):
    """On a terminal a person is asked first, because other programs may use the same files."""
    removed = []
    monkeypatch.setattr(hub, "remove", lambda name, folder: removed.append(name) or 5)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    models.remove(find_setup(), "Org/model", sure=False, as_json=False)
    assert removed == []
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    models.remove(find_setup(), "Org/model", sure=False, as_json=False)
    models.remove(find_setup(), "Org/model", sure=True, as_json=False)
    capsys.readouterr()
    models.remove(find_setup(), "Org/model", sure=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"name": "Org/model", "freed_bytes": 5}
    assert removed == ["Org/model"] * 3


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (("x", 0, 0, 5.0), "x: 0 B"),
        (("x", 0, 1024, 5.0), "x:   0% of 1.0 KiB"),
        (("x", 512, 1024, 2.0), "x:  50% of 1.0 KiB, 256 B/s, 2.0 s left"),
    ],
)
def test_download_progress(step, text):
    """Share, rate and time left, as far as they are known."""
    assert models.progress_text(*step) == text


def test_progress_line_on_a_terminal(monkeypatch):
    """One line, rewritten, never wider than the terminal, gone at the end."""
    clock = iter([0.0, 1.0, 1.05, 2.0])
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = output.ProgressLine(stream, clock.__next__)
    for text in ("a" * 30, "too soon", "short"):
        bar.say(text)
    bar.end()
    assert stream.getvalue() == "\r" + "a" * 9 + "\rshort    " + "\r     \r"


def test_progress_line_elsewhere(monkeypatch):
    """In a pipe or a dumb terminal whole lines, and only if it takes long."""
    clock = iter([0.0, 1.0, 6.0])
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    bar = output.ProgressLine(stream, clock.__next__)
    bar.say("soon")
    bar.say("late")
    bar.end()
    assert stream.getvalue() == "late\n"


def test_json_is_ascii(capsys):
    """JSON on a terminal can't be obeyed by it, and loses nothing."""
    output.print_json({"a": "é\x1b\u202e"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"a": "é\x1b\u202e"}


def test_sections_are_aligned():
    """Values stand in one column over all sections; nothing, yes and counts are words."""
    stream = io.StringIO()
    output.print_sections({"one": {"a": None, "long name": True}, "two": {"b": 12345}}, stream)
    assert stream.getvalue() == "one\n  a          -\n  long name  yes\ntwo\n  b          12,345\n"


def test_setup_finds_the_file(home, tmp_path):
    """The home's own file, or the one that was named."""
    assert find_setup().config_file == home.config_file
    assert Setup(home, tmp_path / "x").config_file == tmp_path / "x"
