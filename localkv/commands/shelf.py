"""What the commands about conversations share: the open store, one JSON document, and failures as a sentence.

Torch-free. Thread: main. Exit codes: 2 for a name that is unknown, taken or unusable and for a search that is
not understood, 1 for a database that refuses. While
a long change of the schema runs, standard error says how far it is.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from localkv.chat.store import ConversationStore
from localkv.chat.visible import visible
from localkv.commands.output import ProgressLine, shown_on
from localkv.errors import (
    ConfigError,
    ConversationExists,
    LocalKVError,
    SearchRefused,
    UnknownConversation,
    UnusableName,
)
from localkv.paths import find_home
from localkv.units import format_count

WRONG_NAME = 2
REFUSED = 1
_WRONG = (UnknownConversation, ConversationExists, UnusableName, ConfigError, SearchRefused)

Name = Annotated[str, typer.Argument(help="The name of a conversation, as `localkv sessions list` shows it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@contextmanager
def open_store() -> Iterator[ConversationStore]:
    """The open store; failures end the command with a sentence on stderr."""
    with explained():
        home = find_home()
        home.prepare()
        bar = ProgressLine(sys.stderr)
        try:
            store = ConversationStore.open(home.database, home.backups, progress=shown_on(bar))
        finally:
            bar.end()
        try:
            yield store
            _complete_erasures(store)
        finally:
            store.close()


@contextmanager
def explained() -> Iterator[None]:
    """A failure inside ends the command with a sentence on stderr."""
    try:
        yield
    except LocalKVError as error:
        typer.echo(f"localkv: {visible(str(error))}", err=True)
        raise typer.Exit(WRONG_NAME if isinstance(error, _WRONG) else REFUSED) from error


def _complete_erasures(store: ConversationStore) -> None:
    """What this or an earlier process erased leaves the files; what keeps it from that is no failure of the command."""
    if problem := store.try_erasures():
        typer.echo(visible(problem), err=True)


def print_document(document: object) -> None:
    """One JSON document, in pure ASCII: that loses nothing, and no terminal obeys it."""
    typer.echo(json.dumps(document, ensure_ascii=True))


def counted(n: int, noun: str) -> str:
    """A number and its noun: "1 message", "2 messages"."""
    return f"{format_count(n)} {noun}" if n == 1 else f"{format_count(n)} {noun}s"
