"""`localkv sessions restore [--list] [BACKUP]`, and the way back that `localkv chat` offers where conversations are lost.

Deletes nothing: what was there is put aside, beside the database. Opens conversations.db only to see whether it is sound. Thread: main.
"""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localkv.chat.audit import audit_conversations
from localkv.chat.backups import KEPT, Backup, is_dated, list_backups, look, restore
from localkv.chat.migrations import MIGRATIONS
from localkv.commands.output import print_json, print_lines, print_table
from localkv.errors import ConfigError, ConversationError, ConversationsLost, UnknownConversation
from localkv.paths import Home
from localkv.units import format_age, format_bytes, format_count, whole_number

_HEADS = ("BACKUP", "AGE", "CONVERSATIONS", "MESSAGES", "SIZE", "")


def brought_back(home: Home, lost: ConversationsLost) -> bool:
    """Show the backups to the person at the terminal, and bring back the chosen one; False: nobody chose one, nothing was changed.

    Raises ConversationError.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    found = [look(path, len(MIGRATIONS)) for path in list_backups(home.backups, home.database)]
    usable = [backup for backup in found if not backup.problem]
    if not usable:
        return False
    print_lines([f"{lost.what}. These backups can be brought back; nothing is deleted by that:"])
    print_table([(str(n), *_cells(each, time.time())) for n, each in enumerate(usable, start=1)], ("", *_HEADS))
    _drop_keys()
    chosen = _chosen_by_person(usable)
    if chosen is not None:
        print_lines(_lines(chosen, restore(home.database, chosen)))
    return chosen is not None


def _drop_keys() -> None:
    """What was typed for the chat, before the question could be read, is no answer to it."""
    if os.name != "nt":
        import termios

        with contextlib.suppress(termios.error, OSError, ValueError):  # no terminal after all
            termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _chosen_by_person(usable: Sequence[Backup]) -> Backup | None:
    while True:
        try:
            word = input("Which one? [1], or q to leave everything as it is: ").strip().lower() or "1"
        except EOFError:
            return None
        if word in {"q", "quit", "n", "no"}:
            return None
        if 1 <= whole_number(word) <= len(usable):
            return usable[whole_number(word) - 1]


def _lines(chosen: Backup, kept: Sequence[Path]) -> list[str]:
    """What was brought back, and where the former file is."""
    said = [f"{format_count(chosen.conversations)} conversations are back as they were {_ago(chosen)} ago."]
    return said + [f"The former file is kept until {KEPT} backups are newer, a week at least: {path}" for path in kept[:1]]


def show(home: Home, *, as_json: bool) -> int:
    """Print all backups, newest first, each of them checked."""
    found = [look(path, len(MIGRATIONS)) for path in list_backups(home.backups, home.database)]
    if as_json:
        print_json([_document(each) for each in found])
    elif found:
        print_table([_cells(each, time.time()) for each in found], _HEADS)
        print_lines(["To go back to the newest that can be used, run: localkv sessions restore; or give it the name of one."])
    else:
        print_lines([f"There are no backups in {home.backups} yet; one is made on each day that localkv is used."])
    return 0


def bring_back(home: Home, name: str | None, *, sure: bool, as_json: bool) -> int:
    """Restore the backup `name`, or the newest that can be used. Raises ConversationError, ConfigError."""
    chosen = _choose(home, name)
    if not sure and not _agreed(home, chosen, as_json=as_json):
        return 0
    kept = restore(home.database, chosen)
    if as_json:
        print_json(_document(chosen) | {"kept": [str(path) for path in kept]})
        return 0
    print_lines(_lines(chosen, kept))
    return 0


def _choose(home: Home, name: str | None) -> Backup:
    paths = list_backups(home.backups, home.database)
    if name is not None:
        path = next((path for path in paths if name in {path.name, path.stem, str(path)}), None)
        if path is None:
            raise UnknownConversation(f"there is no backup {name}; `localkv sessions restore --list` shows all")
        return look(path, len(MIGRATIONS))
    usable = (backup for path in paths if not (backup := look(path, len(MIGRATIONS))).problem)
    newest = next(usable, None)
    if newest is None:
        raise ConversationError(f"there is no backup in {home.backups} that can be used")
    return newest


def _agreed(home: Home, chosen: Backup, *, as_json: bool) -> bool:
    """Going back from a sound database costs what was said since, so it is asked for."""
    audit = audit_conversations(home.database)
    if audit.flaws or not audit.conversations:
        return True
    if as_json or not sys.stdin.isatty():
        raise ConfigError("the conversations are sound as they are; add --yes to go back to a backup all the same")
    print_lines([
        f"Your conversations are sound: {format_count(audit.conversations)} with {format_count(audit.messages)} messages.",
        f"The backup is {_ago(chosen)} old and has {format_count(chosen.conversations)} with {format_count(chosen.messages)}.",
    ])  # fmt: skip
    if input("Go back to it all the same? [y/N] ").strip().lower() in {"y", "yes"}:
        return True
    print_lines(["Nothing was changed."])
    return False


def _ago(backup: Backup) -> str:
    return format_age(max(60.0, time.time() - backup.made))


def _cells(backup: Backup, now: float) -> tuple[str, ...]:
    counts = (format_count(backup.conversations), format_count(backup.messages))
    age = format_age(now - backup.made) if is_dated(backup.path, now) else "?"
    return (backup.path.name, age, *counts, format_bytes(backup.n_bytes), backup.problem)


def _document(backup: Backup) -> dict[str, Any]:
    return {
        "backup": backup.path.name,
        "path": str(backup.path),
        "made": backup.made,
        "bytes": backup.n_bytes,
        "conversations": backup.conversations,
        "messages": backup.messages,
        "usable": not backup.problem,
        "problem": backup.problem,
    }
