"""The person's editor, and `localkv config edit`."""

import sys

import pytest

from localkv.commands.config import begin_file
from localkv.commands.editor import find_editor
from localkv.config import Config, load_config
from localkv.errors import ConfigError
from tests.test_cli import call


@pytest.mark.parametrize(
    ("environ", "there", "command"),
    [
        ({"VISUAL": "code --wait", "EDITOR": "vi"}, (), ["code", "--wait"]),
        ({"EDITOR": "'/my editor/ed' -x"}, (), ["/my editor/ed", "-x"]),
        ({"EDITOR": " "}, ("vi", "nano"), ["nano"]),
        ({}, ("vi",), ["vi"]),
    ],
)
def test_which_editor(environ, there, command):
    """$VISUAL, $EDITOR, else what is usually there."""
    assert find_editor(environ, there.__contains__) == command


@pytest.mark.parametrize("environ", [{}, {"EDITOR": "'"}])
def test_no_editor_is_said(environ):
    """With what to set."""
    with pytest.raises(ConfigError, match="EDITOR"):
        find_editor(environ, lambda name: False)


def with_editor(monkeypatch, tmp_path, body):
    """An editor that does `body` to the file `name`."""
    script = tmp_path / "ed.py"
    script.write_text(f"import sys\nname = sys.argv[1]\n{body}\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")


def test_edit(home, tmp_path, monkeypatch, capfd):
    """A new file begins with all settings as comments; what the editor leaves is checked."""
    with_editor(monkeypatch, tmp_path, "open(name, 'a').write('[chat]\\ntheme = \"ansi\"\\n')")
    code, out, _ = call(capfd, "config", "edit")
    assert (code, out) == (0, f"{home.config_file}: every setting is valid\n")
    assert load_config(home.config_file).chat.theme == "ansi"
    assert '# theme = "localkv-dark"' in home.config_file.read_text()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("open(name, 'w').write('[chat]\\nthem = 1\\n')", ["chat.them", '"theme"']),
        ("open(name, 'w').write('[keys]\\nretri = \"f9\"\\n')", ['"retry"']),
        ("sys.exit(3)", ["code 3"]),
    ],
)
def test_what_goes_wrong_is_said(home, tmp_path, monkeypatch, capfd, body, words):
    """A wrong setting, a wrong key, an editor that fails: exit code 2 and why."""
    with_editor(monkeypatch, tmp_path, body)
    code, _, err = call(capfd, "config", "edit")
    assert code == 2
    assert all(word in err for word in words)


def test_an_editor_that_is_not_there(home, monkeypatch, capfd):
    """Its name, and what to set."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "/nowhere/ed")
    code, _, err = call(capfd, "config", "edit")
    assert code == 2
    assert "/nowhere/ed" in err


def test_the_begun_file_is_valid_with_every_comment_taken_away(tmp_path):
    """What it says are the defaults."""
    file = tmp_path / "config.toml"
    begin_file(file)
    assert load_config(file) == Config()
    head, _, body = file.read_text().partition("\n")
    assert head.startswith("# The settings")
    file.write_text("\n".join(line.removeprefix("# ") for line in body.splitlines()))
    assert load_config(file) == Config()
    before = file.read_text()
    begin_file(file)
    assert file.read_text() == before
