"""A model opened for chatting: loaded, proven, with its slot, RAM pool, store and keeper; opened in order, closed in reverse.

Imports torch. Thread: the engine's. What cannot be had is left out with a sentence and never refuses a chat: without a store
nothing survives the engine, without a proven slot the model runs uncached.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import transformers

from localkv.admission import Admission
from localkv.chat.tokens import Tokens
from localkv.config import Config, ModelSection
from localkv.engine.arena import Arena
from localkv.engine.arithmetic import device_name
from localkv.engine.copier import Copier, copier_for
from localkv.engine.cuda import Pinner
from localkv.engine.late import LateCopier
from localkv.engine.live import Blank, Live, Transient
from localkv.engine.load import Loaded, load
from localkv.engine.memory import Scales, card_of, trim
from localkv.engine.pace import warm_up
from localkv.engine.prefill import FIRST_BLOCKS
from localkv.engine.selftest import Verdict, prove
from localkv.engine.slot import IN_FLIGHT, Slot
from localkv.engine.thrift import Thrifty
from localkv.errors import OutOfMemory, StoreError, TooLittleMemory
from localkv.events import EventLog, Value
from localkv.figures import Card
from localkv.files import Files
from localkv.flows import Traffic
from localkv.kv.layout import Layout
from localkv.kv.record import root_name
from localkv.messages import Flushed, Ready, Unloaded
from localkv.paths import Home
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Ground
from localkv.placement.policy import Policy, ssd_budget
from localkv.placement.rates import Rates, rates_at_first
from localkv.placement.saver import open_store
from localkv.placement.warmth import HalfLives
from localkv.tiers.device import SIMULATED_BYTES, DevicePool, Shares, share
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool, available_memory, pin_budget, ram_budget, swap_memory
from localkv.tiers.transfer import Transfers
from localkv.units import parse_bytes

Report = Callable[[str, int, int], None]

READERS = 4
"""Threads that read records: two keep a fast disk busy, four hide the checksum."""

WARM_BYTES = 128 << 20
"""Free places in RAM whose pages are touched ahead: copying into fresh pages takes eight times as long."""

PIN_STEP_BYTES = 1 << 30
"""The same where memory is also registered with a device, at 0.1 to 0.5 s for each GiB."""

SELFTEST_TOKENS = 4
"""The self-test's slot holds this many blocks."""


