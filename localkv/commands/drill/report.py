"""What a rehearsal found: counts for scripts, a table and sentences for people. Knows no processes."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from localkv.commands.drill.moments import MOMENTS, Moment

Fault = Literal["lost_messages", "wrong_restores", "leftovers", "budget_breaks"]
FAULTS: tuple[Fault, ...] = ("lost_messages", "wrong_restores", "leftovers", "budget_breaks")


@dataclass(slots=True)
class Tally:
    """Counts so far."""

    killed: Counter[Moment] = field(default_factory=Counter)
    missed: int = 0
    """Kills that came too early or too late for their moment: checked like the others, and not counted."""
    found: list[tuple[Fault, str]] = field(default_factory=list)
    answers: int = 0
    """Finished ones that were read again after every kill."""
    compared: int = 0
    """Of these, the exact ones that were compared with the uninterrupted run."""
    restored: int = 0
    """Records that came back from SSD and were proven."""
    refused: int = 0
    """Flipped ones that were refused."""
    longest_recovery_s: float = 0.0

    def add(self, fault: Fault, sentences: list[str]) -> None:
        """Something was found; what was found before is not counted twice."""
        self.found += [(fault, sentence) for sentence in dict.fromkeys(sentences) if (fault, sentence) not in self.found]

    def document(self) -> dict[str, Any]:
        """What --json prints."""
        faults = Counter(fault for fault, _ in self.found)
        return {
            "kills": self.killed.total(),
            "killed_during": {moment: self.killed[moment] for moment in MOMENTS},
            **{fault: faults[fault] for fault in FAULTS},
            "longest_recovery_s": round(self.longest_recovery_s, 3),
        }

    def table(self) -> list[tuple[str, str]]:
        """The same for people, and what was looked at."""
        faults = Counter(fault for fault, _ in self.found)
        return [
            *((f"killed during {moment}", f"{self.killed[moment]:,}") for moment in MOMENTS),
            ("finished answers, all there", f"{self.answers:,}"),
            ("exact answers, equal to the uninterrupted run", f"{self.compared:,}"),
            ("records restored and proven", f"{self.restored:,}"),
            ("records with a flipped byte, refused", f"{self.refused:,}"),
            *((fault.replace("_", " "), f"{faults[fault]:,}") for fault in FAULTS),
            ("longest recovery", f"{self.longest_recovery_s:.1f} s"),
        ]
