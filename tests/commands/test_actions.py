"""The table of actions: what keys, slash commands, palette and help are made from."""

from localkv.commands.actions import ACTIONS, LIVE, PLACES
from localkv.commands.keymap import DEFAULT_KEYMAP, TWINS, WRITING, clashes, key_name


def test_ids_are_unique_and_writable():
    """An id is what people write into config.toml: lower-case words with dots, once."""
    ids = [action.id for action in ACTIONS]
    assert len(set(ids)) == len(ids)
    assert all(part.isalpha() and part.islower() for each in ids for part in each.split("."))


def test_no_key_is_bound_that_terminals_cannot_tell_apart():
    """ctrl+i, ctrl+m, ctrl+h and ctrl+[ are other keys in many terminals."""
    assert not {key for each in ACTIONS for key in each.keys.split(",")} & set(TWINS)


def test_defaults_do_not_clash():
    """No key means two things where both would act."""
    assert clashes(DEFAULT_KEYMAP) == []


def test_defaults_are_written_as_the_terminal_names_them():
    """A default that is spelled otherwise would never be pressed."""
    keys = {key for each in ACTIONS for key in each.keys.split(",") if key}
    assert {key for key in keys if key_name(key) != key} == set()


def test_input_methods_compose_undisturbed_because_no_character_is_bound_where_people_write():
    """A letter, a letter with alt or a dead key would be lost to the text; only ctrl, function and cursor keys act."""
    for action in ACTIONS:
        if action.place in WRITING:
            for key in (key for key in action.keys.split(",") if key):
                name = key.split("+")[-1]
                assert "ctrl+" in key or len(name) > 1, (action.id, key)


def test_every_place_has_a_title_and_is_live_somewhere():
    """A key at a place that help does not know or that no pane has would be lost."""
    assert {action.place for action in ACTIONS} == set(PLACES)
    assert frozenset.union(*LIVE) == set(PLACES)


def test_what_has_only_a_slash_is_for_the_whole_screen():
    """Slash commands are done by the screen, so that a key or the palette can call them, too."""
    assert all(action.place == "anywhere" for action in ACTIONS if action.slash and not action.run)
