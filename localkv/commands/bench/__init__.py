"""`localkv bench NAME [--json]`: measurements of the product itself, each against its yardstick in the same run.

Unlike the other commands, benches import torch and the engine: they measure the parts a face never sees. One of a user runs at a time on a
machine (a lock), because two torch processes on two cores nearly stop each other. Figures are medians of interleaved runs.
The bench of the screen is in tui/bench, because only tui knows it; the command line brings it here.
"""

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from localkv.errors import ConfigError, PathError

NAMES = ("switch", "decode", "resume", "start", "exact", "policy", "scale", "save", "ttft", "typing")
LOCK_SECONDS = 1800.0

Say = Callable[[str], None]


def run(name: str, as_json: bool, trace: Path | None = None) -> int:
    """Run one bench and print its table or its one JSON document; returns the exit code. Raises ConfigError.

    `trace` is for "policy": a file to replay in place of the made-up traces.
    """
    if name not in NAMES:
        raise ConfigError(f'there is no bench "{name}"; there are: {", ".join((*NAMES, "tui"))}')
    if trace is not None and name != "policy":
        raise ConfigError(f'--trace is for the bench "policy", not for "{name}"')
    module = importlib.import_module(f"localkv.commands.bench.{name}")
    return report(module.measure if trace is None else lambda say: module.measure(say, trace), as_json)


def report(measure: Callable[[Say], Any], as_json: bool) -> int:
    """Measure, once no other bench runs, and print the table or the one JSON document; returns the exit code. Raises PathError."""
    say: Say = _quiet if as_json else _to_stderr
    with _lock(say):
        result = measure(say)
    print(json.dumps(result) if as_json else render(result))
    return 0


@contextmanager
def _lock(say: Say) -> Iterator[None]:
    """A block in which no other bench of this user runs. Raises PathError."""
    user = "" if os.name == "nt" else f"-{os.getuid()}"  # a file of another user could not be locked
    file = Path(tempfile.gettempdir()) / f"localkv-bench{user}.lock"
    lock = FileLock(file)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say("another bench is running; waiting for it")
            lock.acquire(timeout=LOCK_SECONDS)
    except Timeout as error:
        raise PathError(f"another bench still holds {file}; wait for its end, or end it, then run this again") from error
    except OSError as error:
        raise PathError(
            f"{file} cannot be locked ({error.strerror}); remove it, or set TMPDIR to a folder of yours"
        ) from error
    try:
        yield
    finally:
        lock.release()


def render(result: Any) -> str:
    """A result as text: one line per figure, or one per row of a list of rows."""
    rows = result if isinstance(result, list) else [result]
    columns = list(rows[0])
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in cells)) for i, column in enumerate(columns)]
    lines = ["  ".join(column.rjust(width) for column, width in zip(columns, widths, strict=True))]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _quiet(_text: str) -> None:
    """With --json nothing but the document is printed."""
