"""`bench policy`: what the policy of placement is worth, on made-up or foreign traces, against three others. No model, no torch.

A simulated person visits conversations; a simulated machine keeps blocks of 256 tokens in RAM and on SSD. Counted is what a
visit waits for history: reading from SSD, copying into the slot, computing again what was lost. New tokens cost the same
under every policy and are left out. What the product decides with (placement.policy, placement.warmth) decides here.

    lru         the record that was used longest ago goes
    idle_size   the smallest idle time / size of the conversation goes: what others write into their documentation
    ours        value and half-lives, as in the product
    optimum     knows the future: after each visit each tier keeps the blocks that are needed again soonest (Belady's MIN, and
                it may leave out even the newest). With equal blocks this misses the fewest blocks that any policy for that
                tier can, so, costs being proportional to blocks, it waits the least of all policies that keep on SSD what
                they have in RAM (a cache must survive the end of the process)

All four may fill a tier to the high mark; the first three trim to the low mark when they are above it, as the product does.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localkv.commands.bench import Say
from localkv.commands.bench.traces import BLOCK_TOKENS, Block, Trace, Visit, from_file, made_up
from localkv.placement.policy import Policy, Rank, Resident, victims
from localkv.placement.rates import Rates
from localkv.placement.warmth import Habit, Warmth, first_use, used_again

SEEDS = (1, 2, 3)
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Machine:
    """A laptop with an 8 GB card, a model of 8 billion parameters, and the sample configuration for it."""

    ram_bytes: int = 4 * GIB
    ssd_bytes: int = 20 * GIB
    block_bytes: int = BLOCK_TOKENS * 128 * 1024
    rates: Rates = field(default_factory=lambda: Rates(read=2e9, copy=8e9, prefill=1000.0))

    @property
    def read_seconds(self) -> float:
        return self.block_bytes / self.rates.read

    @property
    def copy_seconds(self) -> float:
        return self.block_bytes / self.rates.copy

    @property
    def compute_seconds(self) -> float:
        return BLOCK_TOKENS / self.rates.prefill


@dataclass(slots=True)
class Waited:
    """What a policy made a person wait, and moved to and from the SSD."""

    seconds: float = 0.0
    n_bytes: int = 0


@dataclass(slots=True)
class Tiers:
    """What is where."""

    ram: set[Block] = field(default_factory=set)
    ssd: set[Block] = field(default_factory=set)


class Chooser:
    """A policy: told of each visit, then asked what each tier keeps."""

    policy = Policy()

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def visit(self, visit: Visit) -> None:
        """The conversation of `visit` is open from now on."""
        raise NotImplementedError

    def trim(self, shelf: set[Block], limit_bytes: int, worth: float) -> None:
        """Take from `shelf` what must go; `worth` is what a byte there saves at its next use, in seconds."""
        excess = self.policy.excess(len(shelf) * self.machine.block_bytes, limit_bytes)
        if excess:
            shelf.difference_update(self.choose(shelf, -(-excess // self.machine.block_bytes), worth))

    def choose(self, shelf: set[Block], n: int, worth: float) -> Sequence[Block]:
        """The `n` blocks that go."""
        raise NotImplementedError


class Lru(Chooser):
    """Least recently used, ends of chains first, the open conversation last."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.used: dict[Block, float] = {}

    def visit(self, visit: Visit) -> None:
        """Times of use are all there is to know."""
        self.used.update(dict.fromkeys(visit.blocks, visit.time))

    def choose(self, shelf: set[Block], n: int, worth: float) -> Sequence[Block]:  # noqa: ARG002  all bytes are equal to it
        """The longest unused."""
        return sorted(shelf, key=lambda block: (self.used[block], -block[1]))[:n]


class IdleSize(Lru):
    """The smallest idle time / size. A conversation's size is the number of its blocks."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.sizes: dict[Block, int] = {}
        self.open: Visit = Visit(0.0, ())

    def visit(self, visit: Visit) -> None:
        """A block belongs to the conversation that used it last."""
        super().visit(visit)
        self.open = visit
        self.sizes.update(dict.fromkeys(visit.blocks, len(visit.blocks)))

    def choose(self, shelf: set[Block], n: int, worth: float) -> Sequence[Block]:  # noqa: ARG002  all bytes are equal to it
        """Those of the smallest quotient, but for the open conversation."""
        is_open, now = set(self.open.blocks), self.open.time

        def quotient(block: Block) -> tuple[bool, float, int]:
            return block in is_open, (now - self.used[block]) / self.sizes[block], -block[1]

        return sorted(shelf, key=quotient)[:n]


class Ours(Chooser):
    """The product's own functions."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.habit = Habit(self.policy.half_lives)
        self.warmths: dict[Block, Warmth] = {}
        self.parents: dict[Block, Block] = {}
        self.heads: set[Block] = set()
        """The last blocks of conversations."""
        self.is_open: set[Block] = set()

    def visit(self, visit: Visit) -> None:
        """Warm the chain; what is new in it is as warm as the conversation that it belongs to."""
        now, half_lives = visit.time, self.policy.half_lives
        known = [block for block in visit.blocks if block in self.warmths]
        head = known[-1] if known and known[-1] in self.heads else None
        before = None if head is None else self.warmths[head]
        self.habit = self.habit.after(before, now)
        warmth = first_use(now) if before is None else used_again(before, now, half_lives)
        for block in known:
            self.warmths[block] = used_again(self.warmths[block], now, half_lives)
        self.warmths.update(dict.fromkeys(visit.blocks[len(known) :], warmth))
        self.parents.update(zip(visit.blocks[1:], visit.blocks, strict=False))
        self.is_open = set(visit.blocks)
        self.heads = (self.heads - {head}) | set(visit.blocks[-1:])

    def choose(self, shelf: set[Block], n: int, worth: float) -> Sequence[Block]:
        """The least valuable."""
        names = {repr(block): block for block in shelf}
        residents = [
            Resident(
                ("", name), repr(self.parents.get(block)), self.warmths[block].at(self.habit.pace), block[1],
                self.machine.block_bytes, worth, Rank.OPEN if block in self.is_open else Rank.ORDINARY,
            )
            for name, block in names.items()
        ]  # fmt: skip
        gone = victims(residents, n * self.machine.block_bytes, self.habit.half_life)
        return [names[resident.key[1]] for resident in gone]


