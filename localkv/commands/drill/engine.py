"""The engine of a rehearsal: `python -m localkv.commands.drill.engine`, started by the rehearsed face.

The ordinary worker with the ordinary runtime; what it does is marked. Imports torch, on the work thread like the worker. Each class that is
put in another one's place does what that one does and marks it, or is a sabotage that was asked for.
"""

import os
from functools import partial
from pathlib import Path

from localkv.commands.drill.marks import FOLDER, Journal
from localkv.commands.drill.recorder import RecordingCatalogue, RecordingStore
from localkv.commands.drill.sabotage import VARIABLE, files_of
from localkv.config import Config
from localkv.events import EventLog
from localkv.paths import Home
from localkv.service import worker
from localkv.service.work import EngineRuntime
from localkv.tiers import disk


def make_runtime(journal: Journal, sabotage: str, home: Home, config: Config, events: EventLog, epoch: str) -> EngineRuntime:
    """The ordinary runtime on a store that marks its steps."""
    from localkv import opened
    from localkv.commands.drill.watched import Watched

    RecordingStore.journal = journal
    vars(disk)["Catalogue"] = partial(RecordingCatalogue, journal)
    vars(opened)["Store"] = RecordingStore
    vars(opened)["Files"] = files_of(sabotage, journal)
    return Watched(journal, home, config, events, epoch)


def main() -> int:
    """Be the engine; returns the exit code of the worker."""
    journal = Journal(Path(os.environ[FOLDER]))
    journal.mark("born", role="engine")
    return worker.main(runtime_factory=partial(make_runtime, journal, os.environ.get(VARIABLE, "")))


if __name__ == "__main__":
    worker.leave(main())