@dataclass(frozen=True)
class Opened:
    """Everything that serves one model. `keeper`, `admission` and `ground` are None where the model runs uncached."""

    loaded: Loaded
    live: Live
    tokens: Tokens
    verdict: Verdict
    context_tokens: int
    keeper: Keeper | None
    admission: Admission | None
    ground: Ground | None
    pool: HostPool | None
    notes: tuple[str, ...]

    @property
    def block_tokens(self) -> int:
        return self.loaded.layout.block_tokens if self.loaded.layout else 256

    def warm(self) -> bool:
        """Touch the pages of one arena of the RAM pool, if free places are wanting; whether there may be more to do.

        Between turns, on the engine's thread: beside a forward it takes a core from it. On two cores a first turn of 37 tokens took
        50 ms without and 70 to 390 ms with a thread that touched 128 MiB.
        """
        ahead = PIN_STEP_BYTES if self.loaded.device.type == "cuda" else WARM_BYTES
        return self.pool is not None and self.pool.warm_one(ahead) > 0

    def card(self) -> Card:
        """The memory of the device, as of now."""
        return card_of(self.loaded.device)

    def relieve(self) -> int:
        """Memory has run out in a forward: give up the pool on the device, too. Returns how many bytes that was, with all the rest."""
        trim(self.loaded.device)  # what the forward held is no relief: the next try takes it again
        self._give_up_pool()
        return self.spare()

    def spare(self) -> int:
        """Give back what is not needed at this moment, and say how many bytes that was."""
        reserved = self._reserved()
        freed = self.keeper.relieve() if self.keeper is not None else 0
        trim(self.loaded.device)
        return freed + reserved - self._reserved()

    def _give_up_pool(self) -> bool:
        """Whether there was one."""
        if self.keeper is None or not self.keeper.berths.pool.limit_bytes:
            return False
        self.keeper.berths.give_up()
        self.live.give_up_arena()
        return True

    @property
    def room_tokens(self) -> int:
        """The longest conversation that the slot has room for now."""
        return min(self.context_tokens, self.live.slot.context_tokens) if self.live.layout else self.context_tokens

    def grow(self, n_tokens: int, events: EventLog) -> None:
        """Between turns: if the slot is too small for `n_tokens`, park what it holds, free it, take a larger one.

        The turn that needs it then restores its conversation like any other that has left. Where there is no memory the slot stays
        as large as it was.
        """
        before, began = self.room_tokens, time.monotonic()
        wanted = grown(before, n_tokens, self.context_tokens)
        if wanted <= before or self.admission is None:
            return
        self.admission.park()
        self.spare()
        problem = self._resize(wanted)
        if problem is not None and self._give_up_pool():  # a longer conversation is worth more than a faster return to others
            self.spare()
            problem = self._resize(wanted)
        if problem is not None:
            events.emit("slot.stays", tokens=before, wanted=wanted, message=str(problem.__cause__))
            return
        ms = round((time.monotonic() - began) * 1000, 1)
        events.emit("slot.grow", tokens=self.room_tokens, before=before, bytes=self.live.slot.n_bytes, ms=ms)

    def _resize(self, n_tokens: int) -> OutOfMemory | None:
        try:
            self.live.resize(n_tokens)
        except OutOfMemory as error:
            return error
        return None

    def check_memory(self, n_tokens: int) -> None:
        """On a CPU the slot takes memory as tokens come: raises TooLittleMemory before the system has to end a process for it."""
        needed = self.live.bytes_to_touch(n_tokens)
        if needed and needed > (available := available_memory() + swap_memory()):
            self.spare()
            if needed > (available := available_memory() + swap_memory()):
                raise TooLittleMemory(n_tokens, needed, available)

    def thrifty(self, rebuild: Callable[[Sequence[int]], None]) -> Thrifty:
        """The live conversation, fed in a way that survives a lack of memory; `rebuild` restores what a failed forward has torn."""
        one_by_one = self.verdict.reading == "tokens"
        return Thrifty(self.live, self.block_tokens, self.relieve, rebuild, one_by_one=one_by_one)

    def _reserved(self) -> int:
        device = self.loaded.device
        return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0

    def parting(self, flushed: Flushed) -> "Parting":
        """What is known before this is closed after that flush. Holds nothing of it."""
        n = self.keeper.counts().private_records if self.keeper is not None else 0
        private = f"{n} records of private conversations, which are never written" if n else ""
        return Parting(self.loaded.title, flushed, flushed.problem or private, Scales(self.loaded.device))

    def ready(self, epoch: str) -> Ready:
        """What a face wants to know of the model."""
        layout = self.loaded.layout
        return Ready(
            request=0,
            epoch=epoch,
            model=self.loaded.section,
            title=self.loaded.title,
            identity=self.loaded.identity,
            context_tokens=self.context_tokens,
            token_bytes=layout.token_bytes if layout else 0,
            device=str(self.loaded.device),
            notes=self.notes,
        )

    def report(self) -> dict[str, dict[str, Value]]:
        """Engine, model and cache, for `doctor`."""
        return {"engine": _describe_engine(self), "model": _describe_model(self), "cache": _describe_cache(self)}

    def close(self) -> None:
        """Let go of everything. What is unsaved is lost: flush before."""
        if self.admission is not None:
            self.admission.close()
        if self.keeper is not None:
            self.keeper.close()
        if self.pool is not None:
            self.pool.close()


@dataclass(frozen=True, slots=True)
class Parting:
    """A model that is about to leave memory."""

    model: str
    flushed: Flushed
    problem: str
    """What is lost by it; empty if nothing is."""
    scales: Scales

    def over(self, events: EventLog, epoch: str, reason: str) -> Unloaded:
        """It has left: what that gave back."""
        freed = self.scales.freed()
        events.emit("model.unload", model=self.model, bytes=freed, reason=reason)
        records, n_bytes = self.flushed.records, self.flushed.n_bytes
        return Unloaded(
            request=0, epoch=epoch, model=self.model, freed_bytes=freed, records=records, n_bytes=n_bytes, problem=self.problem
        )


