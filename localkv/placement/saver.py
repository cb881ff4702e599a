"""Saving: unsaved records go to SSD in small groups, within the budget, when there is time.

Torch-free. Thread: the control thread; writing itself is done by the transfers' one writer thread, which is also the only one
that changes the store. A failed save leaves its records in RAM, unsaved; it is tried again after RETRY_SECONDS or at a flush.

The newest checkpoint of a conversation replaces its predecessor on SSD, in the commit that makes it durable.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localkv.errors import LocalKVError, NoSpace, StoreError
from localkv.events import EventLog, Reason
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.policy import Resident, victims
from localkv.tiers.catalogue import Row
from localkv.tiers.disk import Store
from localkv.tiers.transfer import Lane, Outcome, Transfers

GROUP = 4
"""Records per commit: enough to share the syncs, few enough that an exit is not kept waiting."""

RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class SsdLimits:
    """What the store may take."""

    budget_bytes: int
    free_floor_bytes: int


@dataclass(frozen=True, slots=True)
class _Saved:
    rows: list[Row]
    evicted: list[tuple[str, str]]


class Saver:
    """The queue of unsaved records."""

    def __init__(
        self, store: Store | None, index: Index, transfers: Transfers, limits: SsdLimits, events: EventLog,
        tell: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._index = index
        self._transfers = transfers
        self._limits = limits
        self._events = events
        self._tell = tell
        self.settled: Callable[[], None] = lambda: None
        """Called when a group is done, however it ended: places may have become free."""
        self._busy = False
        self._retry_at = 0.0
        self._touched: dict[str, float] = {}
        self.trouble = ""
        """Why the last save failed; empty when it did not."""
        self.saved_records = 0
        self.saved_bytes = 0
        self.evicted_records = 0
        self.evicted_bytes = 0

    @property
    def possible(self) -> bool:
        """Whether saving may succeed now."""
        return self._store is not None and time.monotonic() >= self._retry_at

    @property
    def idle(self) -> bool:
        """Nothing is being saved, and nothing waits that could be."""
        return not self._busy and not (self.possible and self.waiting())

    def waiting(self) -> list[Entry]:
        """Unsaved records, parents before children."""
        unsaved = [
            entry for entry in self._index.entries.values() if entry.saving is Saving.UNSAVED and entry.place is not None
        ]
        return sorted(unsaved, key=lambda entry: entry.row.position)

    def retry(self) -> None:
        """Forget that the last save failed."""
        self._retry_at = 0.0

    def touch(self, names: Sequence[str], when: float) -> None:
        """Remember that records on SSD were wanted; written with the next group."""
        self._touched.update(dict.fromkeys(names, when))

    def start(self) -> bool:
        """Begin saving the next group unless one is under way; True if one is under way now."""
        if self._busy:
            return True
        entries = self.waiting()[:GROUP] if self.possible else []
        if not entries and not self._touched:
            return False
        if self._store is None:
            return False
        self._busy = True
        for entry in entries:
            entry.pins += 1
        store, n_bytes = self._store, sum(entry.row.n_bytes for entry in entries)
        work = self._job(store, entries)
        self._transfers.submit(Lane.SAVE, n_bytes, work, lambda outcome: self._tell(lambda: self._done(entries, outcome)))
        return bool(entries)

    def _job(self, store: Store, entries: Sequence[Entry]) -> Callable[[], _Saved]:
        batch = []
        for entry in entries:
            assert entry.place is not None
            assert entry.ids is not None
            batch.append((entry.row.record(entry.ids), entry.place.view(entry.row.n_bytes)))
        replaces = [entry.replaces for entry in entries if entry.replaces]
        touched, self._touched = self._touched, {}
        residents = self._residents(exclude={entry.row.name for entry in entries})
        limits, need = self._limits, sum(entry.row.n_bytes + 8192 for entry in entries)

        def work() -> _Saved:
            evicted = _make_room(store, residents, limits, need) if entries else []
            for when in set(touched.values()):
                store.touch([name for name, used in touched.items() if used == when], when)
            return _Saved(store.publish(batch, replaces) if batch else [], evicted)

        return work

    def _residents(self, exclude: set[str]) -> list[Resident]:
        assert self._store is not None
        own = [
            Resident((self._store.identity, name), entry.used, entry.row.position, entry.row.file_bytes, entry.holds > 0)
            for name, entry in self._index.entries.items()
            if entry.saving is Saving.SAVED and name not in exclude
        ]
        others = self._store.oldest(64, self._store.identity)
        return [*own, *(Resident((identity, name), 0.0, 1 << 40, n, False) for identity, name, n in others)]

    def _done(self, entries: Sequence[Entry], outcome: Outcome[_Saved]) -> None:
        self._busy = False
        for entry in entries:
            entry.pins -= 1
        if outcome.value is None:
            self._failed(outcome.error)
        else:
            self._succeeded(entries, outcome.value, outcome.seconds)
        self.settled()

    def _succeeded(self, entries: Sequence[Entry], saved: _Saved, seconds: float) -> None:
        self.trouble = ""
        for entry, row in zip(entries, saved.rows, strict=True):
            entry.row, entry.saving = row, Saving.SAVED
            self.saved_records += 1
            self.saved_bytes += row.file_bytes
            self._events.emit(
                "move", record=row.name[:12], source="ram", target="ssd", bytes=row.n_bytes,
                ms=round(seconds * 1000, 1), reason="save",
            )  # fmt: skip
            if entry.replaces in self._index.entries:
                self._superseded(entry.replaces)
        for identity, name in saved.evicted:
            self._evicted(identity, name)

    def _superseded(self, name: str) -> None:
        entry = self._index.entries[name]
        entry.saving = Saving.SPARE
        if entry.place is None:
            self._index.remove(name, "superseded")

    def _evicted(self, identity: str, name: str) -> None:
        self.evicted_records += 1
        entry = self._index.entries.get(name)
        if entry is None or self._store is None or identity != self._store.identity:
            return
        self.evicted_bytes += entry.row.file_bytes
        self._events.emit("move", record=name[:12], source="ssd", target="", bytes=entry.row.n_bytes, reason=Reason.EVICTED)
        entry.saving = Saving.SPARE
        if entry.place is None:
            self._index.remove(name, Reason.EVICTED)

    def _failed(self, error: LocalKVError | None) -> None:
        self.trouble = str(error)
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._events.emit("save.failed", error=type(error).__name__, message=self.trouble)

    def clear_up(self) -> None:
        """Delete what an earlier engine left half written. The writing thread does it, so nothing is half published meanwhile."""
        store = self._store
        if store is not None:
            self._transfers.submit(Lane.DELETE, 0, lambda: _sweep(store), self._struck)

    def strike(self, name: str, reason: str) -> None:
        """Take a bad record's row and file out of the store."""
        store = self._store
        if store is None:
            return
        self._transfers.submit(Lane.DELETE, 0, lambda: store.quarantine(name, reason), self._struck)

    def _struck(self, outcome: Outcome[None]) -> None:
        if outcome.error is not None:
            self._events.emit("strike.failed", message=str(outcome.error))


