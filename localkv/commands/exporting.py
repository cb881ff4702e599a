"""`localkv export` and /export: conversations as files, or on standard output.

A file is written beside its final name and renamed, so that none is half there; one that exists is not written over unless
that is asked for. Torch-free. Thread: main, or the screen's.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

from localkv.chat.export import FORMATS, to_json, to_markdown, to_text
from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation
from localkv.commands.output import for_stream
from localkv.errors import ConfigError, ExportRefused
from localkv.paths import expanded

Format = Literal["md", "json", "text"]


def run(
    store: ConversationStore,
    names: Sequence[str],
    *,
    everything: bool,
    form: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Write conversations to `output`, or to standard output. Raises ConfigError, UnknownConversation, ExportRefused."""
    if everything == bool(names):
        raise ConfigError("name the conversations to export, or give --all, not both")
    chosen = store.list() if everything else [store.by_name(name) for name in names]
    kind = form_of(form, output)
    if len(chosen) != 1 and kind != "json":
        raise ConfigError("several conversations go into one JSON file: add --format json")
    text = rendered(store, chosen, kind)
    if output is None:
        sys.stdout.write(for_stream(text, sys.stdout))
    else:
        write(output, text, force=force)


def export_open(store: ConversationStore, conversation: Conversation, path: str) -> Path:
    """Write one conversation to `path`, by default to a Markdown file of its name here; which file that is."""
    file = expanded(path) if path else Path(f"{_file_name(conversation.name)}.md")
    write(file, rendered(store, [conversation], form_of(None, file)), force=False)
    return file.absolute()


def form_of(form: str | None, output: Path | None) -> Format:
    """The format that was asked for, else the one that the file's name tells, else Markdown. Raises ConfigError."""
    if form is not None and form not in FORMATS:
        raise ConfigError(f'--format "{form}": there is no such format; there are md, json and text')
    if form is not None:
        return cast("Format", form)
    suffix = output.suffix.lower() if output is not None else ".md"
    return cast("Format", next((name for name, its in FORMATS.items() if its == suffix), "md"))


def rendered(store: ConversationStore, chosen: Sequence[Conversation], kind: Format) -> str:
    """The text of the export."""
    if kind == "json":
        documents = [to_json(each, store.messages(each.id), store.taken_away(each.id)) for each in chosen]
        return documents[0] if len(documents) == 1 else "[\n" + ",\n".join(each.rstrip("\n") for each in documents) + "\n]\n"
    path = store.path(chosen[0].id)
    return to_markdown(chosen[0], path) if kind == "md" else to_text(chosen[0], path)


def write(file: Path, text: str, *, force: bool) -> None:
    """Write `text` to `file`, whole or not at all; into what a link leads to, and into a pipe or a device. Raises ExportRefused."""
    try:
        _write(file, text, force=force)
    except (OSError, ValueError) as error:  # a ValueError for what no file can be called
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ExportRefused(f"{file} cannot be written ({reason}); give another place") from error


def _write(file: Path, text: str, *, force: bool) -> None:
    target = Path(os.path.realpath(file))
    is_stream = target.exists() and not target.is_file() and not target.is_dir()
    if target.exists() and not force and not is_stream:
        raise ExportRefused(f"{file} exists already; give another name, or --force to write over it")
    part = target if is_stream else target.with_name(f".{target.name}.part{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        if not is_stream:
            part.replace(target)
    except (OSError, ValueError):
        if not is_stream:
            with contextlib.suppress(OSError):
                part.unlink()
        raise


def _file_name(name: str) -> str:
    kept = "".join(character if character.isalnum() or character in "-_ ." else "_" for character in name)
    return kept.strip(" .") or "conversation"
