"""`localkv sessions branches | branch | fork | prune | unprune | find`: branches of a saved conversation, and words in it.

Torch-free: reads and writes conversations.db. Thread: main. Messages are named by their id or the first characters of it, as
`branches` and `find` print them. Nothing here destroys anything. Commands/sessions.py takes these commands in.
"""

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from localkv.chat.thoughts import answer_of
from localkv.chat.tree import Conversation
from localkv.chat.visible import one_line
from localkv.commands.branches import describe_branch, first_words, fork_title, found_in
from localkv.commands.filing import called
from localkv.commands.shelf import AsJson, Name, open_store, print_document
from localkv.errors import ConfigError
from localkv.units import format_age

SHOWN_ID = 8
"""Characters of an id that are printed; where they mean two messages, more are asked for."""

AMessage = Annotated[str, typer.Argument(help="A message: its id, or the first characters of it.")]
Describe = Callable[[Conversation], dict[str, Any]]


def commands(describe: Describe) -> dict[str, Callable[..., None]]:
    """All commands of this module by name; `describe` says what --json says of a conversation."""

    def branch(name: Name, message: AMessage, as_json: AsJson = False) -> None:
        """Look at the branch of a message from now on, with what was last written below it."""
        with open_store() as store:
            known = store.by_name(name)
            leaf = store.look_at(store.find_message(known.id, message))
            last = store.message(leaf)
        if as_json:
            print_document(describe(known) | {"leaf": leaf})
        else:
            typer.echo(f"{called(known)} ends in {first_words(last)}")

    def fork(
        name: Name,
        at: Annotated[str | None, typer.Option("--at", metavar="MESSAGE", help="The last message that both share.")] = None,
        new: Annotated[str | None, typer.Option("--as", metavar="NAME", help="The name of the new conversation.")] = None,
        as_json: AsJson = False,
    ) -> None:
        """Begin a conversation that shares what was said up to a message, and its cached state."""
        with open_store() as store:
            known = store.by_name(name)
            message = known.leaf if at is None else store.find_message(known.id, at)
            if message is None:
                raise ConfigError(f"{called(known)} has no message to fork at")
            forked = store.fork(message, new or store.free_name(f"{known.name}-fork"), fork_title(known.title))
        if as_json:
            print_document(describe(forked) | {"forked_from": known.name, "forked_at": message})
        else:
            typer.echo(f'"{one_line(forked.name)}" goes on from {called(known)}.')

    return {"branches": branches, "branch": branch, "fork": fork, "prune": prune, "unprune": unprune, "find": find}


def branches(name: Name, as_json: AsJson = False) -> None:
    """Print every path through a conversation, the one last written first."""
    with open_store() as store:
        found = store.branches(store.by_name(name).id)
    if as_json:
        print_document([describe_branch(each) for each in found])
        return
    now = time.time()
    for each in found:
        words = one_line(answer_of(each.text)[:1000])[:60]
        mark = ">" if each.shown else " "
        typer.echo(
            f"{mark} {each.leaf[:SHOWN_ID]}  {each.n_messages:>5}  {format_age(now - each.created):>5}  {words}".rstrip()
        )
    if not found:
        typer.echo("nothing was said in this conversation yet")


def prune(name: Name, message: AMessage, as_json: AsJson = False) -> None:
    """Take a message and all below it away; `unprune` brings them back."""
    with open_store() as store:
        key = store.find_message(store.by_name(name).id, message)
        n_messages = store.take_away(key)
    if as_json:
        print_document({"message": key, "messages": n_messages})
    else:
        count = "1 message is" if n_messages == 1 else f"{n_messages:,} messages are"
        typer.echo(f'{count} taken away; `localkv sessions unprune "{one_line(name)}" {key[:SHOWN_ID]}` brings them back.')


def unprune(name: Name, message: AMessage, as_json: AsJson = False) -> None:
    """Bring back a message that was taken away, with all below it, and look at it."""
    with open_store() as store:
        key = store.find_message(store.by_name(name).id, message)
        leaf = store.bring_back(key)
        last = store.message(leaf)
    if as_json:
        print_document({"message": key, "leaf": leaf})
    else:
        typer.echo(f"It ends in {first_words(last)}")


def find(
    name: Name,
    words: Annotated[list[str], typer.Argument(help="What to look for, in this order.")],
    as_json: AsJson = False,
) -> None:
    """Print every place of a conversation that has these words, on the branch last looked at."""
    with open_store() as store:
        places = found_in(store.path(store.by_name(name).id), " ".join(words))
    if as_json:
        print_document(places)
        return
    for n, place in enumerate(places, start=1):
        typer.echo(f"{n}/{len(places)}  {place['message'][:SHOWN_ID]}  {place['text']}")
    if not places:
        typer.echo("No message has these words.")
