"""Ways to break the store of a rehearsed engine, to see that the rehearsal notices. None of them exists outside of that process.

    row-before-file   the row is committed first, the file is written afterwards
    no-fsync-order    nobody waits for the disk: rows are committed for files that are in the system's memory only
    no-checksum       what is read is used without a look at it
    in-place-write    a record is written under its final name at once

Torch-free. Thread: as in tiers.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from localkv.commands.drill.marks import Journal
from localkv.commands.drill.recorder import RecordingFiles
from localkv.files import TEMP_SUFFIX, Files
from localkv.tiers import disk
from localkv.tiers.publish import FILE_SUFFIX, Part, Publisher

Sabotage = Literal["row-before-file", "no-fsync-order", "no-checksum", "in-place-write"]
SABOTAGES: tuple[Sabotage, ...] = get_args(Sabotage)

VARIABLE = "LOCALKV_DRILL_SABOTAGE"
"""The environment variable that tells a rehearsed engine how to be broken."""


class RowFirst(Publisher):
    """Commits before it writes."""

    def write(self, parts: Sequence[Part]) -> None:
        """The rows, then the files."""
        self.commit(parts, ())
        super().write(parts)


class Unsynced(RecordingFiles):
    """Trusts the system's memory."""

    def sync(self, path: Path) -> None:
        """Nothing: the bytes reach the disk some day."""


class InPlace(RecordingFiles):
    """Has no temporary files."""

    def write_temp(self, path: Path, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        """Into the final file, over what is in it."""
        target = _final(path)
        self._journal.mark("writing", path=target)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            written = 0
            for part in parts:
                view = memoryview(part).cast("B")
                while len(view):
                    n = self.write_some(fd, view)
                    view, written = view[n:], written + n
        finally:
            os.close(fd)
        self._journal.mark("written", path=target)
        return written

    def sync(self, path: Path) -> None:
        super().sync(_final(path))

    def rename(self, source: Path, target: Path) -> None:
        """Only what is no temporary file has another name."""
        if not source.name.endswith(TEMP_SUFFIX):
            super().rename(source, target)


def _final(path: Path) -> Path:
    return path.with_name(path.name.split(".")[0] + FILE_SUFFIX)


def files_of(sabotage: str, journal: Journal) -> Callable[[], Files]:
    """Makes the file layer of a rehearsed engine; break the rest of its store, too, if that is the sabotage."""
    if sabotage == "row-before-file":
        vars(disk)["Publisher"] = RowFirst
    if sabotage == "no-checksum":
        vars(disk)["verify"] = lambda *_: None
    return partial({"no-fsync-order": Unsynced, "in-place-write": InPlace}.get(sabotage, RecordingFiles), journal)
