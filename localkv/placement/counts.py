"""What is where and what has moved, in numbers: read off the parts of placement, and off the traffic that they count.

Torch-free; changes nothing. Thread: the control thread, on which the parts live.
"""

from dataclasses import dataclass

from localkv.figures import Preloads, TierUse, Written
from localkv.flows import Flow, Traffic
from localkv.placement.berths import Berths
from localkv.placement.index import Index, Saving
from localkv.placement.jobs import SsdLimits
from localkv.placement.judge import Judge
from localkv.placement.preload import Preload
from localkv.placement.saver import Saver
from localkv.tiers.host import HostPool


@dataclass(frozen=True, slots=True)
class Counts:
    """All numbers of placement, as of one moment."""

    vram: TierUse
    ram: TierUse
    ssd: TierUse
    unsaved: int
    trouble: str
    """Why the last save failed; empty when it did not."""
    written_bytes: int
    """Of record files, by this engine."""
    written: Written
    preloads: Preloads
    kept_records: int
    """Of conversations that the person wants resident."""
    private_records: int
    """Of private conversations: in memory alone, for ever."""
    pinned_bytes: int
    """Of RAM, registered with a device."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What counts."""

    index: Index
    pool: HostPool
    berths: Berths
    judge: Judge
    saver: Saver
    preload: Preload
    limits: SsdLimits
    traffic: Traffic

    def count(self) -> Counts:
        """The numbers now."""
        index, saver = self.index, self.saver
        saver.count_written()
        return Counts(
            vram=self._vram(),
            ram=self._ram(),
            ssd=self._ssd(),
            unsaved=len(index.unsaved),
            trouble=saver.trouble,
            written_bytes=self.traffic.written_bytes,
            written=saver.written,
            preloads=self.preload.figures,
            kept_records=sum(1 for name in self.judge.kept_names if name in index.entries),
            private_records=sum(1 for entry in index.in_ram.values() if entry.saving is Saving.PRIVATE),
            pinned_bytes=self.pool.pinned_bytes,
        )

    def _vram(self) -> TierUse:
        berths = self.berths
        berths.sweep()
        pool = berths.pool
        return moved(
            self.traffic.vram_in, self.traffic.vram_out,
            used_bytes=pool.used_bytes, limit_bytes=pool.limit_bytes, committed_bytes=pool.committed_bytes,
            places=pool.n_places, bound_bytes=pool.bound_bytes, records=len(self.index.in_vram), held=berths.n_held,
        )  # fmt: skip

    def _ram(self) -> TierUse:
        index, pool = self.index, self.pool
        return moved(
            self.traffic.ram_in, self.traffic.ram_out,
            used_bytes=pool.used_bytes, limit_bytes=pool.limit_bytes, committed_bytes=pool.committed_bytes,
            places=pool.n_places, bound_bytes=pool.bound_bytes,
            records=len(index.in_ram), held=sum(1 for entry in index.in_ram.values() if entry.holds or entry.pins),
        )  # fmt: skip

    def _ssd(self) -> TierUse:
        index = self.index
        return moved(
            self.traffic.ssd_in, self.traffic.ssd_out,
            used_bytes=index.saved_bytes + self.saver.foreign_bytes, limit_bytes=self.limits.budget_bytes,
            records=index.saved_records,
        )  # fmt: skip


def at_rest(traffic: Traffic) -> tuple[TierUse, TierUse, TierUse]:
    """VRAM, RAM and SSD while no model is open: they hold nothing that can be used now, and what they have moved stays moved."""
    return (
        moved(traffic.vram_in, traffic.vram_out),
        moved(traffic.ram_in, traffic.ram_out),
        moved(traffic.ssd_in, traffic.ssd_out),
    )


def moved(came: Flow, left: Flow, **now: int) -> TierUse:
    """A tier that is `now` so, and what has come and gone."""
    return TierUse(
        swaps_in=came.count, bytes_in=came.n_bytes, ms_in=came.ms.spread(),
        swaps_out=left.count, bytes_out=left.n_bytes, ms_out=left.ms.spread(), **now,
    )  # fmt: skip
