"""What an empty conversation shows: what to do first. Pure."""

from localkv.tui.clean import harmless
from localkv.tui.rows import BLANK, Row, row, wrap
from localkv.tui.theme import Palette

HINTS = (
    ("^n", "another conversation"),
    ("^o", "find a conversation"),
    ("^b ^t", "the list, the cache panel"),
    ("F1", "all keys and commands"),
    ("^q", "save and leave"),
)


def welcome_rows(palette: Palette, width: int, system: str) -> list[Row]:
    """A few words for an empty conversation, and its system prompt if it has one."""
    width = max(8, min(width, 72))
    about = (
        "Write a message and press Enter. What is said here is kept, and so is what the model computed for it: "
        "leave, come back, reboot; the conversation goes on where it was."
    )
    rows = [BLANK, row([("localkv", palette.heading)]), BLANK, *wrap([(about, palette.text)], width), BLANK]
    for key, text in HINTS:
        rows.append(row([(f"{key:<8}", palette.user), (text, palette.muted)]))
    if system:
        rows += [
            BLANK,
            row([("System prompt", palette.muted)]),
            *wrap([(harmless(system).replace("\n", " "), palette.text)], width),
        ]
    return rows
