"""Files named with "@" in what is being written: which word names one, and what it may become.

Reads folders, never files. Thread: the UI's; of a folder with very many files the first ones are looked at.
"""

import itertools
import os
import re
import stat

from localkv.paths import expanded
from localkv.tui.clean import one_line
from localkv.tui.completion import Offer
from localkv.units import format_bytes

LOOKED_AT = 2_000
"""Entries of a folder; more would be felt with each key."""

OFFERED = 50

_NAMED = re.compile(r'(?:^|(?<=\s))@(?:"(?P<quoted>[^"\n]*)"?|(?P<bare>[^\s"]*))$')


def named_file(text: str) -> tuple[int, str] | None:
    """Where the word that ends `text` begins, and the path it names; None if it names none."""
    match = _NAMED.search(text)
    if match is None:
        return None
    return match.start(), match["bare"] if match["quoted"] is None else match["quoted"]


def is_file(path: str) -> bool:
    """Whether there is such a file, links followed."""
    try:
        return expanded(path).is_file()
    except (OSError, ValueError):
        return False


def file_offers(text: str) -> list[Offer]:
    """What the path that ends `text` may become: entries that begin with its last part, else those that contain it."""
    found = named_file(text)
    if found is None:
        return []
    start, path = found
    folder, _, begun = path.rpartition("/")
    above = f"{folder}/" if folder or path.startswith("/") else ""
    try:
        with os.scandir(expanded(above or ".")) as entries:
            known = sorted(itertools.islice(entries, LOOKED_AT), key=lambda entry: entry.name.casefold())
    except (OSError, ValueError):
        return []
    known = [
        entry for entry in known if _is_writable(entry.name) and (begun.startswith(".") or not entry.name.startswith("."))
    ]
    word = begun.casefold()
    fits = [entry for entry in known if entry.name.casefold().startswith(word)]
    fits = fits or [entry for entry in known if word in entry.name.casefold()]
    return [offer for entry in fits[:OFFERED] if (offer := _offer(entry, above, text[:start])) is not None]


def _offer(entry: os.DirEntry[str], above: str, before: str) -> Offer | None:
    try:
        status = entry.stat()
    except OSError:
        return None  # a link that leads nowhere
    if stat.S_ISDIR(status.st_mode):
        return Offer(f"{entry.name}/", "folder", before + _word(f"{above}{entry.name}/", ends=False))
    if not stat.S_ISREG(status.st_mode):
        return None
    return Offer(entry.name, format_bytes(status.st_size), before + _word(above + entry.name, ends=True))


def _word(path: str, *, ends: bool) -> str:
    """`path` as it is written after "@"."""
    if not any(character.isspace() for character in path):
        return f"@{path}"
    return f'@"{path}"' if ends else f'@"{path}'


def _is_writable(name: str) -> bool:
    """Whether a name can be written as a word: one line, and no quotes."""
    return '"' not in name and one_line(name) == name
