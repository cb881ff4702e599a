"""All keys, once: bindings, footer and help are made from this table.

ctrl+i, ctrl+m, ctrl+h and ctrl+[ are Tab, Enter, Backspace and Esc in many terminals and so are never bound. ctrl+j is the
newline that works everywhere. The composer keeps the readline meaning of ctrl+a, e, k, u, w. `id` is the name of a key for
configuration; it never changes.

Nothing is bound with priority: such keys overtake characters typed before them that are still on their way to the composer,
so that Enter would send a message without its last letters.
"""

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Place = Literal["anywhere", "composer", "list", "text"]


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that keys do. `label` is its word in the footer; empty keeps it out of there."""

    id: str
    keys: str
    action: str
    help: str
    label: str = ""
    place: Place = "anywhere"
    shown: str = ""
    """How the key is written; by default the first of `keys`."""

    @property
    def name(self) -> str:
        return self.shown or self.keys.split(",")[0]


KEYS = (
    Key("send", "enter", "send", "send the message", "send", "composer"),
    Key(
        "newline", "ctrl+j,shift+enter,alt+enter", "newline", "start a new line (also shift+enter, alt+enter)",
        "newline", "composer", "^j",
    ),
    Key("history", "up", "", "on the first row: earlier questions; down comes back", "", "composer"),
    Key("page.up", "pageup", "page(-1)", "scroll the conversation up", "", "composer", "pgup"),
    Key("page.down", "pagedown", "page(1)", "scroll the conversation down", "", "composer", "pgdn"),
    Key("cancel", "escape", "cancel", "stop the answer; else close what is open, else go to the composer", "stop", shown="esc"),
    Key("help", "f1", "help", "show all keys and commands", "help", shown="F1"),
    Key("quit", "ctrl+q", "quit", "save and leave", "quit", shown="^q"),
    Key("session.new", "ctrl+n", "new", "start a new conversation", "new", shown="^n"),
    Key("session.switch", "ctrl+o", "find", "find a conversation by its title", "find", shown="^o"),
    Key("sidebar", "ctrl+b", "sidebar", "show or hide the list of conversations", "list", shown="^b"),
    Key("panel", "ctrl+t", "panel", "show or hide the cache panel", "cache", shown="^t"),
    Key("session.rename", "f2", "rename", "rename the conversation", shown="F2"),
    Key("session.next", "ctrl+pagedown", "step(1)", "open the next conversation of the list", shown="^pgdn"),
    Key("session.previous", "ctrl+pageup", "step(-1)", "open the previous conversation of the list", shown="^pgup"),
    Key("continue", "f5", "continue", "go on with an answer that was cut or stopped", shown="F5"),
    Key("retry", "ctrl+r", "retry", "answer the last question again; the old answer is kept", shown="^r"),
    Key("copy", "ctrl+c", "copy_or_stop", "copy what is selected; else stop the answer", shown="^c"),
    Key("copy.answer", "f6", "copy_answer", "copy the newest answer", shown="F6"),
    Key("latest", "ctrl+l", "latest", "go to the newest text and follow it", shown="^l"),
    Key("pane.next", "f8", "next_pane", "go to the next pane (also tab)", shown="F8"),
    Key("text.up", "up", "scroll_up", "one row up", "", "text"),
    Key("text.down", "down", "scroll_down", "one row down", "", "text"),
    Key("text.page.up", "pageup", "page_up", "one screen up", "", "text", "pgup"),
    Key("text.page.down", "pagedown", "page_down", "one screen down", "", "text", "pgdn"),
    Key("text.home", "home", "scroll_home", "the beginning", "", "text"),
    Key("text.end", "end", "scroll_end", "the end", "", "text"),
    Key("open", "enter", "open", "open the conversation", "open", "list"),
    Key("filter", "slash", "filter", "show only titles with these words; esc shows all", "filter", "list", "/"),
    Key("rename", "r", "rename_row", "rename it", "rename", "list"),
    Key("delete", "d,delete", "delete_row", "move it to the trash", "delete", "list"),
    Key("undo", "u,ctrl+z", "undo", "bring back what was deleted last", "undo", "list"),
)  # fmt: skip


def bindings(*places: Place) -> list[BindingType]:
    """The bindings of some places."""
    return [
        Binding(
            key.keys,
            key.action,
            key.label or key.help,
            show=bool(key.label),
            key_display=key.name,
            id=key.id,
        )
        for key in KEYS
        if key.place in places and key.action
    ]


def help_sections() -> dict[str, list[tuple[str, str]]]:
    """What F1 shows: for each place its keys and what they do."""
    titles = {"composer": "Writing", "anywhere": "Anywhere", "list": "In the list", "text": "In panes that scroll"}
    sections: dict[str, list[tuple[str, str]]] = {}
    for place, title in titles.items():
        lines = [(key.name, key.help) for key in KEYS if key.place == place]
        if lines:
            sections[title] = lines
    return sections
