"""The runtime of a rehearsed engine: the ordinary one, marking what it does.

Imports torch with its first model, like the ordinary one. Thread: the runtime's own.
"""

from threading import Event

from localkv.commands.drill.marks import Journal
from localkv.config import Config, ModelSection
from localkv.events import EventLog
from localkv.messages import AnyReply, Delta, Flushed, Progress, Ready, Started, Submit
from localkv.paths import Home
from localkv.runtime import Emit, Report, Runtime


class Watched(Runtime):
    """A runtime whose moments can be seen from outside."""

    def __init__(self, journal: Journal, home: Home, config: Config, events: EventLog, epoch: str) -> None:
        super().__init__(home, config, events, epoch)
        self._journal = journal

    def prepare(self, model: ModelSection, progress: Report) -> Ready:
        """As ever."""
        ready = super().prepare(model, progress)
        self._journal.mark("ready")
        return ready

    def turn(self, request: Submit, emit: Emit, cancelled: Event) -> None:
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
            super().turn(request, marked, cancelled)
        finally:
            self._journal.mark("done")
        tiers = self.snapshot()
        used = {"ram": tiers.ram.used_bytes, "ram_limit": tiers.ram.limit_bytes}
        self._journal.mark("used", numbers=used | {"ssd": tiers.ssd.used_bytes, "ssd_limit": tiers.ssd.limit_bytes})

    def flush(self, deadline_seconds: float) -> Flushed:
        """As ever."""
        self._journal.mark("flush")
        return super().flush(deadline_seconds)
