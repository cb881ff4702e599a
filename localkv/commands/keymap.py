"""Which keys do what, once the section [keys] of config.toml is laid over the table of actions.

Pure; knows no terminal. What a person binds wins over a default, and the default that lost its key is named in `notes`; two
wishes for one key at one place contradict each other and are a ConfigError, as are unknown ids and keys that can't work:
those that terminals send for other keys, and characters where people write.
"""

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localkv.commands.actions import ACTIONS, ALWAYS, LIVE, OVER_THE_CHAT, PLACES, Action, Place
from localkv.errors import ConfigError

TWINS = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+h": "backspace", "ctrl+left_square_bracket": "escape"}
"""Keys that many terminals send for others."""

NAMED = frozenset(("enter", "escape", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"))
NAMED |= {"up", "down", "left", "right", *(f"f{number}" for number in range(1, 25))}
MODIFIERS = ("ctrl", "alt", "shift", "super", "hyper", "meta")
WRITING: tuple[Place, ...] = ("anywhere", "composer", "find", "dialog", "branches")
"""Where a character is something that a person writes."""

_SHORT_NAMES = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
_SHOWN = {"escape": "esc", "pageup": "pgup", "pagedown": "pgdn", "delete": "del", "insert": "ins"}


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys of every action, by id; none for an action that has no key."""

    keys: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
    """Defaults that gave way to what a person bound, one sentence each."""

    def of(self, action: Action) -> tuple[str, ...]:
        """The keys of one action, the one to show first."""
        return self.keys.get(action.id, ())

    def shown(self, action: Action) -> str:
        """The key of `action` as people read it; empty for none."""
        keys = self.of(action)
        return key_label(keys[0]) if keys else ""

    def bound(self, key: str) -> list[Action]:
        """What `key` does, at each place where it does something."""
        return [action for action in ACTIONS if key in self.of(action)]


def resolve(wishes: Mapping[str, str], source: str = "config.toml", actions: Sequence[Action] = ACTIONS) -> Keymap:
    """The keymap with `wishes`, id to keys with commas, laid over the defaults. Raises ConfigError that names id and key."""
    known = {action.id: action for action in actions}
    asked: dict[str, tuple[str, ...]] = {}
    for name, text in wishes.items():
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
            raise ConfigError(f'{source}: keys."{name}": there is no such action; the nearest is "{near[0]}"')
        if not known[name].act:
            raise ConfigError(f'{source}: keys."{name}": this key belongs to the text that is written and stays as it is')
        asked[name] = tuple(_checked(key, known[name], source) for key in text.split(",") if key.strip())
    for one, other, key in _clashes([known[name] for name in asked], asked):
        raise ConfigError(
            f'{source}: {key} is bound twice {_where(one, other)}: keys."{one.id}" and keys."{other.id}"; take it out of one'
        )
    return _over_defaults(asked, actions)


def key_name(key: str) -> str:
    """A key as the terminal's library names it: "/" is "slash", "Ctrl+X" is "ctrl+x"."""
    key = key.strip()
    modifiers, name = (key[:-2], "+") if key.endswith("++") else ("", key) if len(key) == 1 else _split(key)
    if len(name) == 1:
        name = name.lower() if modifiers else name
        if not name.isalnum():
            full = unicodedata.name(name, "").lower().replace("-", "_").replace(" ", "_")
            name = _SHORT_NAMES.get(full, full)
    else:
        name = name.lower()
    return "+".join([*sorted(part for part in modifiers.lower().split("+") if part), name])


def key_label(key: str) -> str:
    """A key as people read it: "^x", "F1", "pgup", "/"."""
    modifiers, name = _split(key)
    if re.fullmatch(r"f\d+", name):
        name = name.upper()
    elif name not in NAMED and len(name) > 1:
        name = _character(name)
    name = _SHOWN.get(name, name)
    if modifiers == "ctrl":
        return f"^{name}"
    return f"{modifiers}+{name}" if modifiers else name


def _checked(key: str, action: Action, source: str) -> str:
    """`key` by its name, if it can work for `action`."""
    name = key_name(key)
    *modifiers, last = name.split("+")
    where = f'{source}: keys."{action.id}" = "{key.strip()}"'
    if not _is_key(last) or any(part not in MODIFIERS for part in modifiers):
        raise ConfigError(f"{where}: there is no such key; `localkv keys` shows what a key is called")
    if name in TWINS:
        raise ConfigError(f"{where}: many terminals send the same for {TWINS[name]}; take another key")
    if action.place in WRITING and not modifiers and (last not in NAMED or last in {"space", "tab"}):
        raise ConfigError(f"{where}: that key is needed to write with; take one with ctrl, or F1 to F12")
    return name


def _split(key: str) -> tuple[str, str]:
    """Modifiers and the key itself."""
    modifiers, _, name = key.rpartition("+")
    return modifiers, name


def _is_key(name: str) -> bool:
    return name in NAMED or (len(name) == 1 and name.isalnum()) or len(_character(name)) == 1


def _character(name: str) -> str:
    """The character called `name`; `name` itself if there is none."""
    long = next((full for full, short in _SHORT_NAMES.items() if short == name), name)
    for spelled in (long.replace("_", " "), long.replace("_", "-")):
        try:
            return unicodedata.lookup(spelled)
        except KeyError:
            continue
    return name


def _over_defaults(asked: Mapping[str, tuple[str, ...]], actions: Sequence[Action]) -> Keymap:
    """What was asked for, and the defaults as far as they are not in its way."""
    wanted = [(action, key) for action in actions for key in asked.get(action.id, ())]
    keys = dict(asked)
    notes = []
    for action in actions:
        if action.id in asked:
            continue
        left = []
        for key in (key for key in action.keys.split(",") if key):
            taker = next((other for other, theirs in wanted if theirs == key and _together(action, other)), None)
            if taker is None:
                left.append(key)
            else:
                notes.append(f'{key} {_where(action, taker)} is "{taker.id}" now and no longer "{action.id}"')
        keys[action.id] = tuple(left)
    return Keymap(keys, tuple(notes))


def _clashes(actions: Sequence[Action], keys: Mapping[str, tuple[str, ...]]) -> list[tuple[Action, Action, str]]:
    """Pairs of actions that want one key where both would act."""
    return [
        (one, other, key)
        for at, one in enumerate(actions)
        for other in actions[at + 1 :]
        for key in keys[one.id]
        if key in keys[other.id] and _together(one, other)
    ]


def clashes(keymap: Keymap, actions: Sequence[Action] = ACTIONS) -> list[tuple[Action, Action, str]]:
    """Pairs of actions that have the same key where both would act; none in a keymap that `resolve` made."""
    return _clashes(actions, {action.id: keymap.of(action) for action in actions})


def _together(one: Action, other: Action) -> bool:
    if any(one.place in places and other.place in places for places in LIVE):
        return True
    return any(a.id in ALWAYS and b.place in OVER_THE_CHAT for a, b in ((one, other), (other, one)))


def _where(one: Action, other: Action) -> str:
    place = one.place if one.place != "anywhere" else other.place
    return PLACES[place][0].lower() + PLACES[place][1:] if place != "composer" else "while writing"


DEFAULT_KEYMAP = resolve({})
