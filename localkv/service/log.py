"""The engine's log file: what its process prints, kept short and private.

Torch-free; knows no processes. The face opens it before the engine starts, the engine turns it over between requests.
"""

import contextlib
import os
from pathlib import Path

MAX_LOG_BYTES = 2 << 20
"""At this length the file becomes its own predecessor; two are kept."""


def open_log(file: Path) -> int:
    """A descriptor that appends to `file` (0600), which starts empty if it had grown too long. Raises OSError."""
    if _length(file) > MAX_LOG_BYTES:
        file.replace(predecessor(file))
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def turn_over(file: Path) -> None:
    """Start a new log for this process's own stdout and stderr if the old one is too long. Raises OSError."""
    if _length(file) <= MAX_LOG_BYTES:
        return
    fd = open_log(file)
    try:
        os.dup2(fd, 1)
        os.dup2(fd, 2)
    finally:
        os.close(fd)


def last_lines(file: Path, count: int) -> list[str]:
    """The newest `count` lines that are not empty; none if there is no log."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, _length(file) - 65536))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


def predecessor(file: Path) -> Path:
    """Where the log before this one is kept: "engine.1.log"."""
    return file.with_suffix(f".1{file.suffix}")


def _length(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return 0