def open_model(
    section: ModelSection, config: Config, home: Home, events: EventLog, report: Report, traffic: Traffic | None = None
) -> Opened:
    """The model of `section`, ready to chat; `traffic` counts on for it. Raises ModelError and its children."""
    loaded = load(section, config.engine, home, report)
    report("checking the cache against transformers' own", 0, 0)
    verdict = _prove(loaded, home)
    tokens = Tokens(loaded.tokenizer, loaded.generation_stops)
    layout = loaded.layout if verdict.cached else None
    shares = _shares(loaded, layout, config)
    context_tokens = shares.context_tokens
    notes = (*loaded.notes, *_verdict_notes(loaded, verdict))
    events.emit(
        "model.open", model=section.name, identity=loaded.identity, device=str(loaded.device), attention=verdict.attention,
        cached=layout is not None, context_tokens=context_tokens,
    )  # fmt: skip
    if layout is None:
        workspace = Blank() if verdict.reading == "whole" else Transient(loaded.text_config)
        live = Live(loaded.model, workspace, None, loaded.device)
        return Opened(loaded, live, tokens, verdict, context_tokens, None, None, None, None, notes)
    fingerprint = loaded.fingerprint(verdict.attention, f"{verdict.reading}:{layout.block_tokens}")
    ground = Ground(layout, loaded.identity, fingerprint)
    vram = DevicePool(layout.block_bytes, layout.max_checkpoint_bytes, shares.pool_bytes)
    arena = Arena(vram.committed_bytes, loaded.device) if vram.committed_bytes else None
    at_first = min(config.engine.slot_tokens or context_tokens, context_tokens)
    slot = Slot(layout, at_first, loaded.device, _copier(loaded.device, config))
    live = Live(loaded.model, slot, layout, loaded.device, root_name(loaded.identity), fingerprint, arena)
    report("computing a first token", 0, 0)
    rates = _rates_at_first(verdict, warm_up(live, loaded.device), layout)
    pool = _open_pool(layout, config, loaded.device, events)
    keeper, trouble = _open_keeper(ground, pool, vram, config, home, events, traffic)
    keeper.learn(lambda _: rates)
    if trouble:
        notes = (*notes, f"nothing can be saved now, and it is tried again with every save: {trouble}")
    return Opened(loaded, live, tokens, verdict, context_tokens, keeper, Admission(live, keeper), ground, pool, notes)


def grown(now: int, needed: int, limit: int) -> int:
    """The next size of a slot for `now` tokens that must hold `needed`: twice as large at least, so that growing stays rare."""
    return now if needed <= now else min(limit, max(needed, 2 * now))


def _prove(loaded: Loaded, home: Home) -> Verdict:
    layout = loaded.layout
    key = f"{loaded.identity}:{loaded.fingerprint(loaded.attention, 'self-test')}"

    def build() -> Slot:
        assert layout is not None, "only a model with a layout has a slot"
        return Slot(layout, SELFTEST_TOKENS * layout.block_tokens, loaded.device)

    return prove(loaded, build, home.selftests, key)


def _rates_at_first(verdict: Verdict, seconds: float, layout: Layout) -> Rates:
    """From what the self-test measured, and the seconds that one token takes now, if they are known."""
    forward, size = max(0.0, seconds - verdict.token_seconds) if seconds else verdict.forward_seconds, layout.block_tokens
    if verdict.reading == "tokens":
        return rates_at_first(verdict.token_seconds, forward, 1, FIRST_BLOCKS * size)
    return rates_at_first(verdict.token_seconds, forward, size)


def _verdict_notes(loaded: Loaded, verdict: Verdict) -> tuple[str, ...]:
    if loaded.layout is not None and not verdict.cached:
        return (f"the self-test failed, so this model runs without a cache: {verdict.detail}",)
    return (verdict.detail,) if verdict.detail else ()


def _shares(loaded: Loaded, layout: Layout | None, config: Config) -> Shares:
    """The longest conversation (the setting, the model's limit, and on a GPU what fits beside the weights), and the pool on the device."""
    limit = min(config.engine.context_tokens or loaded.context_limit, loaded.context_limit)
    setting = config.memory.vram_pool
    if loaded.device.type == "cuda" and layout is not None:
        trim(loaded.device)  # what torch keeps of loading and proving counts as taken until then
        free = torch.cuda.mem_get_info(loaded.device)[0] - parse_bytes(config.memory.vram_margin)
        return share(layout, free, limit, setting, IN_FLIGHT)
    if config.engine.simulate == "none" or loaded.device.type != "cpu":
        return Shares(limit, 0)
    return Shares(limit, SIMULATED_BYTES if setting == "auto" else parse_bytes(setting))


