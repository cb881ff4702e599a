"""Where every record is by the lines of the event log alone, and where the keeper says it is."""

from collections.abc import Iterable

from localkv.events import Event
from localkv.placement.index import Saving
from localkv.placement.keeper import Keeper

Tiers = dict[str, set[str]]
"""Records by tier, the first twelve letters of their names."""


def by_the_log(events: Iterable[Event], on_ssd: Iterable[str] = ()) -> Tiers:
    """Replay the moves; `on_ssd` was there before the first of them. No line may tell of a record that is not where it says."""
    where: Tiers = {"vram": set(), "ram": set(), "ssd": set(on_ssd)}
    for move in (event.fields for event in events if event.kind == "move"):
        name, source, target, reason = (str(move[key]) for key in ("record", "from", "to", "reason"))
        assert reason
        assert source == "slot" or name in where[source], move
        stays = target == "slot" or reason == "save" or (source, target) == ("ssd", "ram")
        if source != "slot" and not stays:
            where[source].remove(name)
        if target in where:
            assert target != source
            assert reason in {"save", "admit", "park", "restore", "preload"} or name in where[target], move
            where[target].add(name)
    return where


def by_the_book(keeper: Keeper) -> Tiers:
    """What the index knows. To be asked on the control thread."""
    entries = keeper._index.entries.values()
    return {
        "vram": {entry.row.name[:12] for entry in entries if entry.berth is not None},
        "ram": {entry.row.name[:12] for entry in entries if entry.place is not None},
        "ssd": {entry.row.name[:12] for entry in entries if entry.saving is Saving.SAVED},
    }
