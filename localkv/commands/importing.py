"""`localkv import`: conversations from files of other programs, or of localkv.

What is there already is not written again. A conversation that is refused is told by a sentence, and the others are taken
in; the exit code is then 1. Torch-free. Thread: main; Ctrl+C between two batches leaves what is done.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from localkv.chat.imports.incoming import Arrival, arrive
from localkv.chat.imports.reading import read_file
from localkv.chat.store import ConversationStore
from localkv.commands.output import ProgressLine, print_json, print_lines, say_to
from localkv.config import Config
from localkv.errors import ImportRefused
from localkv.units import format_count

BATCH = 50
"""Conversations for one transaction: a sync of the disk for each would take longer than all else."""
BATCH_MESSAGES = 20_000
BATCH_BYTES = 32 << 20
"""Of the file. A batch holds one conversation more than that at most."""
SENTENCES = 100
"""Refusals that are told one by one: a file may be nothing else."""


@dataclass(slots=True)
class Tally:
    """What an import did."""

    conversations: int = 0
    """With something new in them."""
    messages: int = 0
    unchanged: int = 0
    """Conversations that were there as they are."""
    refused: list[str] = field(default_factory=list)
    """One sentence each, of the first ones."""
    refusals: int = 0
    """How many there were."""

    def refuse(self, sentence: str) -> None:
        """Count a refusal."""
        self.refusals += 1
        if len(self.refused) < SENTENCES:
            self.refused.append(sentence)


def run(store: ConversationStore, config: Config, files: Sequence[Path], *, as_json: bool) -> int:
    """Take in all `files`; returns the exit code."""
    tally = Tally()
    for file in files:
        bar = ProgressLine(sys.stderr)
        try:
            take_file(store, config, file, tally, bar)
        except ImportRefused as error:
            tally.refuse(str(error))
        finally:
            bar.end()
    if as_json:
        print_json(asdict(tally))
    else:
        for sentence in tally.refused:
            say_to(sys.stderr, sentence)
        if more := tally.refusals - len(tally.refused):
            say_to(sys.stderr, f"and {format_count(more)} more were refused")
        print_lines([_summary(tally)])
    return 1 if tally.refusals else 0


def take_file(store: ConversationStore, config: Config, file: Path, tally: Tally, bar: ProgressLine) -> None:
    """Take in one file. Raises ImportRefused if it is no export at all; what came before in it is kept."""
    batch: list[Arrival] = []
    n_messages = n_bytes = 0
    try:
        for item in read_file(file):
            try:
                if isinstance(item.found, ImportRefused):
                    raise item.found
                batch.append(arrive(item.found, config.model, config.sampling, time.time()))
                n_messages += len(batch[-1].messages)
                n_bytes += item.n_bytes
            except ImportRefused as error:
                tally.refuse(f"{file}: {error}")
            if len(batch) >= BATCH or n_messages >= BATCH_MESSAGES or n_bytes >= BATCH_BYTES:
                _store(store, file, batch, tally)
                n_messages = n_bytes = 0
            bar.say(f"{file.name}: {item.share:.0%}, {format_count(tally.conversations)} conversations taken in")
    finally:
        _store(store, file, batch, tally)


def _store(store: ConversationStore, file: Path, batch: list[Arrival], tally: Tally) -> None:
    for arrival, result in zip(batch, store.take_in(batch), strict=True):
        if isinstance(result, ImportRefused):
            tally.refuse(f'{file}: "{arrival.conversation.title}": {result}')
        elif result:
            tally.conversations += 1
            tally.messages += result
        else:
            tally.unchanged += 1
    batch.clear()


def _summary(tally: Tally) -> str:
    return (
        f"{format_count(tally.conversations)} conversations with {format_count(tally.messages)} new messages taken in, "
        f"{format_count(tally.unchanged)} were there already, {format_count(tally.refusals)} refused"
    )
