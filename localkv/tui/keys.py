"""Bindings of widgets, made from the table of actions and a keymap, and the keys as help shows them.

Nothing is bound with priority: such keys overtake characters typed before them that are still on their way to the composer,
so that Enter would send a message without its last letters.

Panes of the chat have the keys of whole places, and `rebind` gives them others. A screen over the chat has a few actions of its own
choice (`own`), some of which do there what its name says: "cancel" and the key that opened it close it. It takes the keymap of the
chat below when it is mounted (`follow`).
"""

import re

from textual.app import App
from textual.binding import Binding, BindingsMap, BindingType
from textual.dom import DOMNode

from localkv.commands.actions import ACTIONS, PLACES, Action, Place
from localkv.commands.keymap import DEFAULT_KEYMAP, Keymap, key_label


def bindings(*places: Place, keymap: Keymap = DEFAULT_KEYMAP) -> list[BindingType]:
    """The bindings of some places."""
    return [
        Binding(
            key,
            action.act,
            action.label or action.help,
            show=bool(action.label) and not index,
            key_display=key_label(key),
            id=action.id,
        )
        for action in ACTIONS
        if action.place in places and action.act
        for index, key in enumerate(keymap.of(action))
    ]


def rebind(node: DOMNode, keymap: Keymap) -> None:
    """Give `node` the keys of `keymap` at the places whose keys it has by default; keys that are no actions' stay."""
    found = node._bindings.key_to_bindings
    acts = {(binding.id, binding.action) for each in found.values() for binding in each}
    places: set[Place] = {action.place for action in ACTIONS if (action.id, action.act) in acts}
    if not places:
        return
    own = BindingsMap(bindings(*places, keymap=keymap))
    known = {action.id for action in ACTIONS}
    rest = {key: left for key, each in found.items() if (left := [one for one in each if one.id not in known])}
    node._bindings = BindingsMap.merge([own, BindingsMap.from_keys(rest)])


def own(*acts: str | tuple[str, str] | tuple[str, str, str], keymap: Keymap = DEFAULT_KEYMAP) -> list[BindingType]:
    """The bindings of single actions: by id; with what they run here, if that is something else; with their word in the footer."""
    by_id = {action.id: action for action in ACTIONS}
    found: list[BindingType] = []
    for each in acts:
        name, act, label = (each, "", "") if isinstance(each, str) else each if len(each) == 3 else (*each, "")
        action = by_id[name]
        word = label or ("" if act else action.label)
        found += [
            Binding(key, act or action.act, word or action.help, bool(word) and not index, key_label(key), id=name)
            for index, key in enumerate(keymap.of(action))
        ]
    return found


def follow(node: DOMNode, keymap: Keymap) -> None:
    """Give the single actions of `node` the keys of `keymap`. What can be left can always be left, with esc if nothing else does it."""
    found = [binding for each in node._bindings.key_to_bindings.values() for binding in each]
    known: dict[tuple[str | None, str], Binding] = {}
    for binding in found:
        if binding.id in keymap.keys and (binding.show or (binding.id, binding.action) not in known):
            known[binding.id, binding.action] = binding
    fresh = [
        Binding(key, each.action, each.description, each.show and not index, key_label(key), id=each.id)
        for each in known.values()
        for index, key in enumerate(keymap.keys[each.id or ""])
    ]
    leaving = next((each.action for each in found if each.id == "cancel"), "")
    if leaving and not any(each.action == leaving or each.key == "escape" for each in fresh):
        fresh.append(Binding("escape", leaving, "close", id="cancel"))
    node._bindings = BindingsMap([*fresh, *(each for each in found if each.id not in keymap.keys)])


def keymap_of(app: App[object]) -> Keymap:
    """The keys of the chat that lies below all screens of `app`."""
    found = (getattr(screen, "keymap", None) for screen in app.screen_stack)
    return next((keymap for keymap in found if isinstance(keymap, Keymap)), DEFAULT_KEYMAP)


def with_keys(text: str, keymap: Keymap) -> str:
    """`text` with the key of an action in the place of its [id]."""

    def label(found: re.Match[str]) -> str:
        keys = keymap.keys[found[1]] or (("escape",) if found[1] == "cancel" else ())
        return key_label(keys[0]) if keys else "(no key)"

    return re.sub(r"\[([a-z.]+)\]", label, text)


def help_sections(keymap: Keymap = DEFAULT_KEYMAP) -> dict[str, list[tuple[str, str]]]:
    """What F1 shows: for each place its keys and what they do."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for place, title in PLACES.items():
        lines = [_line(action, keymap) for action in ACTIONS if action.place == place and keymap.of(action)]
        if lines:
            sections[title] = lines
    return sections


def _line(action: Action, keymap: Keymap) -> tuple[str, str]:
    first, *others = (key_label(key) for key in keymap.of(action))
    return first, action.help + (f" (also {', '.join(others)})" if others else "")
