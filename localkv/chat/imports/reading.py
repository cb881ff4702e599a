"""The conversations of a file that another program exported, or localkv itself, one at a time.

A conversation that cannot be taken in comes as the sentence that says why, and the next one follows; a file that is no
export at all raises ImportRefused. Thread: any. Holds one conversation at a time, whatever the size of the file.
"""

import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

from localkv.chat.export import ExportedConversation
from localkv.chat.imports.chatgpt import ChatGPT
from localkv.chat.imports.incoming import Incoming
from localkv.chat.imports.llm import MAGIC, read_llm
from localkv.chat.imports.openwebui import OpenWebUI
from localkv.chat.imports.splitting import split_values
from localkv.errors import ImportRefused

_MEMBER = re.compile(r"(^|/)conversations[^/]*\.json$")
_PACKED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""What programs pack exports with. Others name the memory that unpacking takes themselves, and fail in ways of their own."""

Kind = type[ChatGPT] | type[OpenWebUI] | type[ExportedConversation]


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation, or why it is none."""

    found: Incoming | ImportRefused
    share: float
    """Of the file, with it: 0 to 1."""
    n_bytes: int
    """What it takes in the file, or about that."""


class _Look(msgspec.Struct):
    """What tells the formats apart; the values are left as they are."""

    format: Any = None
    mapping: msgspec.Raw = msgspec.Raw()
    chat: msgspec.Raw = msgspec.Raw()


def read_file(file: Path) -> Iterator[Item]:
    """The conversations in `file`. Raises ImportRefused that names the file."""
    try:
        with _open(file) as stream:
            begins = stream.read(len(MAGIC))
            stream.seek(0)
            if begins == MAGIC:
                for incoming, share in read_llm(file):
                    yield Item(incoming, share, sum(len(node.text) for node in incoming.nodes))
                return
            if begins.startswith(b"PK\x03\x04"):
                yield from _zipped(stream)
                return
            yield from _values(stream, os.fstat(stream.fileno()).st_size)
    except ImportRefused as error:
        raise ImportRefused(f"{file}: {error}") from error
    except OSError as error:
        raise ImportRefused(f"{file}: cannot be read ({error.strerror or error})") from error


def _values(stream: IO[bytes], size: int, before: int = 0, total: int = 0) -> Iterator[Item]:
    """The conversations in a stream of `size` bytes, which are read after `before` of `total`."""
    number = 0
    for number, value in enumerate(split_values(stream), start=1):
        yield Item(_read(value, number), min(1.0, (before + stream.tell()) / max(1, total or size)), len(value))
    if not number:
        raise ImportRefused("there are no conversations in it")


def _zipped(stream: BinaryIO) -> Iterator[Item]:
    """The conversations in an archive as it is downloaded; unpacked on the way, nothing of it is written."""
    try:
        with zipfile.ZipFile(stream) as archive:
            members = sorted(
                (each for each in archive.infolist() if _MEMBER.search(each.filename)), key=lambda each: each.filename
            )
            if not members:
                raise ImportRefused("it is an archive without conversations.json; unpack it and import what is in it")
            if not {each.compress_type for each in members} <= _PACKED:
                raise ImportRefused(
                    "it is an archive that is packed in a way not known here; unpack it and import what is in it"
                )
            total, before = sum(each.file_size for each in members), 0
            for member in members:
                with archive.open(member) as inner:
                    yield from _values(inner, member.file_size, before, total)
                before += member.file_size
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise ImportRefused(f"the archive cannot be unpacked ({error})") from error


def _open(file: Path) -> BinaryIO:
    """Without O_NONBLOCK opening a pipe that nobody writes to would wait for ever."""
    stream = os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise ImportRefused("it is no plain file")
    return stream


def _read(value: bytes, number: int) -> Incoming | ImportRefused:
    try:
        return msgspec.json.decode(value, type=_kind(value)).incoming()
    except ImportRefused as error:
        return ImportRefused(f"conversation {number}: {error}")
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return ImportRefused(f"conversation {number}: it cannot be understood ({error})")


def _kind(value: bytes) -> Kind:
    look = msgspec.json.decode(value, type=_Look)
    if look.format == "localkv-conversation":
        return ExportedConversation
    if bytes(look.mapping):
        return ChatGPT
    if bytes(look.chat):
        return OpenWebUI
    raise ImportRefused("it is in no format that is known here: ChatGPT, Open WebUI, localkv, or the logs.db of llm")
