"""What is done to a conversation of the list: pinned, tagged, archived, brought back from the trash, removed for good.

Between the list, which says what the person wants, and the store. Thread: the UI's. Imported when something is asked for.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from localkv.chat.tree import Conversation
from localkv.commands import filing
from localkv.commands.order import place_of
from localkv.errors import UnknownConversation
from localkv.tui.listing import to_item

if TYPE_CHECKING:
    from localkv.tui.shelf import Shelf


def perform(screen: "Shelf", wish: str, conversations: Sequence[str]) -> None:
    """Do what the list asks for. Raises LocalKVError."""
    match wish:
        case "pin":
            _each(screen, conversations, pin)
        case "archive":
            _each(screen, conversations, archive)
        case "tags":
            ask_tags(screen, conversations)
        case "undo":
            _each(screen, conversations, bring_back)
        case "delete" if screen.sessions.place != "trash":
            for conversation in conversations:
                screen.take_out(conversation)
            undo = screen.keyed("[undo]")
            screen.say(f"{len(conversations)} conversations are in the trash. {undo} brings them back, the last one first.")
            screen.stage.show_facts()
        case _:
            erase(screen, *conversations)


def _each(screen: "Shelf", conversations: Sequence[str], do: Callable[["Shelf", str], None]) -> None:
    for conversation in conversations:
        do(screen, conversation)
    screen.sessions.unmark()


def pin(screen: "Shelf", conversation: str) -> None:
    """Keep it on top, or no longer."""
    _say(screen, filing.toggle_pin(screen.desk.store, _known(screen, conversation)), conversation)


def archive(screen: "Shelf", conversation: str) -> None:
    """Put it away, or back."""
    _say(screen, filing.toggle_archive(screen.desk.store, _known(screen, conversation)), conversation)


def tag(screen: "Shelf", conversation: str, words: str) -> None:
    """Add tags, or take them away."""
    _say(screen, filing.change_tags(screen.desk.store, _known(screen, conversation), words), conversation)


def ask_tags(screen: "Shelf", conversations: Sequence[str]) -> None:
    """Let the person write all tags of one conversation, or those that several get beside their own."""
    from localkv.tui.dialogs import Line

    known = _known(screen, conversations[0])
    alone = len(conversations) == 1
    question = f"Tags of {filing.called(known)}" if alone else f"Tags that {len(conversations)} conversations get"

    def done(answer: str | None) -> None:
        if answer is not None:
            screen.refuse(lambda: _set_tags(screen, conversations, answer, keep=not alone))

    screen.app.push_screen(Line(f"{question}, with spaces between", " ".join(known.tags) if alone else "", empty=alone), done)


def bring_back(screen: "Shelf", conversation: str) -> None:
    """Out of the trash, to where it was."""
    known = screen.desk.untrash(conversation)
    where = {"list": "in the list", "archive": "in the archive", "trash": "in the trash"}[place_of(known)]
    _say(screen, f"{filing.called(known)} is {where} again", conversation)


def erase(screen: "Shelf", *conversations: str) -> None:
    """Ask whether they are to go for good, and let them."""
    from localkv.tui.erasing import ask

    ask(screen, conversations)


def show_trash(screen: "Shelf", name: str) -> None:
    """Show what is in the trash, or bring the conversation `name` back from it and open it."""
    if name:
        found = screen.desk.store.by_name(name)
        screen.open(found.id)
        return
    screen.show_list("trash")


def _set_tags(screen: "Shelf", conversations: Sequence[str], words: str, *, keep: bool) -> None:
    chosen = words.replace(",", " ").split()
    for conversation in conversations:
        known = _known(screen, conversation)
        screen.desk.store.set_tags(conversation, [*(known.tags if keep else ()), *chosen])
        _say(screen, filing.change_tags(screen.desk.store, known, ""), conversation)
    screen.sessions.unmark()


def _known(screen: "Shelf", conversation: str) -> Conversation:
    if not conversation:
        raise UnknownConversation("nothing was said in this conversation yet")
    return screen.desk.store.get(conversation)


def _say(screen: "Shelf", sentence: str, conversation: str) -> None:
    screen.sessions.change(to_item(screen.desk.reread(conversation)))
    screen.stage.show_facts()
    screen.say(sentence)
