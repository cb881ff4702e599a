"""Saving: unsaved records go to SSD in small groups, within the budget, when there is time.

Torch-free. Thread: the control thread; the work itself is done by the transfers' one writer thread, which is also the only one
that changes the store. One job at a time, each in this order: bad files out, leaving records out, warmths noted, new records
in. So a record that was struck out or evicted and is made again is never taken for the one that is about to go.

Above the high mark of the budget (or below the free-space floor) the least valuable leave, down to the low mark, in the
background. What is chosen disappears from the index at once: no plan can count on it any more. A failed save leaves its
records in RAM, unsaved; it is tried again after RETRY_SECONDS or at a flush.

The newest checkpoint of a conversation replaces its predecessor on SSD, in the commit that makes it durable.
"""

import contextlib
import time
from collections.abc import Callable, Sequence

from localkv.errors import BadRecord, LocalKVError, NoSpace, StoreError
from localkv.events import EventLog, Reason
from localkv.figures import Written
from localkv.flows import Traffic
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.jobs import Job, Pair, Report, SsdLimits, carry_out, sweep_all
from localkv.placement.judge import Judge
from localkv.placement.mailbox import Work
from localkv.placement.policy import Order, Resident, admits, victims
from localkv.tiers.catalogue import Row
from localkv.tiers.disk import Store
from localkv.tiers.moves import Move
from localkv.tiers.publish import SUPERSEDED
from localkv.tiers.transfer import Lane, Outcome, Transfers
from localkv.tiers.written import today

GROUP = 4
"""Records per commit: enough to share the syncs, few enough that an exit is not kept waiting."""

RETRY_SECONDS = 30.0

LOOK_AT_ALL = 5000
"""Of more records than this only the coldest are valued when some must go: valuing 100,000 takes more than a second."""


