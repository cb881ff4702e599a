"""The command line: what it loads, what its commands print, how failures end."""

import json
import os
import subprocess
import sys

import pytest

from localkv import __version__, cli
from localkv.commands import sessions
from localkv.config import Config
from localkv.errors import ConfigError, ConversationExists, LocalKVError, ModelMissing, UnknownConversation


def call(capfd, *arguments):
    """Run a command; exit code, standard output, stderr."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    told = capfd.readouterr()
    return ended.value.code, told.out, told.err


def python(*arguments, **settings):
    """Run this Python."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **settings)


def test_import_loads_nothing_heavy():
    """Before the first frame nothing may be imported that takes long: no torch, no screen, no models, no database."""
    code = "import localkv.cli, sys; print([m for m in sys.modules if m.split('.')[0] in %r or m in %r])"
    heavy = {"torch", "transformers", "textual", "numpy", "huggingface_hub", "rich", "sqlite3", "multiprocessing", "gguf"}
    ours = {"localkv.plain", "localkv.chat.store", "localkv.service.client", "localkv.commands.sessions"}
    assert python("-c", code % (heavy, ours)).stdout.strip() == "[]"


@pytest.mark.parametrize("file", ["a" * 300, "~no-such-user/config.toml"])
def test_a_config_that_cannot_be_there(home, capfd, file):
    """A name that no disk takes, or the home of nobody, is a missing file like any other."""
    code, _, err = call(capfd, "--config", file, "config", "show")
    assert code == 2
    assert "there is no such file" in err


def test_version(capfd):
    """The version is the package's, however one asks for it."""
    assert call(capfd, "version") == (0, f"{__version__}\n", "")
    assert call(capfd, "--version") == (0, f"{__version__}\n", "")
    assert json.loads(call(capfd, "version", "--json")[1]) == {"version": __version__}


def _leaves(group, path):
    """Every command below a group, with the words that lead to it."""
    for command in group.registered_commands:
        name = command.name or command.callback.__name__
        if name == "sessions":
            yield from _leaves(sessions.app, [*path, name])
        else:
            yield [*path, name]
    for each in group.registered_groups:
        yield from _leaves(each.typer_instance, [*path, each.name])


def test_all_help_looks_the_same_and_what_reports_has_json(capfd):
    """Every command, wherever it is parsed, has plain help without drawn boxes; all but those that open something have --json."""
    silent = set()
    for path in _leaves(cli.app, []):
        code, out, _ = call(capfd, *path, "--help")
        assert code == 0
        assert out.startswith(f"Usage: localkv {' '.join(path)}")
        assert "─" not in out
        silent |= set() if "--json" in out else {" ".join(path)}
    assert silent == {"chat", "export", "config edit"}


@pytest.mark.parametrize("path", [["sessions"], ["models"], ["config"], []])
def test_groups_without_a_command_explain_themselves_plainly(capfd, path):
    """No boxes, and no options that belong to the program as a whole."""
    out = call(capfd, *path, "--help")[1]
    assert "─" not in out
    assert "completion" not in out


def test_help_names_every_bench(capfd):
    """The help of `bench` and the refusal of an unknown one name all of them."""
    from localkv.commands.bench import NAMES

    out = call(capfd, "bench", "--help")[1]
    code, _, err = call(capfd, "bench", "nonsense")
    assert code == 2
    assert all(name in out and name in err for name in (*NAMES, "tui"))


def test_an_unknown_conversation_names_the_option_that_begins_it(home, capfd):
    """Who says the first thing is told how."""
    code, _, err = call(capfd, "say", "hello", "--session", "first")
    assert code == 2
    assert "--new" in err


@pytest.mark.parametrize("path", [[], ["models"], ["config"], ["sessions"]])
def test_help_of_groups(capfd, path):
    """Each group lists its commands."""
    code, out, _ = call(capfd, *path, "--help")
    assert code == 0
    assert "Commands" in out


def test_every_command_has_help(capfd):
    """Each command explains itself, without an engine or a configuration."""
    for command in cli.app.registered_commands:
        name = command.name or command.callback.__name__
        code, out, _ = call(capfd, name, "--help")
        assert code == 0
        assert len(out.splitlines()) > 3


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["logs", "-n", "-1"], ["logs", "-n", "x"], ["models", "pull"], ["--nope"]]
)
def test_usage_errors(capfd, arguments):
    """A mistake on the command line ends with 2 and a hint on stderr."""
    code, out, err = call(capfd, *arguments)
    assert code == 2
    assert out == ""
    assert "Error" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("x"), 2), (UnknownConversation("x"), 2), (ConversationExists("x"), 2), (ModelMissing("x"), 1)],
)
def test_failures_are_one_sentence(home, capfd, monkeypatch, error, code):
    """A failure that localkv names is a sentence on stderr, never a traceback; the exit code tells whose mistake it was."""
    from localkv.commands import paths

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(paths, "run", fail)
    assert call(capfd, "paths") == (code, "", "localkv: x\n")


