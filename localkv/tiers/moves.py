"""Moves of records between tiers, one line of the event log each: by these lines alone one can say what is where.

Torch-free. Thread: any. A record that comes into the slot or is saved stays where it was as well; everywhere else it leaves `from`.
"""

from dataclasses import dataclass
from typing import Literal

from localkv.events import EventLog

Where = Literal["slot", "vram", "ram", "ssd", ""]
"""A tier, or the slot; "" is nowhere: gone."""

FORGOTTEN = "forgotten"
"""The reason of what goes because its conversation does."""


@dataclass(frozen=True, slots=True)
class Move:
    """One record went from one place to another."""

    record: str
    source: Where
    target: Where
    n_bytes: int
    seconds: float
    reason: str

    def log(self, events: EventLog) -> None:
        """One line: record, from, to, bytes, ms, reason."""
        fields = {"from": self.source, "to": self.target}
        ms = round(self.seconds * 1000, 1)
        events.emit("move", record=self.record[:12], **fields, bytes=self.n_bytes, ms=ms, reason=self.reason)
