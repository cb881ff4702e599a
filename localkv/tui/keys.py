"""Bindings of widgets, made from the table of actions and a keymap, and the keys as help shows them.

Nothing is bound with priority: such keys overtake characters typed before them that are still on their way to the composer,
so that Enter would send a message without its last letters.
"""

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
    ids = {binding.id for each in found.values() for binding in each}
    places: set[Place] = {action.place for action in ACTIONS if action.id in ids}
    if not places:
        return
    own = BindingsMap(bindings(*places, keymap=keymap))
    known = {action.id for action in ACTIONS}
    rest = {key: left for key, each in found.items() if (left := [one for one in each if one.id not in known])}
    node._bindings = BindingsMap.merge([own, BindingsMap.from_keys(rest)])


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