def test_every_error_has_an_exit_code():
    """No error of the tree ends with 0."""
    classes = [LocalKVError]
    for each in classes:
        classes += each.__subclasses__()
        assert cli.exit_code(each.__new__(each)) in {1, 2}


def test_ctrl_c(home, capfd, monkeypatch):
    """Ctrl+C ends any command with 130 and without a traceback."""
    from localkv.commands import paths

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(paths, "run", interrupt)
    code, _, err = call(capfd, "paths")
    assert code == 130
    assert "Traceback" not in err


def test_reader_that_goes_away(home, monkeypatch):
    """`localkv logs | head -1` does not complain, buffered or not."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'localkv', 'config', 'show'], "
        "stdout=subprocess.PIPE, stderr=subprocess.PIPE); p.stdout.close(); print(p.stderr.read()); p.wait()"
    )
    assert python("-c", code).stdout.strip() == "b''"


def test_config_option(home, tmp_path, capfd):
    """--config reads another file; one that is missing or wrong is an error with its name."""
    file = tmp_path / "other.toml"
    file.write_text("[engine]\nthreads = 3\n")
    code, out, _ = call(capfd, "--config", str(file), "config", "show", "--json")
    assert code == 0
    assert json.loads(out)["engine"]["threads"] == 3
    code, _, err = call(capfd, "--config", str(tmp_path / "none.toml"), "config", "show")
    assert code == 2
    assert "none.toml" in err
    file.write_text("[engine]\nthread = 3\n")
    code, _, err = call(capfd, "--config", str(file), "config", "check")
    assert code == 2
    assert '"threads"' in err


def test_paths_and_logs_work_with_a_broken_file(home, capfd):
    """Commands that need no settings do not read them."""
    home.config_file.write_text("[engine\n")
    for command in ("paths", "logs", "version", "models list"):
        assert call(capfd, *command.split())[0] == 0
    assert call(capfd, "stats")[0] == 2


def test_config_commands(home, capfd):
    """Check, path and show, for people and as JSON; what show prints is a file that loads."""
    assert "no such file" in call(capfd, "config", "check")[1]
    shown = call(capfd, "config", "show")[1]
    home.config_file.write_text(shown)
    assert "valid" in call(capfd, "config", "check")[1]
    assert json.loads(call(capfd, "config", "check", "--json")[1]) == {
        "file": str(home.config_file),
        "exists": True,
        "valid": True,
        "notes": [],
    }
    assert call(capfd, "config", "path")[1] == f"{home.config_file}\n"
    from localkv.config import load_config

    assert load_config(home.config_file) == Config()


@pytest.mark.parametrize(
    ("arguments", "terminal", "term", "face"),
    [
        ([], True, "xterm", "tui"),
        (["--plain"], True, "xterm", "plain"),
        ([], False, "xterm", "plain"),
        ([], True, "dumb", "plain"),
    ],
)
def test_which_face(home, capfd, monkeypatch, arguments, terminal, term, face):
    """The screen needs a terminal that can move its cursor; everywhere else the chat is line by line."""
    from localkv import plain
    from localkv.tui import app

    seen = []
    monkeypatch.setattr(plain, "run", lambda *_, **__: seen.append("plain") or 0)
    monkeypatch.setattr(app, "run", lambda *_, **__: seen.append("tui") or 0)
    monkeypatch.setattr(cli, "is_terminal", lambda: terminal)
    monkeypatch.setenv("TERM", term)
    assert call(capfd, "chat", *arguments)[0] == 0
    assert seen == [face]


def test_sessions_are_forwarded(home, capfd):
    """The group of another module gets its arguments whole, options and help included."""
    code, out, _ = call(capfd, "sessions", "list", "--json")
    assert code == 0
    assert json.loads(out) == []
    assert call(capfd, "sessions", "show", "none")[0] == 2


def test_module_is_a_program():
    """`python -m localkv` is the command."""
    assert python("-m", "localkv", "version").stdout.strip() == __version__


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["paths", "sessions list --json", "keys", "nonsense", "export none"])
def test_standard_streams_may_be_missing(home, tmp_path, streams, command):
    """A service or a script may start localkv without some of them: that is no reason to fail in another way."""
    errors = tmp_path / "errors"
    code = 2 if command in {"nonsense", "export none"} else 0
    line = f"{sys.executable} -m localkv {command} 2>{errors} >{tmp_path / 'out'} {streams}"
    assert subprocess.run(["/bin/sh", "-c", line], check=False).returncode == code
    assert "Traceback" not in errors.read_text()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")  # noqa: PTH110
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["paths", "sessions list --json", "config show", "version"])
def test_a_full_disk_behind_standard_output_is_a_sentence(home, monkeypatch, command, unbuffered):
    """The exit code says that not all was written, and one line says why."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    line = f"{sys.executable} -m localkv {command} > /dev/full"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["localkv: standard output cannot be written (No space left on device)"]
