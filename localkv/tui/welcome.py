"""What an empty conversation shows: what to do first. Pure."""

from localkv.commands.keymap import DEFAULT_KEYMAP, Keymap, key_label
from localkv.tui.clean import harmless
from localkv.tui.rows import BLANK, Row, row, wrap
from localkv.tui.theme import Palette

HINTS = (
    (("session.new",), "another conversation"),
    (("session.switch",), "find a conversation"),
    (("sidebar", "panel"), "the list, the cache panel"),
    (("help",), "all keys and commands"),
    (("quit",), "save and leave"),
)
"""Ids of actions and what they lead to."""


def welcome_rows(palette: Palette, width: int, system: str, keymap: Keymap = DEFAULT_KEYMAP) -> list[Row]:
    """A few words for an empty conversation, and its system prompt if it has one."""
    width = max(8, min(width, 72))
    about = (
        "Write a message and press Enter. What is said here is kept, and so is what the model computed for it: "
        "leave, come back, reboot; the conversation goes on where it was."
    )
    rows = [BLANK, row([("localkv", palette.heading)]), BLANK, *wrap([(about, palette.text)], width), BLANK]
    for ids, text in HINTS:
        key = " ".join(key_label(keymap.keys[each][0]) for each in ids if keymap.keys[each])
        rows.append(row([(f"{key:<8}", palette.user), (text, palette.muted)]))
    if system:
        rows += [
            BLANK,
            row([("System prompt", palette.muted)]),
            *wrap([(harmless(system).replace("\n", " "), palette.text)], width),
        ]
    return rows