class Saver:
    """The queue of unsaved records, and of those that leave the SSD.

    `settled` is called when a job is done, however it ended: places may have become free.
    """

    def __init__(
        self, store: Store | None, index: Index, judge: Judge, transfers: Transfers, limits: SsdLimits, events: EventLog,
        tell: Callable[[Work], None], tell_later: Callable[[float, Work], None], settled: Callable[[], None],
        traffic: Traffic,
    ) -> None:  # fmt: skip
        self._store = store
        self._index = index
        self._judge = judge
        self._transfers = transfers
        self._limits = limits
        self._events = events
        self._tell = tell
        self._tell_later = tell_later
        self._settled = settled
        self._busy = False
        self._retry_at = 0.0
        self._bad: dict[str, str] = {}
        self._leaving: dict[Pair, tuple[str, int]] = {}
        """(reason, file bytes) of what is to go and still has its row."""
        self._warm: dict[str, float] = {}
        self._swept_up = False
        self._replaced: set[str] = set()
        """Checkpoints that have a newer one on SSD and could not go yet because a turn needs them."""
        self.trouble = ""
        """Why the last save failed; empty when it did not."""
        self.refusal = Reason.NO_ROOM
        """The reason for a record that is lost because it can't be saved."""
        self._traffic = traffic
        self._counted_bytes = 0
        """Of what the store has written, counted in `traffic`."""
        self.foreign_bytes = 0
        """What the store holds beside the records of the index: other identities', the catalogue, the quarantine."""
        self._written = Written()
        self._written_day = ""
        self._look()

    def _look(self) -> None:
        """What the store holds and was written before."""
        if self._store is not None:
            with contextlib.suppress(StoreError):  # the first save that succeeds tells it
                self.foreign_bytes = self._store.used_bytes() - self._index.saved_bytes
                self._written, self._written_day = self._store.written(time.time()), today(time.time())

    @property
    def possible(self) -> bool:
        """Whether saving may succeed now."""
        return self._store is not None and time.monotonic() >= self._retry_at

    @property
    def idle(self) -> bool:
        """Nothing is being done on SSD, and nothing waits that could be."""
        waits = bool(self._index.unsaved or self._bad or self._leaving)
        return not self._busy and not (self.possible and waits)

    def count_written(self) -> None:
        """Tell the traffic what the store has written since the last time."""
        if self._store is not None:
            written = self._store.written_bytes
            self._traffic.written_bytes += written - self._counted_bytes
            self._counted_bytes = written

    @property
    def written(self) -> Written:
        """Bytes of record files, as the last job knew them; before the first job of a day nothing was written on it."""
        same_day = self._written_day == today(time.time())
        return self._written if same_day else Written(total_bytes=self._written.total_bytes)

    def waiting(self) -> list[Entry]:
        """Unsaved records, parents before children."""
        return sorted(self._index.unsaved.values(), key=lambda entry: entry.row.position)

    def retry(self) -> None:
        """Forget that the last save failed."""
        self._retry_at = 0.0

    def touch(self, entries: Sequence[Entry], now: float) -> None:
        """Remember how warm records on SSD are; written with the next job."""
        self._warm.update((entry.row.name, entry.warmth(now).slow) for entry in entries if entry.saving is Saving.SAVED)

    def clear_up(self, lane: Lane = Lane.DELETE) -> None:
        """Delete what an earlier engine left half written, once. On the writing thread: nothing is half published meanwhile.

        Files without a row take space that no sum of rows knows of, so the first save has this done before it (`lane` SAVE).
        """
        store, swept, self._swept_up = self._store, self._swept_up, True
        if store is not None and not swept:
            self._transfers.submit(lane, 0, lambda: sweep_all(store), self._swept)

    def _swept(self, outcome: Outcome[None]) -> None:
        if outcome.error is not None:
            self._events.emit("sweep.failed", message=str(outcome.error))

    def strike(self, error: BadRecord) -> None:
        """A record's file is bad: row and file leave the store. The record goes with them, unless RAM has it: then it is saved anew."""
        name, reason = error.name, error.reason
        entry = self._index.entries[name]
        if entry.saving is not Saving.SAVED:
            return  # it has been sent off from SSD meanwhile
        if entry.place is None:
            self._index.remove(name, reason)
        else:
            self._index.mark(entry, Saving.UNSAVED)
        Move(name, "ssd", "", entry.row.n_bytes, 0.0, reason).log(self._events)
        self._events.emit("strike", record=name[:12], reason=reason, detail=error.detail)
        if self._store is not None:
            self._bad[name] = reason
            self.start()

    # ---- jobs ----

    def start(self) -> bool:
        """Begin the next job unless one is under way; True if one is under way now."""
        store = self._store
        if self._busy or store is None or not self.possible:
            return self._busy
        for name in list(self._replaced):
            self.retire(name)
        entries = self.waiting()[:GROUP]
        if not (entries or self._bad or self._leaving or self._warm):
            return False
        if entries:
            self.clear_up(Lane.SAVE)
        self._busy = True
        going = self._send_off([entry.replaces for entry in entries if entry.replaces])
        job = self._job(entries, [entry.row.name for entry in going])
        limits, high = self._limits, self._judge.policy.high
        for entry in entries:
            entry.pins += 1
        self._transfers.submit(
            Lane.SAVE if entries else Lane.DELETE,
            job.n_bytes,
            lambda: carry_out(job, store, limits, high),
            lambda outcome: self._tell(lambda: self._done(job, entries, going, outcome)),
        )
        return True

    def _send_off(self, names: Sequence[str]) -> list[Entry]:
        """The checkpoints that the next job replaces are gone from the index as it begins: no plan can count on them any more."""
        going = []
        for name in names:
            entry = self._index.entries.get(name)
            if entry is not None and entry.saving is Saving.SAVED and not (entry.holds or entry.is_read):
                self._spare(entry, SUPERSEDED)
                going.append(entry)
        return going

    def _call_back(self, going: Sequence[Entry]) -> None:
        """The job came to nothing: what it would have replaced is still there."""
        for entry in going:
            if self._index.is_known(entry):
                self._index.mark(entry, Saving.SAVED)
            elif entry.row.name not in self._index.entries:
                entry.saving = Saving.SAVED
                self._index.add(entry)

    def _job(self, entries: Sequence[Entry], replaces: Sequence[str]) -> Job:
        batch = []
        for entry in entries:
            assert entry.place is not None
            assert entry.ids is not None
            batch.append((entry.row.record(entry.ids), entry.place.view(entry.row.n_bytes)))
        leaving = tuple((pair, why) for pair, (why, _) in self._leaving.items())
        reads = not self._index.is_whole
        return Job(tuple(self._bad.items()), leaving, dict(self._warm), tuple(batch), tuple(replaces), reads)

    def _done(self, job: Job, entries: Sequence[Entry], going: Sequence[Entry], outcome: Outcome[Report]) -> None:
        self._busy = False
        for entry in entries:
            entry.pins -= 1
        if outcome.value is None or outcome.value.rows is None:
            self._call_back(going)
        if outcome.value is None:
            self._failed(outcome.error)
        else:
            self._forget_done(job, outcome.value.removal_seconds)
            if outcome.value.written is not None:
                self._written, self._written_day = outcome.value.written, today(time.time())
            if outcome.value.found is not None:
                self._index.complete(*outcome.value.found)
            self._account(job, entries, going, outcome.value, outcome.seconds)
        self._settled()

    def _forget_done(self, job: Job, removal_seconds: float) -> None:
        for name, _ in job.bad:
            self._bad.pop(name, None)
        for pair, why in job.leaving:
            _, n_bytes = self._leaving.pop(pair, (why, 0))
            if why == Reason.EVICTED:
                self._traffic.ssd_out.add(n_bytes, removal_seconds / len(job.leaving))
        for name, when in job.warm.items():
            if self._warm.get(name) == when:
                del self._warm[name]

    def _account(self, job: Job, entries: Sequence[Entry], going: Sequence[Entry], report: Report, seconds: float) -> None:
        if report.rows is None:
            self._make_room(job, entries, report)
            return
        self.trouble = ""
        for entry in going:
            Move(entry.row.name, "ssd", "", entry.row.n_bytes, 0.0, SUPERSEDED).log(self._events)
        self._saved(entries, report.rows, seconds / max(1, len(report.rows)))
        self._replaced.update(entry.replaces for entry in entries if entry.replaces)
        self.foreign_bytes = report.used_bytes - self._index.saved_bytes
        excess = self._judge.policy.excess(report.used_bytes, self._limits.budget_bytes)
        self._evict(self._choose(report, excess), "trim")

    # ---- who leaves the SSD ----

    def _make_room(self, job: Job, entries: Sequence[Entry], report: Report) -> None:
        """The new records do not fit: the least valuable go, down to the low mark, if the new ones are dearer."""
        wanted = report.used_bytes + job.n_bytes
        needed = max(wanted - self._limits.budget_bytes, self._limits.free_floor_bytes + job.n_bytes - report.free_bytes)
        excess = max(needed, self._judge.policy.excess(wanted, self._limits.budget_bytes))
        now, half_life = time.time(), self._judge.half_life
        new = [self._judge.on_ssd(entry, now) for entry in entries]
        newcomer = max((int(resident.rank), resident.score(half_life)) for resident in new)
        chosen = self._choose(report, excess, newcomer)
        if admits(newcomer, chosen, needed, half_life):
            self._evict(chosen, Reason.EVICTED)
        else:
            what = f"{job.n_bytes:,} bytes of KV records in {self._store.root if self._store else ''}"
            self._failed(NoSpace(what, job.n_bytes, max(0, job.n_bytes - needed)))

    def _choose(self, report: Report, excess: int, newcomer: Order | None = None) -> list[Resident]:
        if excess <= 0:
            return []
        judge = self._judge
        saved = [entry for entry in self._index.entries.values() if entry.saving is Saving.SAVED]
        others = [judge.stranger(cold) for cold in report.strangers if (cold.identity, cold.name) not in self._leaving]
        cold = judge.coldest(saved, 2 * excess) if len(saved) > LOOK_AT_ALL else saved
        chosen = victims([*judge.all_on_ssd(cold), *others], excess, judge.half_life, newcomer)
        if len(cold) < len(saved) and sum(resident.n_bytes for resident in chosen) < excess:
            chosen = victims([*judge.all_on_ssd(saved), *others], excess, judge.half_life, newcomer)
        return chosen

    def _evict(self, chosen: Sequence[Resident], reason: str) -> None:
        for resident in chosen:
            Move(resident.key[1], "ssd", "", resident.n_bytes, 0.0, reason).log(self._events)
            entry = self._index.entries.get(resident.key[1]) if resident.key[0] == self._judge.identity else None
            if entry is None:
                self._leaving[resident.key] = (Reason.EVICTED, resident.n_bytes)
            else:
                self._drop(entry, Reason.EVICTED)

    def retire(self, name: str) -> None:
        """A newer checkpoint, which is on SSD already, has replaced this one: it goes as soon as no turn needs it."""
        self._replaced.discard(name)
        entry = self._index.entries.get(name)
        if entry is None or entry.saving is not Saving.SAVED:
            return
        if entry.holds or entry.is_read:
            self._replaced.add(name)
        else:
            Move(name, "ssd", "", entry.row.n_bytes, 0.0, SUPERSEDED).log(self._events)
            self._drop(entry, SUPERSEDED)

    def _drop(self, entry: Entry, reason: str) -> None:
        """It is gone from the index now, unless it is in RAM, and from the SSD with the next job."""
        name = entry.row.name
        self._leaving[(self._judge.identity, name)] = (reason, entry.row.file_bytes)
        self._spare(entry, reason)

    def _spare(self, entry: Entry, reason: str) -> None:
        self._index.mark(entry, Saving.SPARE)
        entry.why_spare = reason
        if entry.place is None:
            self._index.remove(entry.row.name, reason)

    # ---- what came of it ----

    def _saved(self, entries: Sequence[Entry], rows: Sequence[Row], seconds: float) -> None:
        now = time.time()
        for entry, row in zip(entries, rows, strict=True):
            if not self._index.is_known(entry):
                continue
            self._index.mark(entry, Saving.SAVED, row)
            self.touch([entry] if entry.warmth(now).slow > row.used else [], now)
            self._traffic.ssd_in.add(row.file_bytes, seconds)
            Move(row.name, "ram", "ssd", row.n_bytes, seconds, "save").log(self._events)

    def _failed(self, error: LocalKVError | None) -> None:
        self.trouble = str(error)
        self.refusal = Reason.BUDGET if isinstance(error, NoSpace) else Reason.NO_ROOM
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._tell_later(RETRY_SECONDS, self.start)
        self._events.emit("save.failed", error=type(error).__name__, message=self.trouble)


def open_store(store: Store, events: EventLog) -> str:
    """Prepare `store`; why not, if that fails: a chat goes on without the SSD tier, and each save tries again."""
    try:
        store.prepare()
    except StoreError as error:
        events.emit("store.unavailable", message=str(error), path=str(store.root))
        return str(error)
    return ""
