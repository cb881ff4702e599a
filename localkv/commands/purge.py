"""`localkv purge --cache | --models | --all`: deletes whole parts of what localkv keeps, and says how much they are.

Refuses while an engine runs, and to delete conversations that are open. Models in the Hugging Face cache belong to other programs too
and stay. Thread: main.
"""

import contextlib
import sys
from pathlib import Path
from typing import Literal

from localkv.chat.backups import in_use
from localkv.commands.machine import folder_bytes
from localkv.commands.output import print_json, print_lines, print_table
from localkv.commands.setup import Setup
from localkv.errors import ConfigError, ConversationError, PathError, StoreLocked
from localkv.paths import Home
from localkv.service.caretaker import alone
from localkv.units import format_bytes

Part = Literal["cache", "models", "all"]


def run(setup: Setup, part: Part, *, sure: bool, as_json: bool) -> int:
    """Delete `part` after asking, unless `sure`; the exit code. Raises StoreLocked, ConversationError, ConfigError, PathError."""
    places = _places(setup, part)
    sizes = {name: sum(_bytes(path) for path in paths) for name, paths in places.items()}
    if not sure and not _agreed(sizes, as_json=as_json):
        return 0
    setup.home.prepare()
    with alone(setup.home) as nobody:
        if not nobody:
            raise StoreLocked("an engine is running and uses these files; quit every localkv, then run this again")
        if part == "all" and in_use(setup.home.database):
            raise ConversationError(
                f"another localkv has {setup.home.database} open; quit every localkv, then run this again; nothing was deleted"
            )
        for paths in places.values():
            for path in paths:
                _delete(path, keep=setup.home.engine_lock)
    freed = sum(sizes.values())
    if as_json:
        print_json({"freed_bytes": freed, "deleted": sizes})
    else:
        print_lines([f"Deleted {', '.join(sizes)}; {format_bytes(freed)} are free again."])
    return 0


def _places(setup: Setup, part: Part) -> dict[str, list[Path]]:
    home: Home = setup.home
    places = {"cache": [home.cache_dir], "models": [home.models_dir]}
    if part != "all":
        return {part: places[part]}
    name = home.database.name
    # SQLite's logs; what a restore put aside; what one left half made
    patterns = (name, f"{name}-*", f"{name}.*", f".{name}.*")
    files = sorted(path for pattern in patterns for path in home.data_dir.glob(pattern))
    return places | {
        "conversations": [*files, home.backups],
        "logs": [home.logs],
        "settings": [home.config_dir],
    }


def _agreed(sizes: dict[str, int], *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise ConfigError("this deletes for good; add --yes to do it without being asked")
    print_table([(name, format_bytes(size)) for name, size in sizes.items()])
    word = "all" if "conversations" in sizes else "yes"
    lost = "your conversations and their backups too, " if "conversations" in sizes else ""
    answer = input(f"Delete this, {lost}for good? Write {word} to do it: ")
    if answer.strip().lower() == word:
        return True
    print_lines(["Nothing was deleted."])
    return False


def _bytes(path: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        return folder_bytes(path)
    with contextlib.suppress(OSError):
        return path.lstat().st_size
    return 0


def _delete(path: Path, keep: Path) -> None:
    """Delete `path`, but not the lock that is held meanwhile. Raises PathError."""
    try:
        if path.is_dir() and not path.is_symlink():
            for inside in path.iterdir():
                _delete(inside, keep)
            with contextlib.suppress(OSError):  # the folder of the lock stays
                path.rmdir()
        elif path != keep:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise PathError(f"{path} cannot be deleted: {error.strerror}; what is left can be deleted by hand") from error
