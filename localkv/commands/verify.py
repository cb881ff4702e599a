"""`localkv verify [--fix]`: proves on this very machine that cache and conversations are what they should be.

Torch-free; needs no model: record files describe themselves. All of it is safe while a chat goes on: bad
records are then struck out by its engine, and what needs the store for itself waits. Conversations are never mended, only reported: `localkv sessions restore` is for them; half-made copies of them are removed.
Thread: main.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localkv.chat.audit import ChatAudit, audit_conversations
from localkv.chat.backups import PARTS, clear_unfinished, unfinished
from localkv.commands.machine import existing, folder_bytes, ssd_default
from localkv.commands.output import ProgressLine, print_json, print_lines
from localkv.commands.setup import Setup
from localkv.errors import ConfigError, LocalKVError, StoreError
from localkv.events import EventLog
from localkv.paths import PRIVATE_DIR, PRIVATE_FILE, Home
from localkv.service.caretaker import alone, forget
from localkv.tiers.audit import OTHERS, Audit, Finding, audit_store
from localkv.tiers.catalogue import CATALOGUE, read_rows
from localkv.tiers.upkeep import Upkeep
from localkv.units import format_bytes, format_count, parse_bytes

BUSY = (
    "not all of it can be mended while a chat runs, because its engine owns the cache; quit every localkv and run this again"
)

STRUCK_OUT = {"missing_file", "checksum", "short_read", "read_error", "identity_changed", "shapes"}
"""What is wrong with a record itself: beside an engine row and file go through it."""

YOUNG_SECONDS = 60.0
"""While an engine runs, files that it wrote just now may have no row yet."""


def run(setup: Setup, *, fix: bool, as_json: bool) -> int:
    """Look, mend if asked to, and print; the exit code is 1 if a problem remains."""
    home = setup.home
    before = look(setup)
    after, trouble = before, ""
    if fix and before.findings:
        trouble = mend(setup, before.findings)
        after = look(setup)
    report = make_report(before, after, audit_conversations(home.database), home)
    if trouble:
        report["message"] = trouble
    print_json(report) if as_json else print_lines(lines(report, mendable=bool(after.findings)))
    return 0 if report["ok"] else 1


def look(setup: Setup) -> Audit:
    """The cache, and who may read what is private."""
    bar = ProgressLine(sys.stderr)
    young = YOUNG_SECONDS if _is_busy(setup.home) else 0.0
    try:
        audit = audit_store(
            setup.home.store,
            _budget(setup),
            lambda done, total: bar.say(f"checking records: {done:,} of {total:,}"),
            young_seconds=young,
        )
    finally:
        bar.end()
    audit.findings += [*_open_places(setup.home), *_unfinished(setup.home)]
    return audit


def mend(setup: Setup, findings: list[Finding]) -> str:
    """Mend what can be mended; why not, if not."""
    home = setup.home
    records = [finding for finding in findings if finding.kind != "permissions" and not _is_copy(finding, home)]
    try:
        for finding in findings:
            if finding.kind == "permissions" and finding.path is not None:
                finding.path.chmod(PRIVATE_DIR if finding.path.is_dir() else PRIVATE_FILE)
        clear_unfinished(home.database, home.backups)
        with alone(home) as nobody:
            if nobody and home.store.is_dir():
                with contextlib.closing(Upkeep.open(home.store, EventLog(home.event_log))) as upkeep:
                    upkeep.mend(records)
        return "" if nobody else _mend_beside_engine(setup, records)
    except (LocalKVError, OSError) as error:
        return f"not everything was mended: {error}"


def _mend_beside_engine(setup: Setup, findings: list[Finding]) -> str:
    """Have the engine strike out the records that are bad; the rest is for whoever is alone with the cache. Raises LocalKVError."""
    bad = [finding for finding in findings if finding.kind in STRUCK_OUT]
    if bad:
        forget(setup.home, setup.load(), (), [(finding.identity, finding.name) for finding in bad])
    return BUSY if len(bad) < len(findings) else ""


def make_report(before: Audit, after: Audit, chats: ChatAudit, home: Home) -> dict[str, Any]:
    """What --json prints. A problem that was found before and not after is fixed."""
    remaining = {_key(finding) for finding in after.findings}
    known = {_key(finding) for finding in before.findings}
    found = [*before.findings, *(finding for finding in after.findings if _key(finding) not in known)]
    problems = [{"kind": f.kind, "what": f.what, "fixed": _key(f) not in remaining} for f in found]
    problems += [{"kind": flaw.kind, "what": flaw.what, "fixed": False} for flaw in chats.flaws]
    return {
        "ok": all(problem["fixed"] for problem in problems),
        "checked_records": after.records,
        "checked_bytes": after.n_bytes,
        "checked_conversations": chats.conversations,
        "checked_messages": chats.messages,
        "heads_not_cached": len(chats.heads - _cached(home)),
        "problems": problems,
    }


def lines(report: dict[str, Any], *, mendable: bool) -> list[str]:
    """The report for people; `mendable`: --fix would help."""
    counts = (
        f"{format_count(report['checked_records'])} records ({format_bytes(report['checked_bytes'])})",
        f"{format_count(report['checked_conversations'])} conversations",
        f"{format_count(report['checked_messages'])} messages",
    )
    said = [f"checked {', '.join(counts)}"]
    said += [f"{'mended' if each['fixed'] else each['kind']}: {each['what']}" for each in report["problems"]]
    if report["heads_not_cached"]:
        said.append(
            f"{format_count(report['heads_not_cached'])} older states are not cached: that costs time and nothing else"
        )
    if "message" in report:
        said.append(report["message"])
    elif report["ok"]:
        said.append("everything is as it should be" if not report["problems"] else "everything is as it should be now")
    elif mendable:
        said.append("to mend it, run: localkv verify --fix; nothing but cached state can be lost by that")
    return said


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.identity, finding.name, finding.path


def _is_busy(home: Home) -> bool:
    if not home.cache_dir.is_dir():
        return False
    with alone(home) as nobody:
        return not nobody


def _budget(setup: Setup) -> int | None:
    """What the store may take; None if the settings cannot be read, which is another command's matter."""
    home = setup.home
    try:
        setting = setup.load().memory.ssd_store
    except ConfigError:
        return None
    if setting != "auto":
        return parse_bytes(setting)
    usage = shutil.disk_usage(existing(home.cache_dir))
    return ssd_default(usage.total, usage.free, folder_bytes(home.store))


def _open_places(home: Home) -> Iterator[Finding]:
    """Private files and folders outside of the store that others may read."""
    places = [home.data_dir, home.cache_dir, home.engine_key, home.digests, home.selftests]
    places += [Path(f"{home.database}{suffix}") for suffix in PARTS]
    for folder in (home.backups, home.logs):
        places += [folder, *folder.rglob("*")]
    for place in places:
        with contextlib.suppress(FileNotFoundError):  # a face that ends takes its log along
            if os.name != "nt" and place.stat().st_mode & OTHERS:
                yield Finding("permissions", f"others may read {place}", path=place)


def _unfinished(home: Home) -> Iterator[Finding]:
    """Copies of the conversations that were never finished."""
    for path in unfinished(home.database, home.backups):
        yield Finding("temp_file", f"{path} is a copy of conversations that was cut off", path=path)


def _is_copy(finding: Finding, home: Home) -> bool:
    return finding.path is not None and finding.path.parent in {home.data_dir, home.backups}


def _cached(home: Home) -> set[tuple[str, str]]:
    try:
        return {(identity, row.name) for identity, row in read_rows(home.store / CATALOGUE)}
    except StoreError:
        return set()
