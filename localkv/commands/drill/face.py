"""A face of a rehearsal: `python -m localkv.commands.drill.face ARGUMENTS` is `localkv ARGUMENTS`, with a marked engine.

Torch-free. Two things differ from the ordinary face: the engine that it starts is drill's own, and a change of the schema of the
conversations is marked, statement by statement. Thread: main.
"""

import os
import runpy
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from localkv.chat import backups, database, migrations
from localkv.chat.migrations import MIGRATIONS, Migration, Progress, silent
from localkv.commands.drill.marks import FOLDER, Journal
from localkv.service import client
from localkv.service.launch import start_engine

ENGINE = ("-m", "localkv.commands.drill.engine")


def migrate(
    journal: Journal,
    connection: sqlite3.Connection,
    path: Path,
    kept: Path,
    steps: Sequence[Migration] = MIGRATIONS,
    progress: Progress = silent,
) -> list[Path]:
    """As ever; marked if the schema changes."""
    if migrations.schema_version(connection, path, steps) == len(steps):
        return migrations.migrate(connection, path, kept, steps, progress)
    journal.mark("migrating")
    connection.set_trace_callback(lambda _: journal.mark("statement"))
    try:
        return migrations.migrate(connection, path, kept, steps, progress)
    finally:
        connection.set_trace_callback(None)
        journal.mark("migrated")


def back_up(journal: Journal, path: Path, kept: Path, version: int) -> Path:
    """As ever."""
    made = backups.back_up(path, kept, version)
    journal.mark("backed_up")
    return made


def main() -> None:
    """Be the face."""
    journal = Journal(Path(os.environ[FOLDER]))
    journal.mark("born", role="face")
    vars(client)["start_engine"] = partial(start_engine, module=ENGINE)
    vars(database)["migrate"] = partial(migrate, journal)
    vars(migrations)["back_up"] = partial(back_up, journal)
    runpy.run_module("localkv", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
