"""The Snapshot: everything the panel shows, put together from what the parts know.

Torch-free. Thread: any; each number may be a moment old.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from localkv.events import Event, EventLog
from localkv.figures import Card, Written
from localkv.kv.record import Head
from localkv.messages import Snapshot
from localkv.placement.counts import at_rest
from localkv.placement.rates import Forecast
from localkv.tally import Tally
from localkv.tenant import Tenant
from localkv.units import format_bytes

if TYPE_CHECKING:
    from localkv.opened import Opened

HIDDEN = frozenset({"epoch", "identity", "pid"})
"""Fields that belong into the log and tell a person nothing."""

RECENT = 30
"""Newest events in a snapshot."""


def take_snapshot(
    opened: "Opened | None", tally: Tally, tenant: Tenant, events: EventLog, epoch: str, heads: Sequence[Head] = ()
) -> Snapshot:
    """The state of the engine as of now; where no model is open nothing is held, and totals stand."""
    resumes = _resumes(opened, heads, tenant.head)
    counts = opened.keeper.counts() if opened is not None and opened.keeper is not None else None
    vram, ram, ssd = (counts.vram, counts.ram, counts.ssd) if counts else at_rest(tally.traffic)
    return Snapshot(
        request=0,
        epoch=epoch,
        model=opened.loaded.title if opened else "",
        device=str(opened.loaded.device) if opened else "",
        weights_bytes=opened.loaded.weights_bytes if opened else 0,
        slot_bytes=opened.live.used_bytes if opened else 0,
        slot_tokens=opened.live.position if opened else 0,
        context_tokens=opened.context_tokens if opened else 0,
        vram=vram,
        ram=ram,
        ssd=ssd,
        fallback_tokens=dict(tally.fallback_tokens),
        fallback_turns=tally.fallback_turns,
        turns=tally.turns,
        prompt_tokens=tally.prompt_tokens,
        restored_tokens=tally.restored_tokens,
        seconds_saved=round(tally.seconds_saved, 3),
        written_bytes=tally.traffic.written_bytes,
        unsaved_records=counts.unsaved if counts else 0,
        busy_conversation=tally.busy_conversation,
        last=tally.last,
        typed_tokens=tally.typed_tokens,
        resume_seconds={name: forecast.total_seconds for name, forecast in resumes.items()},
        resume_tiers={name: forecast.farthest for name, forecast in resumes.items()},
        fallback_prefills=dict(tally.fallback_prefills),
        restores=tally.restores(),
        preloads=counts.preloads if counts else tally.traffic.preloads,
        written=counts.written if counts else Written(),
        ttft_ms=tally.ttft_ms.spread(),
        tokens_per_second=tally.tokens_per_second.spread(),
        kept_records=counts.kept_records if counts else 0,
        card=tally.card if opened else Card(),
        pinned_bytes=counts.pinned_bytes if counts else 0,
        recent=tuple(sentence(event) for event in reversed([*events.recent][-RECENT:])),
    )


def _resumes(opened: "Opened | None", heads: Sequence[Head], slot_head: str) -> dict[str, Forecast]:
    """What coming back to the conversations that end in `heads` takes; nothing for the one that is in the slot."""
    if not heads or opened is None or opened.keeper is None:
        return {}
    resumes = opened.keeper.resumes(heads)
    return resumes | {slot_head: Forecast()} if slot_head in resumes else resumes


def sentence(event: Event) -> str:
    """An event as one short line."""
    fields = event.fields
    if event.kind == "move":
        return f"{fields.get('from') or 'computed'} > {fields.get('to') or 'gone'}  {format_bytes(float(fields.get('bytes') or 0))}  {fields.get('reason')}"
    if event.kind == "fallback":
        return f"fallback prefill  {fields.get('tokens')} tokens  {fields.get('reason')}"
    if event.kind == "model.unload":
        return f"model unloaded  {format_bytes(float(fields.get('bytes') or 0))} free again  {fields.get('reason')}"
    if event.kind == "turn":
        return f"turn  {fields.get('restored_tokens')} restored  {fields.get('prefilled_tokens')} computed"
    rest = "  ".join(f"{key}={value}" for key, value in fields.items() if key not in HIDDEN)
    return f"{event.kind}  {rest}".rstrip()