class Optimum(Chooser):
    """Keeps what is needed again soonest, up to the high mark."""

    def __init__(self, machine: Machine, trace: Trace) -> None:
        super().__init__(machine)
        self.next_use: dict[Block, float] = {}
        self._at_visit = iter(list(_next_uses(trace)))

    def visit(self, visit: Visit) -> None:
        """The future of these blocks, from here."""
        self.next_use.update(zip(visit.blocks, next(self._at_visit), strict=True))

    def trim(self, shelf: set[Block], limit_bytes: int, worth: float) -> None:  # noqa: ARG002  all bytes are equal to it
        """Down to the high mark, and no further; the last needed goes."""
        n = int(self.policy.high * limit_bytes) // self.machine.block_bytes
        ordered = sorted(shelf, key=lambda block: (self.next_use[block], block[1]))
        shelf.difference_update(ordered[n:])
        shelf.difference_update([block for block in ordered[:n] if self.next_use[block] == math.inf])


def _next_uses(trace: Trace) -> list[list[float]]:
    """For each visit, when each of its blocks is needed again."""
    coming: dict[Block, float] = {}
    found = []
    for visit in reversed(trace.visits):
        found.append([coming.get(block, math.inf) for block in visit.blocks])
        coming.update(dict.fromkeys(visit.blocks, visit.time))
    return found[::-1]


def replay(trace: Trace, chooser: Chooser, machine: Machine) -> Waited:
    """Live through `trace` with the policy of `chooser`."""
    waited, tiers, seen = Waited(), Tiers(), set[Block]()
    for visit in trace.visits:
        _restore(visit, tiers, seen, machine, waited)
        waited.n_bytes += machine.block_bytes * sum(block not in tiers.ssd for block in visit.blocks)
        tiers.ram.update(visit.blocks)
        tiers.ssd.update(visit.blocks)
        seen.update(visit.blocks)
        chooser.visit(visit)
        read, compute = 1 / machine.rates.read, machine.compute_seconds / machine.block_bytes
        chooser.trim(tiers.ram, machine.ram_bytes, read)
        chooser.trim(tiers.ssd, machine.ssd_bytes, compute - read)
    return waited


def _restore(visit: Visit, tiers: Tiers, seen: set[Block], machine: Machine, waited: Waited) -> None:
    """Blocks are brought as far as they reach without a gap; after the first gap all that is not new is computed again."""
    whole = True
    for block in visit.blocks:
        whole = whole and (block in tiers.ram or block in tiers.ssd)
        if not whole:
            waited.seconds += machine.compute_seconds if block in seen else 0.0
            continue
        waited.seconds += machine.copy_seconds
        if block not in tiers.ram:
            waited.seconds += machine.read_seconds
            waited.n_bytes += machine.block_bytes


def measure(say: Say, trace: Path | None = None) -> list[dict[str, Any]]:
    """One row per trace, summed over the seeds; or the one row of a foreign trace."""
    if trace is not None:
        return [_row([from_file(trace)], say)]
    by_name: dict[str, list[Trace]] = {}
    for seed in SEEDS:
        for made in made_up(seed):
            by_name.setdefault(made.name, []).append(made)
    return [_row(traces, say) for traces in by_name.values()]


def _row(traces: Sequence[Trace], say: Say) -> dict[str, Any]:
    say(traces[0].name)
    machine = Machine()
    makers: dict[str, Callable[[Trace], Chooser]] = {
        "lru": lambda _: Lru(machine), "idle_size": lambda _: IdleSize(machine), "ours": lambda _: Ours(machine),
        "optimum": lambda trace: Optimum(machine, trace),
    }  # fmt: skip
    row: dict[str, Any] = {"trace": traces[0].name, "visits": sum(len(trace.visits) for trace in traces)}
    totals = {name: [replay(trace, make(trace), machine) for trace in traces] for name, make in makers.items()}
    row |= {f"{name}_s": round(sum(waited.seconds for waited in each), 3) for name, each in totals.items()}
    row |= {f"{name}_bytes": sum(waited.n_bytes for waited in each) for name, each in totals.items()}
    row["ours_to_lru"] = round(row["ours_s"] / max(row["lru_s"], 1e-9), 4)
    row["ours_to_optimum"] = round(row["ours_s"] / max(row["optimum_s"], 1e-9), 4)
    return row
