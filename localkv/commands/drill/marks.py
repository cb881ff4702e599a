"""What the rehearsed processes are doing: one JSON line per step in a shared file, and a brake for the moment that is sought.

A line is written with one system call, so it is in the file whatever kills its process next. The brake makes a moment long enough to be
hit: a process that writes a mark which is braked sleeps after it. Torch-free. Thread: any.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from localkv.commands.drill.moments import Moment
from localkv.files import Files, replace_durably

FOLDER = "LOCALKV_DRILL"
"""The environment variable that tells a rehearsed process where its marks go."""

POLL_SECONDS = 0.002

SPANS: dict[Moment, tuple[frozenset[str], frozenset[str]]] = {
    "start": (frozenset({"born"}), frozenset({"ready"})),
    "prefill": (frozenset({"started"}), frozenset({"token", "done"})),
    "answer": (frozenset({"token"}), frozenset({"done"})),
    "save": (frozenset({"saving"}), frozenset({"saved"})),
    "evict": (frozenset({"evicting"}), frozenset({"evicted"})),
    "migration": (frozenset({"migrating"}), frozenset({"migrated"})),
    "exit": (frozenset({"flush"}), frozenset({"started"})),
}
"""By which marks of a process a moment begins and ends."""

_STORE_STEPS = ("saving", "writing", "piece", "written", "synced", "renamed", "dir_synced", "commit", "committed")

BRAKES: dict[Moment, tuple[tuple[str, ...], float]] = {
    "start": ((), 0.0),
    "prefill": (("started", "reading"), 0.02),
    "answer": (("token",), 0.05),
    "save": (_STORE_STEPS, 0.005),
    "evict": (("evicting", "commit", "committed", "removing", "removed"), 0.02),
    "migration": (("migrating", "statement", "backed_up"), 0.005),
    "exit": (("flush", *_STORE_STEPS), 0.01),
}
"""After which marks a process sleeps, and for how many seconds, while a moment is sought."""


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of one process. `at` is on the machine's monotonic clock, the same for all processes."""

    at: float
    pid: int
    what: str
    role: str = ""
    path: str = ""
    target: str = ""
    names: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    good: bool = True
    numbers: dict[str, int] = {}


class Brake(msgspec.Struct, frozen=True):
    """Sleep so long after each of these marks."""

    whats: tuple[str, ...] = ()
    seconds: float = 0.0


class Journal:
    """The writing side."""

    def __init__(self, folder: Path) -> None:
        self._brake = folder / "brake.json"
        self._fd = os.open(folder / "marks.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def mark(
        self,
        what: str,
        *,
        pid: int | None = None,
        role: str = "",
        path: Path | str = "",
        target: Path | str = "",
        names: Sequence[str] = (),
        gone: Sequence[str] = (),
        good: bool = True,
        numbers: dict[str, int] | None = None,
    ) -> None:
        """Write down that `what` is so from now on; then sleep if that is braked."""
        mark = Mark(
            at=time.monotonic(), pid=pid or os.getpid(), what=what, role=role, path=str(path), target=str(target),
            names=tuple(names), gone=tuple(gone), good=good, numbers=numbers or {},
        )  # fmt: skip
        os.write(self._fd, msgspec.json.encode(mark) + b"\n")
        if pid is None:
            brake = self._read_brake()
            if what in brake.whats:
                time.sleep(brake.seconds)

    def _read_brake(self) -> Brake:
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(self._brake.read_bytes(), type=Brake)
        return Brake()


class Watch:
    """The reading side: all marks so far, and waiting for the next ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "marks.jsonl"
        self._offset = 0
        self._rest = b""
        self.marks: list[Mark] = []

    def brake(self, moment: Moment | None) -> None:
        """From now on `moment` is slow in every rehearsed process; None: nothing is."""
        whats, seconds = BRAKES[moment] if moment else ((), 0.0)
        replace_durably(Files(), self._folder / "brake.json", msgspec.json.encode(Brake(whats, seconds)))

    def poll(self) -> int:
        """Read what is new; how many marks there are now."""
        with contextlib.suppress(FileNotFoundError), self._file.open("rb") as stream:
            stream.seek(self._offset)
            fresh = stream.read()
            self._offset += len(fresh)
            *lines, self._rest = (self._rest + fresh).split(b"\n")
            self.marks += [msgspec.json.decode(line, type=Mark) for line in lines]
        return len(self.marks)

    def wait(self, since: int, wanted: Callable[[Mark], bool], seconds: float) -> Mark | None:
        """The first mark from number `since` on that is wanted; None if none comes within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            n = self.poll()
            found = next(filter(wanted, self.marks[since:n]), None)
            if found is not None or time.monotonic() > deadline:
                return found
            since = n
            time.sleep(POLL_SECONDS)


def moments_of(marks: Sequence[Mark], pid: int, until: float) -> frozenset[Moment]:
    """The moments that the process `pid` was in at the time `until`."""
    inside: set[Moment] = set()
    for mark in marks:
        if mark.pid == pid and mark.at <= until:
            inside |= {moment for moment, (begins, _) in SPANS.items() if mark.what in begins}
            inside -= {moment for moment, (_, ends) in SPANS.items() if mark.what in ends}
    return frozenset(inside)