def _sweep(store: Store) -> None:
    while store.sweep(age_seconds=0.0):
        pass


def _make_room(store: Store, residents: Sequence[Resident], limits: SsdLimits, need_bytes: int) -> list[tuple[str, str]]:
    """Evict until `need_bytes` fit budget and floor; returns who went. Writing thread. Raises NoSpace."""
    over_budget = store.used_bytes() + need_bytes - limits.budget_bytes
    under_floor = limits.free_floor_bytes + need_bytes - store.free_bytes()
    excess = max(over_budget, under_floor)
    if excess <= 0:
        return []
    chosen = victims(residents, excess)
    if sum(resident.n_bytes for resident in chosen) < excess:
        raise NoSpace(f"{need_bytes:,} bytes of KV records in {store.root}", need_bytes, max(0, need_bytes - excess))
    pairs = [resident.key for resident in chosen]
    store.remove_any(pairs, Reason.EVICTED)
    return pairs


def open_store(root: Path, open_it: Callable[[], Store], events: EventLog) -> tuple[Store | None, str]:
    """(the store, ""), or (None, why not): a chat goes on without the SSD tier."""
    try:
        return open_it(), ""
    except StoreError as error:
        events.emit("store.unavailable", message=str(error), path=str(root))
        return None, str(error)
