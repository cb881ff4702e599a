"""`localkv keys --list`: ids for the settings, keys in force."""

import json

from localkv.commands.actions import ACTIONS
from localkv.commands.keymap import resolve
from localkv.commands.keys import meaning
from tests.test_cli import call


def test_every_action_is_listed_with_its_keys(home, capfd):
    """What can be written into [keys] is in the list, with what holds now; a default that gave way is told."""
    home.config_file.write_text('[keys]\nretry = "ctrl+n"\n')
    code, out, _ = call(capfd, "keys")
    assert code == 0
    for action in ACTIONS:
        assert any(line.split()[0] == action.id for line in out.splitlines()), action.id
    assert 'no longer "session.new"' in out
    document = json.loads(call(capfd, "keys", "--json")[1])
    found = {each["id"]: each for each in document["actions"]}
    assert found["retry"]["keys"] == ["ctrl+n"]
    assert found["retry"]["default"] == ["ctrl+r"]
    assert found["session.new"]["keys"] == []
    assert len(document["notes"]) == 1


def test_wrong_keys_are_told_before_anything_is_listed(home, capfd):
    """Exit code 2 and the nearest id; `config check` says the same."""
    home.config_file.write_text('[keys]\nretri = "f9"\n')
    for command in (("keys",), ("config", "check")):
        code, out, err = call(capfd, *command)
        assert (code, out) == (2, "")
        assert '"retry"' in err


def test_what_a_key_means():
    """All its meanings, each with its place."""
    said = meaning("enter", resolve({}))
    assert "send, writing" in said
    assert "open, in the list" in said
    assert meaning("f24", resolve({})) == "bound to nothing"
