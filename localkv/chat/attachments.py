"""Text files inside messages: read and checked once, and from then on part of the message's text, in its turn.

A message with files has this form, which people can write by hand, too; the words come last:

    File: src/main.rs
    ```rust
    fn main() {}
    ```

    Why does this not compile?

The fence is longer than any run of backticks in the file, so that it ends where the file ends. Changing the file later does
not change the message: what the model has read stays what it has read. Thread: any.
"""

import difflib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localkv.chat.visible import one_line
from localkv.errors import UnusableFile
from localkv.paths import expanded
from localkv.units import format_bytes

MAX_BYTES = 1 << 20
"""About 250,000 tokens of English: more than most contexts hold."""

_BINARY_SAMPLE = 8192
_TICKS = re.compile("`+")
_HEAD = re.compile(r"File: ([^\n]+)\n(`{3,})([^`\n]*)\n")
_LANGUAGES = {
    "c": "c", "cc": "cpp", "cpp": "cpp", "css": "css", "go": "go", "h": "c", "hpp": "cpp", "html": "html", "java": "java",
    "js": "javascript", "json": "json", "lua": "lua", "md": "markdown", "php": "php", "py": "python", "rb": "ruby", "rs": "rust",
    "sh": "bash", "sql": "sql", "toml": "toml", "ts": "typescript", "xml": "xml", "yaml": "yaml", "yml": "yaml",
}  # fmt: skip
"""Suffix -> the name of the language after the fence; other suffixes are written as they are, if they are words."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file as it was when it was read."""

    name: str
    """As the person gave it; one line."""
    text: str
    """Without the newline that ends its last line."""

    @property
    def size(self) -> str:
        """Its size in words: "1.2 KiB"."""
        return format_bytes(len(self.text.encode("utf-8", "replace")))


def read_attachment(path: str, base: Path | None = None) -> Attachment:
    """The text of the file `path`; relative ones are looked for in `base`, or where the program was started.

    Raises UnusableFile for what is not there, no plain file, too large, or not text.
    """
    file = (base or Path.cwd()) / expanded(path)
    try:
        # Without O_NONBLOCK opening a pipe that nobody writes to would wait for ever.
        with os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnusableFile(path, "is no plain file; attach a text file")
            if status.st_size > MAX_BYTES:
                raise _too_large(path, status.st_size)
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise UnusableFile(path, "is not there" + _nearest(file)) from error
    except IsADirectoryError as error:
        raise UnusableFile(path, "is a folder; attach the files in it one by one") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnusableFile(path, f"cannot be read: {reason}") from error
    if len(data) > MAX_BYTES:
        raise _too_large(path, len(data))
    return Attachment(one_line(path), _decode(path, data))


def with_files(files: Iterable[Attachment], words: str) -> str:
    """The message that asks `words` about `files`."""
    return "".join(f"{_block(file)}\n\n" for file in files) + words


def split_files(message: str) -> tuple[list[Attachment], str]:
    """The files and the words of a message; `with_files` of them is the message again."""
    files: list[Attachment] = []
    while (found := _first_file(message)) is not None:
        files.append(found)
        message = message[len(_block(found)) + 2 :]
    return files, message


def _first_file(message: str) -> Attachment | None:
    head = _HEAD.match(message)
    if head is None:
        return None
    end = message.find(f"\n{head[2]}\n\n", head.end() - 1)
    if end < 0:
        return None
    found = Attachment(head[1], message[head.end() : end])
    # Only what `with_files` would write the same way is a file: anything else stays words, to the last character.
    return found if message.startswith(f"{_block(found)}\n\n") else None


def _block(file: Attachment) -> str:
    longest = max((len(run) for run in _TICKS.findall(file.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"File: {file.name}\n{fence}{_language(file.name)}\n{file.text}\n{fence}"


def _language(name: str) -> str:
    suffix = Path(name).suffix.removeprefix(".").lower()
    return _LANGUAGES.get(suffix, suffix if suffix.isascii() and suffix.isalnum() else "")


def _decode(path: str, data: bytes) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in data[:_BINARY_SAMPLE]:
        raise UnusableFile(path, "is not text (it has zero bytes); attach a text file")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnusableFile(
            path, f"is not text in UTF-8 (byte {error.start}); convert it first, or paste what matters"
        ) from error
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if not text.strip():
        raise UnusableFile(path, "is empty")
    return text


def _too_large(path: str, n_bytes: int) -> UnusableFile:
    limit = format_bytes(MAX_BYTES)
    return UnusableFile(
        path, f"is too large ({format_bytes(n_bytes)}; at most {limit}); attach or paste the part that matters"
    )


def _nearest(file: Path) -> str:
    try:
        names = [entry.name for entry in os.scandir(file.parent)]
    except OSError:
        return f"; nor is the folder {one_line(str(file.parent))}"
    near = difflib.get_close_matches(file.name, names, n=1)
    return f'; did you mean "{one_line(near[0])}"?' if near else ""
