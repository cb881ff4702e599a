"""What can be written after a slash command, offered while it is written: themes, models, conversations, settings.

Each source is asked anew, so that what is offered is what is there. Knows no widgets but the screen it is made for. Thread: the
UI's.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from localkv.tui.clean import one_line
from localkv.tui.completion import Offer

if TYPE_CHECKING:
    from localkv.tui.app import LocalKVApp
    from localkv.tui.screen import ChatScreen

Source = Callable[[], Iterable[tuple[str, str, str]]]
"""What may be written, how it is shown, and what is said about it."""

OFFERED = 50


def argument_offers(text: str, sources: Mapping[str, Source]) -> list[Offer]:
    """What "/command WORDS" may become: what begins with the words, else what contains each of them; not what is whole already."""
    command, space, words = text.partition(" ")
    source = sources.get(command[1:]) if space and text.startswith("/") and "\n" not in text else None
    if source is None:
        return []
    known, wanted = list(source()), words.strip().casefold()
    found = [each for each in known if each[1].casefold().startswith(wanted) or each[0].casefold().startswith(wanted)]
    found = found or [each for each in known if all(word in f"{each[0]} {each[1]}".casefold() for word in wanted.split())]
    if wanted in {value.casefold() for value, _, _ in found}:
        return []
    return [Offer(shown, about, f"{command} {value}") for value, shown, about in found[:OFFERED]]


def sources_of(screen: "ChatScreen") -> Mapping[str, Source]:
    """By slash command, what the screen can offer after it."""
    return {
        "theme": lambda: _themes(screen),
        "model": lambda: _models(screen),
        "open": lambda: _conversations(screen),
        "set": lambda: _settings(screen),
    }


def _themes(screen: "ChatScreen") -> Iterable[tuple[str, str, str]]:
    app = cast("LocalKVApp", screen.app)
    return [(name, name, "in use" if name == app.theme else "") for name in sorted(app.themes)]


def _models(screen: "ChatScreen") -> Iterable[tuple[str, str, str]]:
    from localkv.models.reference import STARTER, cached_names

    used = screen.desk.model.name
    names = dict.fromkeys(map(one_line, (used, STARTER, *cached_names())))
    remarks = {STARTER: "the small demo"} | {used: "in use"}
    return [(name, name, remarks.get(name, "on this machine")) for name in names]


def _conversations(screen: "ChatScreen") -> Iterable[tuple[str, str, str]]:
    here = [item for item in screen.sessions.items if item.place != "trash" and item.id != screen.desk.key]
    return [(item.title, item.title, "archived" if item.place == "archive" else "") for item in here]


def _settings(screen: "ChatScreen") -> Iterable[tuple[str, str, str]]:
    from localkv.commands.sampling import LIMITS, show_setting

    sampling = screen.desk.sampling
    return [(key, key, f"{show_setting(sampling, key)}   {about}") for key, about in LIMITS.items()]
