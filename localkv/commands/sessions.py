"""`localkv sessions list | show | rename | rm`: saved conversations, for people and, with --json, for programs.

Torch-free and engine-free: reads and writes conversations.db alone. Thread: main. Text of conversations reaches a terminal
only through `visible`; JSON is pure ASCII, which loses nothing and which no terminal obeys. Exit codes: 2 for a name that
is unknown, taken or unusable, 1 for a database that refuses.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.cells import cell_len

from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation, Message, visible
from localkv.errors import ConversationExists, LocalKVError, UnknownConversation, UnusableName
from localkv.paths import find_home
from localkv.units import format_age, format_count

WRONG_NAME = 2
REFUSED = 1
ID_BYTES = 4

_SPEAKERS = {"system": "System", "user": "You", "assistant": "Answer"}
_ENDINGS = {"streaming": "still being written", "stopped": "stopped", "cut": "cut by a crash", "failed": "failed"}

app = typer.Typer(name="sessions", help="Saved conversations.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of a conversation, as `localkv sessions list` shows it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_sessions(
    as_json: AsJson = False,
    everything: Annotated[bool, typer.Option("--all", help="Also those in the trash.")] = False,
) -> None:
    """Print all conversations, the one last spoken in first."""
    with _store() as store:
        conversations = store.list(include_trashed=everything)
    if as_json:
        _print_json([describe(each) for each in conversations])
    elif conversations:
        typer.echo(render_list(conversations, time.time()))
    else:
        typer.echo("There are no conversations yet; `localkv chat` starts one.")


@app.command("show")
def show_session(name: Name, as_json: AsJson = False) -> None:
    """Print one conversation, from the first message to the last on the branch last looked at."""
    with _store() as store:
        conversation = store.by_name(name)
        path = store.path(conversation.id)
    if as_json:
        _print_json(describe(conversation) | {"path": [describe_message(message) for message in path]})
    else:
        typer.echo(render_conversation(conversation, path))


@app.command("rename")
def rename_session(
    old: Annotated[str, typer.Argument(help="Its name now.")],
    new: Annotated[str, typer.Argument(help="The name that it gets.")],
    as_json: AsJson = False,
) -> None:
    """Give a conversation another name; its title stays."""
    with _store() as store:
        key = store.by_name(old).id
        store.rename(key, name=new)
        conversation = store.get(key)
    if as_json:
        _print_json(describe(conversation))
    else:
        typer.echo(f'"{one_line(old)}" is called "{one_line(new)}" now.')


@app.command("rm")
def remove_session(name: Name, as_json: AsJson = False) -> None:
    """Remove a conversation and all its branches, for good."""
    with _store() as store:
        conversation = store.by_name(name)
        store.erase(conversation.id)
    if as_json:
        _print_json(describe(conversation))
    else:
        typer.echo(f'"{one_line(name)}" is removed ({_count(conversation.n_messages, "message")}).')


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


def one_line(text: str) -> str:
    """`text` harmless and on one line."""
    return " ".join(visible(text).split())


def _cells(conversation: Conversation, now: float) -> tuple[str, ...]:
    title = one_line(conversation.title)
    return (
        one_line(conversation.name),
        format_count(conversation.n_messages),
        format_age(now - conversation.updated),
        one_line(conversation.model.name),
        title if conversation.trashed is None else f"{title} (in the trash)".lstrip(),
    )


def _speaker(message: Message) -> str:
    ending = _ENDINGS.get(message.state)
    return f"{_SPEAKERS[message.role]}:" if ending is None else f"{_SPEAKERS[message.role]} ({ending}):"


def _count(n: int, noun: str) -> str:
    return f"{format_count(n)} {noun}" if n == 1 else f"{format_count(n)} {noun}s"


def _print_json(document: object) -> None:
    typer.echo(json.dumps(document, ensure_ascii=True))


@contextmanager
def _store() -> Iterator[ConversationStore]:
    """The open store; failures end the command with a sentence on stderr."""
    try:
        home = find_home()
        home.prepare()
        store = ConversationStore.open(home.database, home.backups)
        try:
            yield store
        finally:
            store.close()
    except LocalKVError as error:
        typer.echo(visible(str(error)), err=True)
        wrong_name = isinstance(error, UnknownConversation | ConversationExists | UnusableName)
        raise typer.Exit(WRONG_NAME if wrong_name else REFUSED) from error
