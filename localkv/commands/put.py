"""`localkv sessions pin | unpin | tag | untag | archive | unarchive | trash | untrash | search`: order among conversations.

Torch-free: reads and writes conversations.db. Thread: main. Doing something twice changes nothing and is no failure.
Commands/sessions.py takes them in.
"""

import sys
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from localkv.chat.query import FILTERS_HELP
from localkv.chat.search import Hit
from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation
from localkv.commands.filing import NOTHING_FOUND, called, hit_lines
from localkv.commands.order import hashed
from localkv.commands.shelf import AsJson, Name, open_store, print_document

Tags = Annotated[list[str], typer.Argument(help="Words without spaces.")]
Say = Callable[[Conversation], str]
Describe = Callable[[Conversation], dict[str, Any]]

_BOLD = ("\x1b[1m", "\x1b[0m")


def commands(describe: Describe) -> dict[str, Callable[..., None]]:
    """All commands of this module by name; `describe` says what --json says of a conversation."""

    def change(name: str, do: Callable[[ConversationStore, Conversation], None], say: Say, *, as_json: bool) -> None:
        with open_store() as store:
            known = store.by_name(name)
            do(store, known)
            known = store.get(known.id)
        if as_json:
            print_document(describe(known))
        else:
            typer.echo(f"{called(known)} {say(known)}.")

    def pin(name: Name, as_json: AsJson = False) -> None:
        """Keep a conversation on top of the list, and its cache from being evicted first."""
        change(name, lambda store, each: store.set_pinned(each.id, True), lambda _: "is pinned", as_json=as_json)

    def unpin(name: Name, as_json: AsJson = False) -> None:
        """Let a pinned conversation go down the list again."""
        change(name, lambda store, each: store.set_pinned(each.id, False), lambda _: "is not pinned", as_json=as_json)

    def tag(name: Name, tags: Tags, as_json: AsJson = False) -> None:
        """Give a conversation tags beside those that it has."""
        change(name, lambda store, each: store.set_tags(each.id, [*each.tags, *tags]), _has_tags, as_json=as_json)

    def untag(name: Name, tags: Tags, as_json: AsJson = False) -> None:
        """Take tags away from a conversation."""
        gone = {tag.removeprefix("#").casefold() for tag in tags}
        change(
            name,
            lambda store, each: store.set_tags(each.id, [tag for tag in each.tags if tag not in gone]),
            _has_tags,
            as_json=as_json,
        )

    def archive(name: Name, as_json: AsJson = False) -> None:
        """Take a conversation out of the list; search still finds it."""
        change(name, lambda store, each: store.set_archived(each.id, True), lambda _: "is in the archive", as_json=as_json)

    def unarchive(name: Name, as_json: AsJson = False) -> None:
        """Bring a conversation back from the archive."""
        change(name, lambda store, each: store.set_archived(each.id, False), lambda _: "is in the list", as_json=as_json)

    def trash(name: Name, as_json: AsJson = False) -> None:
        """Move a conversation to the trash; `untrash` brings it back."""
        change(name, lambda store, each: store.trash(each.id), lambda _: "is in the trash", as_json=as_json)

    def untrash(name: Name, as_json: AsJson = False) -> None:
        """Bring a conversation back from the trash."""
        change(name, lambda store, each: store.untrash(each.id), lambda _: "is out of the trash", as_json=as_json)

    found = (pin, unpin, tag, untag, archive, unarchive, trash, untrash, search)
    return {each.__name__: each for each in found}


def search(
    text: Annotated[
        list[str], typer.Argument(help=f'Words, by their beginnings; in "quotes" as they stand. Filters: {FILTERS_HELP}.')
    ],
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many messages.")] = 20,
) -> None:
    """Find messages by their words, the newest first, in all conversations outside the trash; each once, however often it was copied."""
    with open_store() as store:
        hits = store.search(" ".join(text), limit)
    if as_json:
        print_document([describe_hit(hit) for hit in hits])
    elif hits:
        bold = _BOLD if sys.stdout.isatty() else ("", "")
        typer.echo("\n".join(hit_lines(hits, time.time(), bold=bold)))
    else:
        typer.echo(f"{NOTHING_FOUND.capitalize()}.")


def describe_hit(hit: Hit) -> dict[str, Any]:
    """What --json says of a message that was found."""
    return {
        "session": hit.name,
        "title": hit.title,
        "message": hit.message,
        "role": hit.role,
        "created": hit.created,
        "snippet": hit.snippet,
        "marks": [list(mark) for mark in hit.marks],
        "also_in": list(hit.also_in),
    }


def _has_tags(conversation: Conversation) -> str:
    return f"has the tags {hashed(conversation.tags)}" if conversation.tags else "has no tags"
