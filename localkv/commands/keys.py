"""`localkv keys`: what each key does, with the ids for the section [keys] of the settings."""

from localkv.commands.actions import ACTIONS, PLACES
from localkv.commands.keymap import Keymap, key_label, resolve
from localkv.commands.output import print_json, print_lines, print_table
from localkv.commands.setup import Setup


def keymap_of(setup: Setup) -> Keymap:
    """The keys in force. Raises ConfigError."""
    return resolve(setup.load().keys, str(setup.config_file))


def list_keys(setup: Setup, *, as_json: bool) -> None:
    """Print every action: its id, its keys now, its slash command, where it acts and what it does. Raises ConfigError."""
    keymap = keymap_of(setup)
    if as_json:
        print_json({"actions": _documents(keymap), "notes": list(keymap.notes)})
        return
    rows = [
        (
            action.id,
            ",".join(keymap.of(action)) or "-",
            f"/{action.slash}" if action.slash else "-",
            PLACES[action.place].lower(),
            action.help,
        )
        for action in ACTIONS
    ]
    print_table(rows, ("ID", "KEYS", "COMMAND", "WHERE", "WHAT IT DOES"))
    print_lines(keymap.notes)


def meaning(key: str, keymap: Keymap) -> str:
    """What `key`, by its name, does: each action with its place."""
    found = [f"{action.id}, {PLACES[action.place].lower()}: {action.help}" for action in keymap.bound(key)]
    return "; ".join(found) or "bound to nothing"


def _documents(keymap: Keymap) -> list[dict[str, object]]:
    return [
        {
            "id": action.id,
            "keys": list(keymap.of(action)),
            "shown": [key_label(key) for key in keymap.of(action)],
            "default": [key for key in action.keys.split(",") if key],
            "command": action.usage if action.slash else "",
            "place": action.place,
            "help": action.help,
        }
        for action in ACTIONS
    ]