def _copier(device: torch.device, config: Config) -> Copier:
    late = config.engine.simulate == "late" and device.type == "cpu"
    return LateCopier() if late else copier_for(device)


def _open_pool(layout: Layout, config: Config, device: torch.device, events: EventLog) -> HostPool:
    """The RAM pool; at least a few places, whatever the budget: everything passes through it."""
    least = 4 * layout.block_bytes + 4 * layout.max_checkpoint_bytes
    limit = max(ram_budget(config.memory.ram_pool), least)
    return HostPool(
        layout.block_bytes, layout.max_checkpoint_bytes, limit, Pinner(device) if device.type == "cuda" else None,
        pin_bytes=pin_budget(), available=available_memory, refusal=lambda why: events.emit("pin.refused", detail=why),
    )  # fmt: skip


def _open_keeper(
    ground: Ground, pool: HostPool, vram: DevicePool, config: Config, home: Home, events: EventLog, traffic: Traffic | None
) -> tuple[Keeper, str]:
    store = Store.later(home.store, ground.identity, ground.layout, Files(), events)
    trouble = open_store(store, events)
    limits = _ssd_limits(store, config, home)
    memory = config.memory
    policy = Policy(memory.high_watermark, memory.low_watermark, HalfLives(memory.reuse_half_life_hours * 3600))
    keeper = Keeper(ground, pool, store, Transfers(READERS), limits, events, policy, vram, traffic)
    return keeper, trouble


def _ssd_limits(store: Store, config: Config, home: Home) -> SsdLimits:
    disk = shutil.disk_usage(home.cache_dir)
    setting = None if config.memory.ssd_store == "auto" else parse_bytes(config.memory.ssd_store)
    try:
        stored = store.used_bytes()
    except StoreError:
        stored = 0  # it cannot be read now; the budget is then a little smaller than it could be
    budget = ssd_budget(setting, disk.total, disk.free, stored)
    return SsdLimits(budget, parse_bytes(config.memory.ssd_free_floor))


def _describe_engine(opened: Opened) -> dict[str, Value]:
    loaded = opened.loaded
    return {
        "device": device_name(loaded.device),
        "threads": loaded.threads,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": transformers.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _describe_model(opened: Opened) -> dict[str, Value]:
    loaded, layout = opened.loaded, opened.loaded.layout
    kinds = sorted({layer.kind.value for layer in layout.layers}) if layout else []
    return {
        "model": loaded.title,
        "identity": loaded.identity,
        "fingerprint": opened.ground.fingerprint if opened.ground else None,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "quant": loaded.section.quant,
        "weights_bytes": loaded.weights_bytes,
        "context_tokens": opened.context_tokens,
        "layer_kinds": ", ".join(kinds) or None,
        "bytes_per_token": layout.token_bytes if layout else None,
        "block_bytes": layout.block_bytes if layout else None,
        "max_checkpoint_bytes": layout.max_checkpoint_bytes if layout else None,
        "attention": opened.verdict.attention,
        "single_rows": loaded.linear,
        "self_test": "passed" if opened.verdict.cached else f"failed: {opened.verdict.detail}",
        "self_test_difference": round(opened.verdict.difference, 6) if opened.verdict.cached else None,
        "cached": opened.keeper is not None,
        "notes": " ".join(opened.notes) or None,
    }


def _describe_cache(opened: Opened) -> dict[str, Value]:
    counts = opened.keeper.counts() if opened.keeper else None
    if counts is None:
        return {"cached": False}
    return {
        "slot_bytes": opened.live.used_bytes,
        "staging_bytes": opened.live.slot.staging_bytes,
        "vram_limit_bytes": counts.vram.limit_bytes,
        "vram_used_bytes": counts.vram.used_bytes,
        "ram_limit_bytes": counts.ram.limit_bytes,
        "ram_used_bytes": counts.ram.used_bytes,
        "ram_pinned_bytes": counts.pinned_bytes,
        "ssd_limit_bytes": counts.ssd.limit_bytes,
        "ssd_used_bytes": counts.ssd.used_bytes,
        "records_on_ssd": counts.ssd.records,
        "unsaved_records": counts.unsaved,
        "trouble": counts.trouble or None,
    }
