"""`localkv stats`: what a running engine holds and has saved. Never starts one."""

from typing import NoReturn

import msgspec

from localkv.commands.output import print_json, print_lines, print_sections
from localkv.commands.setup import Setup
from localkv.errors import EngineUnavailable
from localkv.service.client import EngineClient
from localkv.service.protocol import Failed, Look, Snapshot, TierUse
from localkv.units import format_bytes, format_count, format_seconds

_ANSWER_SECONDS = 10.0

Section = dict[str, str | int | float | bool | None]


class _NoEngineError(Exception):
    """Raised in place of starting an engine."""


def run(setup: Setup, *, as_json: bool) -> None:
    """Print the engine's state; that none runs is an answer, too. Raises EngineUnavailable if one runs and does not answer."""
    snapshot = look(setup)
    if as_json:
        print_json({"engine": None if snapshot is None else _document(snapshot)})
    elif snapshot is None:
        print_lines(["No engine is running; `localkv chat` starts one."])
    else:
        print_sections(sections(snapshot))
        print_lines(["recent", *(f"  {line}" for line in snapshot.recent)] if snapshot.recent else [])


def look(setup: Setup) -> Snapshot | None:
    """The running engine's state; None if none runs."""
    client = EngineClient(setup.home, setup.load(), spawn=_refuse)
    try:
        client.connect()
    except _NoEngineError:
        return None
    try:
        request = Look(request=client.next_request())
        client.send(request)
        for reply in client.replies(request.request, _ANSWER_SECONDS):
            if isinstance(reply, Snapshot):
                return reply
            if isinstance(reply, Failed):
                raise EngineUnavailable(reply.message)
        return None
    finally:
        client.close()


def sections(snapshot: Snapshot) -> dict[str, Section]:
    """The state in the order in which people ask for it."""
    return {
        "engine": {
            "model": snapshot.model or None,
            "device": snapshot.device,
            "weights": format_bytes(snapshot.weights_bytes),
            "slot": f"{format_bytes(snapshot.slot_bytes)}, {format_count(snapshot.slot_tokens)} of {format_count(snapshot.context_tokens)} tokens",
            "unsaved records": snapshot.unsaved_records,
        },
        "tiers": {name: _tier(use) for name, use in (("vram", snapshot.vram), ("ram", snapshot.ram), ("ssd", snapshot.ssd))},
        "since it started": {
            "turns": snapshot.turns,
            "prompt tokens": snapshot.prompt_tokens,
            "of these restored": snapshot.restored_tokens,
            "time saved": format_seconds(snapshot.seconds_saved),
            "written to SSD": format_bytes(snapshot.written_bytes),
            "turns with fallback": snapshot.fallback_turns,
        },
        "computed again, tokens": dict(snapshot.fallback_tokens) or {"none": None},
    }  # fmt: skip


def _tier(use: TierUse) -> str:
    if not use.limit_bytes and not use.used_bytes:
        return "not used"
    return (
        f"{format_bytes(use.used_bytes)} of {format_bytes(use.limit_bytes)}, {format_count(use.records)} records "
        f"({use.held} held), in {format_count(use.swaps_in)}, out {format_count(use.swaps_out)}"
    )


def _document(snapshot: Snapshot) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(snapshot)
    for key in ("request", "type"):
        document.pop(key, None)
    return document


def _refuse() -> NoReturn:
    raise _NoEngineError
