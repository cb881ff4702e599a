"""`bench resume`: a new process comes back to a 4,096-token conversation; the same without a cache beside it.

Each round starts a child process with the page cache of weights and records dropped; its clock starts where it was started.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from localkv.collector import nothing_collected
from localkv.commands.bench import Say, bed, bed_home
from localkv.errors import EngineDied
from localkv.kv.record import Head
from localkv.models.readahead import begin_read_ahead
from localkv.models.reference import locate
from localkv.paths import Home

TOKENS = 4096
QUESTION_TOKENS = 8
ROUNDS = 3


class Task(msgspec.Struct, frozen=True):
    """What a child process is to do, and when it was started."""

    base: str
    models: str
    started: float
    head: Head | None


def measure(say: Say) -> dict[str, Any]:
    """Medians of the children's figures."""
    with bed_home.scratch_home() as home:
        head = _prepare(home)
        with_cache, without = [], []
        for i in range(ROUNDS):
            say(f"round {i}: with the cache")
            with_cache.append(_child(home, head))
            say(f"round {i}: without")
            without.append(_child_without_cache(home))
    middle = statistics.median
    return {
        "import_s": middle([child["import_s"] for child in with_cache]),
        "weights_s": middle([child["weights_s"] for child in with_cache]),
        "restore_s": middle([child["restore_s"] for child in with_cache]),
        "first_token_s": middle([child["first_token_s"] for child in with_cache]),
        "no_cache_first_token_s": middle([child["first_token_s"] for child in without]),
    }


def _prepare(home: Home) -> Head:
    """A conversation of TOKENS tokens on SSD."""
    with bed.open_runtime(home) as runtime:
        done, _ = bed.turn(runtime, "resume", [bed.random_ids(TOKENS, 1)], None)
        runtime.flush(60.0)
    assert done.head is not None
    return done.head


def _child(home: Home, head: Head | None) -> dict[str, float]:
    weights = sorted(locate(bed.MODEL.name, home.models_dir).path.glob("*.safetensors"))
    bed.drop_page_cache([*weights, *bed.record_files(home)])
    task = Task(str(home.cache_dir.parent), str(home.models_dir), time.time(), head)
    command = [sys.executable, "-m", "localkv.commands.bench.resume", msgspec.json.encode(task).decode()]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise EngineDied(f"the measured process ended with {result.returncode}: {result.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return figures


def _child_without_cache(home: Home) -> dict[str, float]:
    """The same with an empty store; digests and the self-test's verdict stay, which are no cache of the conversation."""
    aside = home.store.with_name("store.aside")
    home.store.rename(aside)
    try:
        return _child(home, None)
    finally:
        shutil.rmtree(home.store, ignore_errors=True)
        aside.rename(home.store)


def run_child(task: Task) -> dict[str, float]:
    """One start, in this process: everything from nothing to the first token."""
    began = time.time()
    base = Path(task.base)
    home = Home(base / "config", base / "data", base / "cache", Path(task.models))
    begin_read_ahead(home.models_dir, bed.MODEL.name)  # as the engine process does
    with nothing_collected():  # the same
        import torch  # noqa: F401
        import transformers  # noqa: F401

    imported = time.time()
    lines = [bed.random_ids(TOKENS, 1), bed.random_ids(QUESTION_TOKENS, 2)]
    with bed.open_runtime(home) as runtime:
        opened = time.time()
        done, _ = bed.turn(runtime, "resume", lines, task.head)
        first_token = opened + done.numbers.ttft_ms / 1000
    expected = TOKENS if task.head else 0
    assert done.numbers.restored.total == expected, f"restored {done.numbers.restored}, not {expected}"
    return {
        "import_s": imported - began,
        "weights_s": opened - imported,
        "restore_s": done.numbers.restore_seconds,
        "first_token_s": first_token - task.started,
    }


if __name__ == "__main__":
    print(json.dumps(run_child(msgspec.json.decode(sys.argv[1], type=Task))))
