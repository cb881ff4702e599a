"""The engine of a rehearsal: `python -m localkv.commands.drill.engine`, started by the rehearsed face.

The ordinary worker with the ordinary runtime; what it does is marked. Imports torch, on the work thread like the worker. Each class that is
put in another one's place does what that one does and marks it, or is a sabotage that was asked for.
"""

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from localkv.commands.drill.marks import FOLDER, Journal
from localkv.commands.drill.recorder import RecordingCatalogue, RecordingStore
from localkv.commands.drill.sabotage import VARIABLE, files_of
from localkv.config import Config, ModelSection
from localkv.events import EventLog
from localkv.messages import AnyReply, Delta, Estimated, Flushed, Forget, Forgotten, Progress, Ready, Snapshot, Started, Submit
from localkv.paths import Home
from localkv.service import worker
from localkv.service.work import EngineRuntime, ProgressCall
from localkv.tiers import disk


class Watched:
    """A runtime that marks what it does. Thread: the runtime's own."""

    def __init__(self, runtime: EngineRuntime, journal: Journal) -> None:
        self._runtime = runtime
        self._journal = journal

    def prepare(self, model: ModelSection, progress: ProgressCall) -> Ready:
        """As ever."""
        ready = self._runtime.prepare(model, progress)
        self._journal.mark("ready")
        return ready

    def turn(self, request: Submit, emit: Callable[[AnyReply], None], cancelled: threading.Event) -> None:
        """As ever; afterwards what the tiers hold is written down."""

        def marked(reply: AnyReply) -> None:
            emit(reply)
            match reply:
                case Started():
                    self._journal.mark("started")
                case Progress(phase="prefill"):
                    self._journal.mark("reading")
                case Delta():
                    self._journal.mark("token")

        try:
            self._runtime.turn(request, marked, cancelled)
        finally:
            self._journal.mark("done")
        tiers = self._runtime.snapshot()
        used = {"ram": tiers.ram.used_bytes, "ram_limit": tiers.ram.limit_bytes}
        self._journal.mark("used", numbers=used | {"ssd": tiers.ssd.used_bytes, "ssd_limit": tiers.ssd.limit_bytes})

    def flush(self, deadline_seconds: float) -> Flushed:
        """As ever."""
        self._journal.mark("flush")
        return self._runtime.flush(deadline_seconds)

    def snapshot(self) -> Snapshot:
        return self._runtime.snapshot()

    def idle(self) -> bool:
        return self._runtime.idle()

    def estimate(self, report: Callable[[str], None]) -> Estimated:
        return self._runtime.estimate(report)

    def forget(self, request: Forget) -> Forgotten:
        return self._runtime.forget(request)

    def report(self) -> dict[str, dict[str, str | int | float | bool | None]]:
        return self._runtime.report()

    def close(self) -> None:
        self._runtime.close()


def make_runtime(journal: Journal, sabotage: str, home: Home, config: Config, events: EventLog, epoch: str) -> EngineRuntime:
    """The ordinary runtime on a store that marks its steps."""
    from localkv import opened
    from localkv.runtime import Runtime

    RecordingStore.journal = journal
    vars(disk)["Catalogue"] = partial(RecordingCatalogue, journal)
    vars(opened)["Store"] = RecordingStore
    vars(opened)["Files"] = files_of(sabotage, journal)
    return Watched(Runtime(home, config, events, epoch), journal)


def main() -> int:
    """Be the engine; returns the exit code of the worker."""
    journal = Journal(Path(os.environ[FOLDER]))
    journal.mark("born", role="engine")
    return worker.main(runtime_factory=partial(make_runtime, journal, os.environ.get(VARIABLE, "")))


if __name__ == "__main__":
    worker.leave(main())
