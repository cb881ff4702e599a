"""A person's keys over the defaults: what wins, what is told, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands.actions import ACTIONS
from localkv.commands.keymap import DEFAULT_KEYMAP, clashes, key_label, key_name, resolve
from localkv.errors import ConfigError

CHANGEABLE = [action.id for action in ACTIONS if action.act]
KEYS = ["f9", "f10", "ctrl+n", "ctrl+r", "ctrl+x", "alt+enter", "f5", "enter", "up"]


def refused(wishes):
    """The sentence of the refusal."""
    with pytest.raises(ConfigError) as caught:
        resolve(wishes, "my.toml")
    return str(caught.value)


def test_a_key_is_replaced():
    """What a person binds takes the place of the default; other actions keep theirs."""
    keymap = resolve({"retry": "Ctrl+X, F9", "stats": "f10", "help": ""})
    assert keymap.keys["retry"] == ("ctrl+x", "f9")
    assert [action.id for action in keymap.bound("f10")] == ["stats"]
    assert keymap.keys["help"] == ()
    assert keymap.keys["quit"] == DEFAULT_KEYMAP.keys["quit"]
    assert keymap.notes == ()


def test_a_default_that_loses_its_key_is_named():
    """Both ids, the key and the place are told."""
    keymap = resolve({"retry": "ctrl+n"})
    assert keymap.keys["session.new"] == ()
    assert keymap.notes == ('ctrl+n anywhere is "retry" now and no longer "session.new"',)
    assert "while writing" in resolve({"retry": "enter"}).notes[0]


def test_two_wishes_for_one_key_name_both_and_the_place():
    """A contradiction is refused: which of the two was meant, nobody knows."""
    said = refused({"retry": "f9", "stats": "f9"})
    assert all(word in said for word in ("my.toml", "f9", '"retry"', '"stats"', "anywhere"))
    assert "in the list" in refused({"retry": "f9", "rename": "f9"})


def test_keys_of_panes_that_never_act_together_do_not_clash():
    """The same key may mean one thing while writing and another in the list."""
    assert resolve({"send": "ctrl+x", "open": "ctrl+x"}).notes == ()


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"retri": "f9"}, ['"retri"', '"retry"']),
        ({"retry": "ctrl+i"}, ["ctrl+i", "tab"]),
        ({"retry": "ctrl+["}, ["ctrl+[", "escape"]),
        ({"retry": "r"}, ['"r"', "write"]),
        ({"send": "space"}, ["space", "write"]),
        ({"retry": "contrl+x"}, ["contrl+x", "localkv keys"]),
        ({"retry": "f99"}, ["f99", "localkv keys"]),
        ({"history": "f9"}, ['"history"', "stays"]),
    ],
)
def test_what_cannot_work_is_refused(wishes, words):
    """The sentence names the id or key and what is wrong with it."""
    said = refused(wishes)
    assert all(word in said for word in ["my.toml", *words])


@given(st.dictionaries(st.sampled_from(CHANGEABLE), st.lists(st.sampled_from(KEYS), max_size=3).map(",".join), max_size=6))
def test_a_keymap_never_contradicts_itself(wishes):
    """Whatever is asked for: it is refused, or holds, and then no key means two things at one place and no loss is silent."""
    try:
        keymap = resolve(wishes)
    except ConfigError:
        return
    assert clashes(keymap) == []
    for name, keys in wishes.items():
        assert keymap.keys[name] == tuple(key for key in keys.split(",") if key)
    lost = [(name, key) for name, keys in DEFAULT_KEYMAP.keys.items() if name not in wishes for key in keys]
    lost = [(name, key) for name, key in lost if key not in keymap.keys[name]]
    for name, key in lost:
        assert any(f'"{name}"' in note and key in note for note in keymap.notes)


@given(st.text(max_size=12))
def test_any_text_is_a_key_or_a_refusal(text):
    """No text from a settings file ends in a traceback."""
    try:
        resolve({"retry": text, "filter": text})
    except ConfigError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("written", "name", "shown"),
    [
        ("/", "slash", "/"), ("?", "question_mark", "?"), ("Ctrl+PageDown", "ctrl+pagedown", "^pgdn"), ("F1", "f1", "F1"),
        ("shift+alt+x", "alt+shift+x", "alt+shift+x"), ("+", "plus", "+"), ("ctrl++", "ctrl+plus", "^+"), ("A", "A", "A"),
        ("escape", "escape", "esc"), ("ctrl+-", "ctrl+minus", "^-"),
    ],
)  # fmt: skip
def test_names_of_keys(written, name, shown):
    """People write a key in several ways; the terminal's library has one name, and help shows a short one."""
    assert key_name(written) == name
    assert key_label(name) == shown
    assert key_name(shown if len(shown) == 1 else written) == name


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"dialog.up": "f8"}, ['"branches.take"', "among branches"]),
        ({"reading.down": "k"}, ['"reading.up"', "in help and statistics"]),
        ({"question.yes": "enter"}, ['"question.no"', "when asked yes or no"]),
        ({"find.next": "f5"}, ['"continue"', "while finding words"]),
        ({"dialog.down": "ctrl+q"}, ['"quit"', "in dialogs"]),
        ({"question.yes": "escape"}, ['"cancel"', "when asked yes or no"]),
        ({"quit": "f9"}, ['"branches.keep"', "among branches"]),
    ],
)
def test_what_gives_way_over_the_chat_is_named(wishes, words):
    """Keys of dialogs are settings like others: a default that loses its key there is told with its place."""
    (note,) = resolve(wishes).notes
    assert all(word in note for word in words), note


@pytest.mark.parametrize("wishes", [{"retry": "f9", "reading.span": "f9"}, {"pane.next": "up", "dialog.up": "up"}])
def test_the_chat_and_what_covers_it_do_not_clash(wishes):
    """A key may mean one thing in the chat and another in a screen over it."""
    assert resolve(wishes).keys.items() >= {name: (key,) for name, key in wishes.items()}.items()


@pytest.mark.parametrize("wishes", [{"dialog.up": "f9", "branches.take": "f9"}, {"cancel": "f9", "reading.up": "f9"}])
def test_two_wishes_for_one_key_over_the_chat_are_refused(wishes):
    """As everywhere: both ids are named."""
    assert all(f'"{name}"' in refused(wishes) for name in wishes)


@pytest.mark.parametrize("name", ["dialog.up", "branches.keep", "find.next"])
def test_characters_are_needed_where_dialogs_have_a_line_to_write(name):
    """A letter that moves a cursor could not be searched for."""
    assert "write" in refused({name: "x"})
