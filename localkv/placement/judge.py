"""What each record is worth here and now: policy's values, made from entries, rates, habit and what the person has open.

Torch-free; decides nothing itself (policy.py) and moves nothing. Thread: the control thread.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from localkv.kv.layout import Layout
from localkv.placement.index import Entry, Saving
from localkv.placement.policy import FRESH_SECONDS, Order, Policy, Rank, Resident, saved_by_ram, saved_by_ssd, saved_by_vram
from localkv.placement.rates import Rates
from localkv.placement.warmth import Habit, Warmth, first_use, used_again
from localkv.tiers.catalogue import Cold


@dataclass(slots=True)
class Judge:
    """The grounds on which records are compared."""

    layout: Layout
    identity: str
    policy: Policy = field(default_factory=Policy)
    rates: Rates = field(default_factory=Rates)
    habit: Habit = field(init=False)
    open_warmth: Warmth | None = None
    """Of the conversation in the slot; None before there is one. Its new records are as warm as it is."""
    open_names: set[str] = field(default_factory=set)
    """Records of the conversation in the slot."""
    kept_names: set[str] = field(default_factory=set)
    """Records of conversations that the person wants resident."""

    def __post_init__(self) -> None:
        self.habit = Habit(self.policy.half_lives)

    @property
    def half_life(self) -> float:
        return self.habit.half_life

    def open(self, before: Warmth | None, names: Iterable[str], now: float) -> None:
        """A conversation comes into the slot: how warm its newest record was (None: it is new), and its records."""
        self.habit = self.habit.after(before, now)
        self.open_warmth = first_use(now) if before is None else used_again(before, now, self.policy.half_lives)
        self.open_names = set(names)

    def show(self, names: Iterable[str]) -> None:
        """These are the records of the conversation in the slot, which was opened and not asked: it is no use of them."""
        self.open_names = set(names)

    def use(self, entries: Iterable[Entry], now: float) -> None:
        """Records were used by the conversation in the slot."""
        for entry in entries:
            entry.known_warmth = used_again(entry.warmth(now), now, self.policy.half_lives)

    def welcome(self, entry: Entry, now: float) -> None:
        """A record was made just now, in the conversation in the slot."""
        entry.known_warmth, entry.entered = self.open_warmth or first_use(now), now
        self.open_names.add(entry.row.name)

    def in_ram(self, entry: Entry, now: float) -> Resident:
        """As a resident of RAM. What can't leave now ranks as held."""
        place, saved = entry.place, entry.saving is Saving.SAVED
        assert place is not None, "only what is in RAM is a resident of it"
        held = entry.holds > 0 or entry.pins > 0 or entry.saving is Saving.UNSAVED
        worth = saved_by_ram(entry.row, self.layout, self.rates, on_ssd=saved)
        return self._resident(entry, now, len(place.memory), worth, held=held)

    def in_vram(self, entry: Entry, n_bytes: int, now: float) -> Resident:
        """As a resident of the device, in a place of `n_bytes`. What a newer state has replaced goes first."""
        worth = 0.0 if entry.saving is Saving.SPARE else saved_by_vram(self.rates, in_ram=entry.place is not None)
        return self._resident(entry, now, n_bytes, worth, held=entry.holds > 0)

    def newcomer(self, entry: Entry, now: float, *, pointed_at: bool) -> Order:
        """What a record on SSD that comes into RAM is compared by; `pointed_at`: as if it were used now."""
        warmth = entry.warmth(now)
        warmth = used_again(warmth, now, self.policy.half_lives) if pointed_at else warmth
        worth = saved_by_ram(entry.row, self.layout, self.rates, on_ssd=True)
        key = (self.identity, entry.row.name)
        resident = Resident(key, entry.row.parent, warmth.at(self.habit.pace), entry.row.position, entry.row.n_bytes, worth)
        return (Rank.ORDINARY, resident.score(self.half_life))

    def on_ssd(self, entry: Entry, now: float) -> Resident:
        """As a resident of the store."""
        worth = saved_by_ssd(entry.row, self.layout, self.rates)
        return self._resident(entry, now, entry.row.file_bytes, worth, held=entry.holds > 0 or entry.is_read)

    def all_on_ssd(self, entries: Sequence[Entry]) -> list[Resident]:
        """Each as a resident of the store."""
        now = time.time()
        return [self.on_ssd(entry, now) for entry in entries]

    def coldest(self, entries: Sequence[Entry], n_bytes: int) -> list[Entry]:
        """The coldest ordinary ones of them that add up to `n_bytes`, without those that one of the others needs."""
        pace, now = self.habit.pace, time.time()
        ordered = sorted(entries, key=lambda entry: entry.warmth(now).at(pace) if entry.known_warmth else entry.row.used)
        cold: dict[str, Entry] = {}
        for entry in ordered:
            if n_bytes <= 0:
                break
            if not (entry.holds or entry.is_read or entry.row.name in self.open_names or entry.row.name in self.kept_names):
                cold[entry.row.name] = entry
                n_bytes -= entry.row.file_bytes
        others = [entry for entry in ordered if entry.row.name not in cold]
        for other in others:
            parent = other.row.parent
            while (needed := cold.pop(parent, None)) is not None:
                parent = needed.row.parent
        return list(cold.values())

    def stranger(self, cold: Cold) -> Resident:
        """A record of another model, of which only the catalogue is known: taken for as dear per byte as a block of ours."""
        size = self.layout.block_tokens
        worth = self.rates.computing(size) / (size * max(1, self.layout.token_bytes)) - 1 / self.rates.read
        key, is_end = (cold.identity, cold.name), cold.kind == "checkpoint"
        return Resident(key, cold.parent, cold.used, cold.position, cold.file_bytes, worth, is_end=is_end)

    def _resident(self, entry: Entry, now: float, n_bytes: int, worth: float, *, held: bool) -> Resident:
        row = entry.row
        rank = Rank.HELD if held else self._rank(entry, now)
        warmth = entry.warmth(now).at(self.habit.pace)
        key, is_end = (self.identity, row.name), row.kind == "checkpoint"
        return Resident(key, row.parent, warmth, row.position, n_bytes, worth, rank, is_end)

    def _rank(self, entry: Entry, now: float) -> Rank:
        if entry.row.name in self.open_names:
            return Rank.OPEN
        if entry.row.name in self.kept_names:
            return Rank.KEPT
        return Rank.FRESH if 0 <= now - entry.entered < FRESH_SECONDS else Rank.ORDINARY
