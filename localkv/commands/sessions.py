"""`localkv sessions list | show | rename | rm | empty-trash | restore`, and those of commands/put.py and forking.py: saved conversations, for people and, with --json, for programs.

Torch-free: reads and writes conversations.db; what is removed loses its cached state too, through the engine if one runs.
Thread: main. Text of conversations reaches a terminal only through `visible`; JSON is pure ASCII, which loses nothing and
which no terminal obeys. Exit codes: 2 for a name that is unknown, taken or unusable, 1 for a database that refuses.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.cells import cell_len

from localkv.chat.backups import list_aside, list_backups
from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation, Message
from localkv.chat.visible import one_line, visible
from localkv.commands import forking, put
from localkv.commands.order import ORDERS, Line, Order, Place, arranged, has_tags, place_of, titled
from localkv.commands.setup import Setup, find_setup
from localkv.commands.shelf import AsJson, Name, counted, explained, open_store, print_document
from localkv.config import Config
from localkv.errors import ConfigError, LocalKVError, StoreError
from localkv.kv.record import ID_BYTES
from localkv.paths import find_home
from localkv.service.caretaker import forget, logs_lost, logs_only_in
from localkv.service.protocol import TokenLog
from localkv.tiers.upkeep import Freed
from localkv.units import format_age, format_bytes, format_count

KEPT = "Backups of the last days still have its text; `localkv paths` says where they are."
KEPT_ASIDE = "What a restore put aside, beside the database, may still have it too, until seven backups are newer."

_SPEAKERS = {"system": "System", "user": "You", "assistant": "Answer"}
_ENDINGS = {"streaming": "still being written", "stopped": "stopped", "cut": "cut by a crash", "failed": "failed"}

app = typer.Typer(
    name="sessions", help="Saved conversations.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command("list")
def list_sessions(
    as_json: AsJson = False,
    everything: Annotated[bool, typer.Option("--all", help="Also those in the archive and in the trash.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Only those in the archive.")] = False,
    trash: Annotated[bool, typer.Option("--trash", help="Only those in the trash.")] = False,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Only those with this tag; may be repeated.")] = None,
    sort: Annotated[str, typer.Option("--sort", help="newest, name or size (in tokens).")] = "newest",
) -> None:
    """Print all conversations outside archive and trash, the pinned ones first."""
    place: Place = "trash" if trash else "archive" if archived else "list"
    with open_store() as store:
        order = chosen_order(sort)
        sizes = store.sizes()
        known = store.list(include_trashed=True)
    found = [each for each in known if everything or place_of(each) == place]
    lines = arranged([Line(each, sizes.get(each.id, 0)) for each in found if has_tags(each, tag or ())], order)
    if as_json:
        print_document([describe(each.conversation) | {"tokens": each.tokens} for each in lines])
    elif lines:
        typer.echo(render_list([each.conversation for each in lines], time.time()))
    else:
        typer.echo(_none_of(known) if place == "list" and not tag else "none")


@app.command("show")
def show_session(name: Name, as_json: AsJson = False) -> None:
    """Print one conversation, from the first message to the last on the branch last looked at."""
    with open_store() as store:
        conversation = store.by_name(name)
        path = store.path(conversation.id)
    if as_json:
        print_document(describe(conversation) | {"path": [describe_message(message) for message in path]})
    else:
        typer.echo(render_conversation(conversation, path))


@app.command("rename")
def rename_session(
    old: Annotated[str, typer.Argument(help="Its name now.")],
    new: Annotated[str, typer.Argument(help="The name that it gets.")],
    as_json: AsJson = False,
) -> None:
    """Give a conversation another name; its title stays."""
    with open_store() as store:
        key = store.by_name(old).id
        store.rename(key, name=new)
        conversation = store.get(key)
    if as_json:
        print_document(describe(conversation))
    else:
        typer.echo(f'"{one_line(old)}" is called "{one_line(new)}" now.')


@app.command("rm")
def remove_session(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Remove a conversation and all its branches, for good, with the cached state that is its alone."""
    with open_store() as store:
        setup, config = _settings(context)
        conversation = store.by_name(name)
        freed = _erase(store, setup, config, conversation)
    if as_json:
        print_document(describe(conversation) | {"removed_records": freed.records, "freed_bytes": freed.n_bytes})
    else:
        typer.echo(f'"{one_line(name)}" is removed ({counted(conversation.n_messages, "message")}, {_freed(freed)}).')
        if list_backups(find_home().backups, find_home().database):
            typer.echo(KEPT)
        if list_aside(find_home().database):
            typer.echo(KEPT_ASIDE)


@app.command("empty-trash")
def empty_trash(context: typer.Context, as_json: AsJson = False) -> None:
    """Remove all conversations in the trash, and branches that were taken away, for good."""
    with open_store() as store:
        setup, config = _settings(context)
        trashed = [each for each in store.list(include_trashed=True) if each.trashed is not None]
        freed = _erase(store, setup, config, *trashed) if trashed else Freed()
        n_messages, freed_too = _erase_taken(store, setup, config)
        freed += freed_too
    if as_json:
        removed: dict[str, Any] = {"removed": [describe(each) for each in trashed], "removed_messages": n_messages}
        print_document(removed | {"removed_records": freed.records, "freed_bytes": freed.n_bytes})
    else:
        of_branches = f" and {counted(n_messages, 'message')} of branches" if n_messages else ""
        typer.echo(f"{counted(len(trashed), 'conversation')}{of_branches} removed ({_freed(freed)}).")


