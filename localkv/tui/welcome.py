"""What an empty conversation shows: what to do first; and the first time of all, what this machine can do. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from localkv.commands.introduction import DEMO, Introduction
from localkv.commands.keymap import DEFAULT_KEYMAP, Keymap, key_label
from localkv.tui.clean import harmless
from localkv.tui.rows import BLANK, Row, indent, row, wrap
from localkv.tui.theme import Palette

MODELS_SHOWN = 2
"""More would not fit into 24 rows; `localkv models pull starter` and README list all."""

HINTS = (
    (("session.new",), "another conversation"),
    (("session.switch",), "find a conversation"),
    (("sidebar", "panel"), "the list, the cache panel"),
    (("help",), "all keys and commands"),
    (("quit",), "save and leave"),
)
"""Ids of actions and what they lead to."""


@dataclass(slots=True)
class Welcome:
    """What an empty conversation is opened with: the keys in force, and the first time what is told then."""

    keymap: Keymap = DEFAULT_KEYMAP
    first: Introduction | None = None

    def maker(self, palette: Palette, system: str) -> Callable[[int], list[Row]]:
        """What makes the rows for a width."""
        return partial(welcome_rows, palette, system=system, keymap=self.keymap, first=self.first)


def welcome_rows(
    palette: Palette, width: int, system: str, keymap: Keymap = DEFAULT_KEYMAP, first: Introduction | None = None
) -> list[Row]:
    """A few words for an empty conversation, and its system prompt if it has one."""
    width = max(8, min(width, 72))
    if first is not None:
        return first_rows(palette, width, first, keymap)
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


def first_rows(palette: Palette, width: int, first: Introduction, keymap: Keymap) -> list[Row]:
    """What is told the first time, as low as it can be: the machine, the budgets, and which models are better than the demo."""
    keys = keymap.keys["help"]
    about = "Write a message and press Enter." + (f" {key_label(keys[0])} shows all keys." if keys else "")
    rows = [row([("localkv  ", palette.heading), (about, palette.text)]), BLANK, row([("This machine", palette.heading)])]
    rows += _pairs(palette, width, first.machine)
    rows += [row([("What caches may take; /config changes it", palette.heading)]), *_pairs(palette, width, first.budgets)]
    if not first.is_starter:
        return rows
    rows += [*wrap([(DEMO, palette.warning)], width), row([("Better ones for this machine:", palette.text)])]
    for line, remark in first.models[:MODELS_SHOWN]:
        rows += wrap([(line, palette.user), (f"   {remark}", palette.muted)], width)
    return rows


def _pairs(palette: Palette, width: int, pairs: Sequence[tuple[str, str]]) -> list[Row]:
    rows: list[Row] = []
    for name, text in pairs:
        head = [(f"{name:<15}", palette.muted)]
        rows += indent(wrap([(text, palette.text)], max(8, width - 15)), head, [(" " * 15, palette.muted)], copied=True)
    return rows
