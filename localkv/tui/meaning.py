"""What keys mean at this moment: what esc leads out of, and the words that the last row has for keys.

One decision for both, so that the row never names what the key does not do. Reads widgets and changes nothing until `go` is
called. Thread: the UI's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localkv.chat.attachments import split_files
from localkv.chat.thoughts import split_thought
from localkv.commands.order import Place
from localkv.tui.pages import Entry

if TYPE_CHECKING:
    from localkv.tui.screen import ChatScreen

NEXT_PLACE: Mapping[Place, str] = {"list": "archive", "archive": "trash", "trash": "list"}


@dataclass(frozen=True, slots=True)
class Way:
    """What esc does, in one word, and doing it."""

    word: str
    go: Callable[[], object]


def way_out(screen: "ChatScreen") -> Way | None:
    """What esc does now; None where there is nothing to leave or to stop."""
    way = _of_the_list(screen)
    if way is None and _is_in_find(screen):
        way = Way("close", screen.leave_find)
    if way is None and screen.has_overlay:
        way = Way("close", screen.leave_overlays)
    if way is None and screen.acts.editing is not None:
        way = Way("leave it", screen.leave_message)
    if way is None and screen.focused is screen.transcript and screen.transcript.chosen is not None:
        way = Way("back", screen.leave_message)
    run = screen.stage.runs.of(screen.desk.key)
    if way is None and run is not None and not run.over:
        way = Way("stop", screen.stage.stop)
    if way is None and screen.finds:
        way = Way("close", screen.leave_find)
    if way is None and screen.focused is not screen.composer:
        way = Way("back", screen.composer.focus)
    return way


def _of_the_list(screen: "ChatScreen") -> Way | None:
    sessions = screen.sessions
    if screen.filter.has_class("-open") and screen.focused in {screen.filter, sessions}:
        return Way("show all", screen.leave_filter)
    if screen.focused is not sessions:
        return None
    if sessions.marked:
        return Way("unmark", sessions.unmark)
    return Way("back", lambda: sessions.go_to("list")) if sessions.place != "list" else None


def _is_in_find(screen: "ChatScreen") -> bool:
    """Whether the focus is where words to look for are written: esc is heard there first."""
    return screen.focused is not None and any(node.id == "find" for node in screen.focused.ancestors_with_self)


def words(screen: "ChatScreen") -> Mapping[str, str]:
    """By id of an action, its word in the last row where that is another one now; an empty one leaves it out."""
    way, place, entry = way_out(screen), screen.sessions.place, screen.transcript.chosen
    found = {"cancel": way.word if way is not None else "", "place": NEXT_PLACE[place]}
    if place == "trash":
        found |= {"delete": "remove", "undo": "bring back"}
    return found if entry is None else {**found, **_nothing_to_do(entry)}


def _nothing_to_do(entry: Entry) -> Mapping[str, str]:
    """Keys that do nothing to this message are left out."""
    folds = split_thought(entry.text) is not None if entry.role == "assistant" else bool(split_files(entry.text)[0])
    has_code = any(sign in entry.text for sign in ("```", "~~~", "\n    "))
    does = {"message.fold": folds, "message.code": has_code, "version.next": bool(entry.versions)}
    return dict.fromkeys((name for name, can in does.items() if not can), "")
