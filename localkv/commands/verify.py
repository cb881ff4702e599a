"""`localkv verify [--fix]`: proves on this very machine that cache and conversations are what they should be.

Torch-free; needs no model: record files describe themselves. Reading alone is safe while a chat goes on; mending needs the lock of the
store. Conversations are never mended, only reported: `localkv sessions restore` does that. Thread: main.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Any

from localkv.chat.audit import Flaw, audit_conversations
from localkv.commands.machine import existing, ssd_default
from localkv.commands.output import ProgressLine, print_json, print_lines
from localkv.commands.setup import Setup
from localkv.config import MemorySection
from localkv.errors import ConfigError, StoreError
from localkv.events import EventLog
from localkv.paths import PRIVATE_DIR, PRIVATE_FILE, Home
from localkv.service.caretaker import alone
from localkv.tiers.audit import Audit, Finding, audit_store
from localkv.tiers.upkeep import Upkeep
from localkv.units import format_bytes, format_count, parse_bytes

BUSY = "nothing was mended: a chat is running and its engine owns the cache; quit every localkv and run this again"


@dataclass(frozen=True, slots=True)
class Problem:
    """One line of the report."""

    kind: str
    what: str
    fixed: bool = False


def run(setup: Setup, *, fix: bool, as_json: bool) -> int:
    """Look, mend if asked to, and print; the exit code is 1 if a problem remains."""
    home, trouble = setup.home, ""
    budget = _budget(setup)
    audit, chats = _look(home, budget), audit_conversations(home.database)
    open_places = _open_places(home)
    if fix and (audit.findings or open_places):
        trouble = _mend(home, audit.findings, open_places)
        after = _look(home, budget)
        problems = [*_outcome(audit.findings, after.findings), *_outcome(open_places, _open_places(home))]
        audit.records, audit.n_bytes = after.records, after.n_bytes
    else:
        problems = [Problem(each.kind, each.what) for each in (*audit.findings, *open_places)]
    problems += [Problem(flaw.kind, flaw.what) for flaw in chats.flaws]
    report: dict[str, Any] = {
        "ok": all(problem.fixed for problem in problems),
        "checked_records": audit.records,
        "checked_bytes": audit.n_bytes,
        "checked_conversations": chats.conversations,
        "checked_messages": chats.messages,
        "heads_not_cached": len(chats.heads - _cached(home)),
        "problems": [{"kind": problem.kind, "what": problem.what, "fixed": problem.fixed} for problem in problems],
    }
    if trouble:
        report["message"] = trouble
    print_json(report) if as_json else print_lines(_lines(report, fix=fix))
    return 0 if report["ok"] else 1


def _look(home: Home, budget: int | None) -> Audit:
    bar = ProgressLine(sys.stderr)
    try:
        return audit_store(home.store, budget, lambda done, total: bar.say(f"checking records: {done:,} of {total:,}"))
    finally:
        bar.end()


def _mend(home: Home, findings: list[Finding], open_places: list[Flaw]) -> str:
    """Mend what can be mended; why not, if not."""
    with alone(home) as nobody:
        if not nobody:
            return BUSY
        for flaw in open_places:
            path = home.data_dir / flaw.what.split(" ")[-1]
            path.chmod(PRIVATE_DIR if path.is_dir() else PRIVATE_FILE)
        if not home.store.is_dir():
            return ""
        upkeep = Upkeep.open(home.store, EventLog(home.event_log))
        try:
            upkeep.mend(findings)
        except StoreError as error:
            return str(error)
        finally:
            upkeep.close()
    return ""
