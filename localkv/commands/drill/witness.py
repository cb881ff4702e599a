"""Everything that the marks of the rehearsed processes prove: which engines there are, what was restored, what the tiers held.

Torch-free. Thread: main.
"""

from localkv.commands.drill.law import Law
from localkv.commands.drill.marks import Mark, Watch, moments_of
from localkv.commands.drill.moments import Moment
from localkv.commands.drill.person import is_running
from localkv.commands.drill.report import Tally
from localkv.commands.drill.world import World


class Witness:
    """Reads every mark once and reports what is wrong."""

    def __init__(self, world: World, tally: Tally) -> None:
        self.watch = Watch(world.marks)
        self._tally = tally
        self._law = Law()
        self._read = 0
        self._begun: dict[int, int] = {}
        """Process -> the number of its first mark."""
        self._engines: list[int] = []

    def learn(self) -> None:
        """Judge what is new."""
        n = self.watch.poll()
        for i in range(self._read, n):
            mark = self.watch.marks[i]
            if mark.what == "born":
                self._begun[mark.pid] = i
                self._engines += [mark.pid] if mark.role == "engine" else []
            self._judge(mark)
        self._read = n

    def engine(self) -> int | None:
        """The newest engine that lives."""
        self.learn()
        return next((pid for pid in reversed(self._engines) if is_running(pid)), None)

    def moments(self, pid: int, until: float) -> frozenset[Moment]:
        """What the process `pid` was doing at the time `until`."""
        self.learn()
        return moments_of(self.watch.marks[self._begun.get(pid, 0) :], pid, until)

    def seconds_to_ready(self, pid: int) -> float | None:
        """How long the start of a process took; None if it has not come so far."""
        self.learn()
        mine = [mark for mark in self.watch.marks[self._begun.get(pid, 0) :] if mark.pid == pid]
        ready = next((mark.at for mark in mine if mark.what == "ready"), None)
        return None if ready is None else ready - mine[0].at

    def _judge(self, mark: Mark) -> None:
        self._tally.add("wrong_restores", self._law.feed(mark))
        match mark.what:
            case "restored" if mark.good:
                self._tally.restored += 1
            case "restored":
                self._tally.add("wrong_restores", [f"record {mark.names[0][:12]} was used, and its bytes are not its own"])
            case "used":
                self._tally.add("budget_breaks", over_budget(mark.numbers))


def over_budget(used: dict[str, int]) -> list[str]:
    """Which tiers hold more than they may."""
    return [
        f"{tier} held {used[tier]:,} bytes and may hold {used[f'{tier}_limit']:,}"
        for tier in ("ram", "ssd")
        if used[tier] > used[f"{tier}_limit"]
    ]
