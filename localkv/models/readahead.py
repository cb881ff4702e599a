"""Reading a model's weights into the system's page cache before they are wanted: while the engine is still importing torch.

Why: importing takes seconds and leaves the disk idle; a model of 8 GB on an SSD of 2 GB/s is read in that time. Only asked for,
never waited for: whether it came in time changes nothing but the time that loading takes.

Torch-free. Thread: any; the system may keep the caller until its queue has room, so the engine has it done on a thread of its own.
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

from localkv.errors import LocalKVError
from localkv.models.reference import locate, weight_files

SHARE_OF_MEMORY = 0.5
"""Of the memory that is free: more would push out the pages of programs, or those that were read first."""


def begin_read_ahead(models_dir: Path, model: str) -> threading.Thread:
    """Have `read_ahead` done on a thread of its own, which ends with the process."""
    free_bytes = psutil.virtual_memory().available
    thread = threading.Thread(target=read_ahead, args=(model, models_dir, free_bytes), name="read-ahead", daemon=True)
    thread.start()
    return thread


def read_ahead(model: str, models_dir: Path, free_bytes: int) -> int:
    """Ask the system to read the weights of `model`; the bytes asked for, 0 where it is no use or can't be done.

    A model that is missing or unusable is no error here: loading it says so.
    """
    if not hasattr(os, "posix_fadvise"):
        return 0
    try:
        return _ask(_files(model, models_dir), int(free_bytes * SHARE_OF_MEMORY))
    except (LocalKVError, OSError):
        return 0


def _files(model: str, models_dir: Path) -> Sequence[Path]:
    found = locate(model, models_dir)
    return [found.path] if found.kind == "gguf" else weight_files(found.path)


def _ask(files: Sequence[Path], most_bytes: int) -> int:
    total = sum(file.stat().st_size for file in files)
    if total > most_bytes:
        return 0
    for file in files:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)
    return total
