"""What is done to a conversation of the list: pinned, tagged, archived, brought back from the trash, removed for good.

Between the list, which says what the person wants, and the store. Thread: the UI's. Imported when something is asked for.
"""

from typing import TYPE_CHECKING

from localkv.chat.tree import Conversation
from localkv.commands import filing
from localkv.commands.order import place_of
from localkv.errors import UnknownConversation
from localkv.tui.listing import to_item

if TYPE_CHECKING:
    from localkv.tui.shelf import Shelf


def perform(screen: "Shelf", wish: str, conversation: str) -> None:
    """Do what the list asks for. Raises LocalKVError."""
    match wish:
        case "pin":
            pin(screen, conversation)
        case "archive":
            archive(screen, conversation)
        case "tags":
            ask_tags(screen, conversation)
        case "undo":
            bring_back(screen, conversation)
        case _:
            erase(screen, conversation)


def pin(screen: "Shelf", conversation: str) -> None:
    """Keep it on top, or no longer."""
    _say(screen, filing.toggle_pin(screen.desk.store, _known(screen, conversation)), conversation)


def archive(screen: "Shelf", conversation: str) -> None:
    """Put it away, or back."""
    _say(screen, filing.toggle_archive(screen.desk.store, _known(screen, conversation)), conversation)


def tag(screen: "Shelf", conversation: str, words: str) -> None:
    """Add tags, or take them away."""
    _say(screen, filing.change_tags(screen.desk.store, _known(screen, conversation), words), conversation)


def ask_tags(screen: "Shelf", conversation: str) -> None:
    """Let the person write all tags of it."""
    from localkv.tui.dialogs import Line

    known = _known(screen, conversation)

    def done(answer: str | None) -> None:
        if answer is not None:
            screen.refuse(lambda: _set_tags(screen, conversation, answer))

    question = f"Tags of {filing.called(known)}, with spaces between"
    screen.app.push_screen(Line(question, " ".join(known.tags), empty=True), done)


def bring_back(screen: "Shelf", conversation: str) -> None:
    """Out of the trash, to where it was."""
    known = screen.desk.untrash(conversation)
    where = {"list": "in the list", "archive": "in the archive", "trash": "in the trash"}[place_of(known)]
    _say(screen, f"{filing.called(known)} is {where} again", conversation)


def erase(screen: "Shelf", conversation: str) -> None:
    """Ask whether it is to go for good, and let it."""
    from localkv.tui.erasing import ask

    ask(screen, conversation)


def show_trash(screen: "Shelf", name: str) -> None:
    """Show what is in the trash, or bring the conversation `name` back from it and open it."""
    if name:
        found = screen.desk.store.by_name(name)
        screen.open(found.id)
        return
    screen.show_list("trash")


def _set_tags(screen: "Shelf", conversation: str, words: str) -> None:
    screen.desk.store.set_tags(conversation, words.replace(",", " ").split())
    _say(screen, filing.change_tags(screen.desk.store, _known(screen, conversation), ""), conversation)


def _known(screen: "Shelf", conversation: str) -> Conversation:
    if not conversation:
        raise UnknownConversation("nothing was said in this conversation yet")
    return screen.desk.store.get(conversation)


def _say(screen: "Shelf", sentence: str, conversation: str) -> None:
    screen.sessions.change(to_item(screen.desk.reread(conversation)))
    screen.stage.show_facts()
    screen.say(sentence)
