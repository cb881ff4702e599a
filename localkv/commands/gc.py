"""`localkv gc [--dry-run]`: gives back what no conversation can be restored from: records without a conversation, files without a row, and
copies of conversations that a killed backup or restore left half made.

Costs time at most, should one of them be wanted after all. Beside a running engine the records go through it, and files without a
row are left to it. Thread: main.
"""

import contextlib
import sys
from typing import Any

from localkv.chat.backups import clear_unfinished, unfinished
from localkv.chat.store import ConversationStore
from localkv.commands.output import ProgressLine, print_json, print_lines
from localkv.commands.setup import Setup
from localkv.events import EventLog
from localkv.service.caretaker import alone, forget
from localkv.tiers.catalogue import Row
from localkv.tiers.upkeep import Leftover, Upkeep
from localkv.units import format_bytes, format_count


def run(setup: Setup, *, dry_run: bool, as_json: bool) -> int:
    """Find what is not needed and, unless `dry_run`, remove it. Raises LocalKVError."""
    setup.home.prepare()
    with contextlib.closing(ConversationStore.open(setup.home.database, setup.home.backups)) as store:
        logs = [log for _, log in store.token_logs()]
    rows, leftovers, busy = _sweep(setup, logs, dry_run=dry_run)
    copies = [Leftover(path, path.stat().st_size) for path in unfinished(setup.home.database, setup.home.backups)]
    if copies and not dry_run:
        clear_unfinished(setup.home.database, setup.home.backups)
    leftovers += copies
    if busy and rows and not dry_run:
        forget(setup.home, setup.load(), [], [(identity, row.name) for identity, row in rows])
    report = {
        "dry_run": dry_run,
        "records": len(rows),
        "files": len(leftovers),
        "bytes": sum(row.file_bytes for _, row in rows) + sum(each.n_bytes for each in leftovers),
    }
    print_json(report) if as_json else print_lines(_lines(report))
    return 0


def _sweep(setup: Setup, logs: list[bytes], *, dry_run: bool) -> tuple[list[tuple[str, Row]], list[Leftover], bool]:
    """What is not needed, removed already if nobody else owns the store; whether somebody does."""
    root = setup.home.store
    if not root.is_dir():
        return [], [], False
    bar = ProgressLine(sys.stderr)
    with alone(setup.home) as nobody, contextlib.closing(Upkeep.open(root, EventLog(setup.home.event_log))) as upkeep:
        bar.say("looking for what no conversation needs")
        rows = upkeep.not_needed(logs)
        leftovers = upkeep.leftovers() if nobody else []
        if nobody and not dry_run:
            upkeep.remove(rows, "not_needed")
            upkeep.clear(leftovers)
        bar.end()
        return rows, leftovers, not nobody


def _lines(report: dict[str, Any]) -> list[str]:
    what = f"{format_count(report['records'])} records and {format_count(report['files'])} other files"
    if not report["records"] and not report["files"]:
        return ["There is nothing that no conversation needs."]
    if report["dry_run"]:
        return [f"No conversation needs {what}; `localkv gc` would free {format_bytes(report['bytes'])}."]
    return [f"Removed {what} that no conversation needs; {format_bytes(report['bytes'])} are free again."]
