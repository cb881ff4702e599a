"""The new process of the exactness matrix: it opens a home that another process has left, and says the next thing in each talk.

    python -m localkv.commands.bench.newcomer FOLDER

reads FOLDER/tasks.json; for each task it writes what the turn said of itself and the logits of its tokens. Imports torch.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from safetensors.torch import load_file, save_file

from localkv.commands.bench.player import Heard, Talk, playing, scratch
from localkv.config import ModelSection
from localkv.errors import EngineDied
from localkv.messages import Done

TASKS = "tasks.json"


class Task(msgspec.Struct, frozen=True):
    """One turn: in which home, with which model, what is asked, and how many tokens to answer."""

    base: str
    section: ModelSection
    talk: Talk
    n_tokens: int


def hear_elsewhere(tasks: Sequence[Task], folder: Path) -> list[Heard]:
    """The turns of `tasks`, done by one new process. Raises EngineDied."""
    (folder / TASKS).write_bytes(msgspec.json.encode(tasks))
    command = [sys.executable, "-m", "localkv.commands.bench.newcomer", str(folder)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise EngineDied(f"the new process ended with {result.returncode}: {result.stderr[-2000:]}")
    return [_read(folder, number) for number in range(len(tasks))]


def do_tasks(folder: Path) -> None:
    """Do every task of `folder` in this process."""
    for number, task in enumerate(msgspec.json.decode((folder / TASKS).read_bytes(), type=list[Task])):
        with playing(scratch(Path(task.base)), task.section) as player:
            heard = player.ask(task.talk, task.n_tokens)
        save_file({str(i): logits for i, logits in enumerate(heard.logits)}, folder / f"{number}.safetensors")
        (folder / f"{number}.json").write_bytes(msgspec.json.encode(heard.done))


def _read(folder: Path, number: int) -> Heard:
    logits = load_file(folder / f"{number}.safetensors")
    done = msgspec.json.decode((folder / f"{number}.json").read_bytes(), type=Done)
    return Heard(done, tuple(logits[str(i)] for i in range(len(logits))))


if __name__ == "__main__":
    do_tasks(Path(sys.argv[1]))