@app.command("restore")
def restore_sessions(
    backup: Annotated[
        str | None, typer.Argument(help="A backup, as --list shows it; the newest usable one if left out.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show all backups.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the conversations back as a backup has them; what is there now is kept beside."""
    from localkv.commands import restore as command

    with explained():
        home = find_home()
        home.prepare()
        done = command.show(home, as_json=as_json) if show else command.bring_back(home, backup, sure=yes, as_json=as_json)
    raise typer.Exit(done)


def _none_of(known: Sequence[Conversation]) -> str:
    """Why the list is empty, of all that there are."""
    if not known:
        return "There are no conversations yet; `localkv chat` starts one."
    places = Counter(place_of(each) for each in known)
    return f"none; {places['archive']:,} in the archive, {places['trash']:,} in the trash: --all shows them"


def _settings(context: typer.Context) -> tuple[Setup, Config]:
    """What the removal of cached state needs, read before anything is removed. Raises ConfigError."""
    setup: Setup = context.obj or find_setup()
    return setup, setup.load()


def _erase(store: ConversationStore, setup: Setup, config: Config, *conversations: Conversation) -> Freed:
    """Text first, then cached state: what stays if this is cut off can be found by `localkv gc`."""
    keys = [each.id for each in conversations]
    logs = logs_only_in(store, *keys)
    store.erase(*keys)
    return _forget(setup, config, logs)


def _erase_taken(store: ConversationStore, setup: Setup, config: Config) -> tuple[int, Freed]:
    """How many messages of branches that were taken away are gone now, and what of the cache."""
    before = store.token_logs()
    n_messages = store.erase_taken()
    if not n_messages:
        return 0, Freed()
    return n_messages, _forget(setup, config, logs_lost(before, store.token_logs()))


def _forget(setup: Setup, config: Config, logs: Sequence[TokenLog]) -> Freed:
    """What of the cache is gone. Raises StoreError, which says that the text is removed all the same."""
    try:
        return forget(setup.home, config, logs)
    except LocalKVError as error:
        raise StoreError(
            f"the text is removed, but not its cached state: {error}; `localkv gc` removes what is left"
        ) from error


def _freed(freed: Freed) -> str:
    return f"{counted(freed.records, 'cached record')}, {format_bytes(freed.n_bytes)}"


def chosen_order(name: str) -> Order:
    """The order called `name`. Raises ConfigError."""
    for order in ORDERS:
        if order == name:
            return order
    raise ConfigError(f'--sort "{name}": there is no such order; choose one of: {", ".join(ORDERS)}')


def describe(conversation: Conversation) -> dict[str, Any]:
    """What --json says of a conversation."""
    return {
        "session": conversation.name,
        "id": conversation.id,
        "title": conversation.title,
        "model": conversation.model.name,
        "messages": conversation.n_messages,
        "created": conversation.created,
        "updated": conversation.updated,
        "pinned": conversation.pinned,
        "trashed": conversation.trashed,
        "private": conversation.private,
        "tags": list(conversation.tags),
        "archived": conversation.archived,
        "waiting": len(conversation.queue),
    }


def describe_message(message: Message) -> dict[str, Any]:
    """What --json says of a message."""
    return {
        "id": message.id,
        "parent": message.parent,
        "role": message.role,
        "state": message.state,
        "text": message.text,
        "tokens": len(message.ids) // ID_BYTES,
        "created": message.created,
        "numbers": message.numbers,
    }


def render_list(conversations: Sequence[Conversation], now: float) -> str:
    """A table for people: name, messages, age, model, title."""
    heads = ("NAME", "MESSAGES", "AGE", "MODEL", "TITLE")
    return render_table(heads, [_cells(each, now) for each in conversations])


def render_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces between; the last one ends where its text ends."""
    table = [heads, *lines]
    widths = [max(cell_len(line[column]) for line in table) for column in range(len(heads) - 1)]
    return "\n".join(
        "  ".join(
            [cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=False)] + [line[-1]]
        ).rstrip()
        for line in table
    )


def render_conversation(conversation: Conversation, path: Sequence[Message]) -> str:
    """The messages of `path` for people."""
    title = one_line(conversation.title) or "no title yet"
    parts = [f"{one_line(conversation.name)}: {title} ({one_line(conversation.model.name)})"]
    parts += [f"{_speaker(message)}\n{visible(message.text).rstrip()}" for message in path]
    return "\n\n".join(parts)


def _cells(conversation: Conversation, now: float) -> tuple[str, ...]:
    return (
        one_line(conversation.name),
        format_count(conversation.n_messages),
        format_age(now - conversation.updated),
        one_line(conversation.model.name),
        titled(conversation),
    )


def _speaker(message: Message) -> str:
    ending = _ENDINGS.get(message.state)
    return f"{_SPEAKERS[message.role]}:" if ending is None else f"{_SPEAKERS[message.role]} ({ending}):"


for _name, _command in (put.commands(describe) | forking.commands(describe)).items():
    app.command(_name)(_command)
