"""A CPU that copies as a GPU does: three streams whose work is done late, in a random order that the waits allow.

For tests, and for `engine.simulate = "late"`. What was asked for is only noted. Each call then does a random part of what has
become possible; a wait does what it must and no more. Within a stream the order is kept; between streams a copy may overtake, or
fall behind, everything that no wait orders. Until a copy has landed its target holds poison: NaN in every float format. So a
missing wait gives wrong bytes in a few tries, on a machine without a GPU.

Thread: the engine's. The order follows from the seed alone.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from localkv.engine.copier import Mark

POISON = 0xFF
"""As bf16, fp16 and fp32 it is NaN."""

EAGERNESS = 0.5
"""How likely one more step is done at each call."""

PACES = (1, 6, 36)
"""How much a stream does in the time of another: one may fall far behind."""


@dataclass(slots=True, eq=False)
class Step:
    """One piece of work of a stream; also the mark of being done with it."""

    copier: "LateCopier"
    work: Callable[[], None]
    after: tuple["Step", ...] = ()
    done: bool = False

    def reached(self) -> bool:
        """Whether it is done. Asking lets some time pass."""
        self.copier.let_time_pass()
        return self.done

    def wait(self) -> None:
        """Block until it is done."""
        self.copier.run_to(self)


class LateCopier:
    """Streams of a device that is not there."""

    staged = True

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._in: deque[Step] = deque()
        self._out: deque[Step] = deque()
        self._compute: deque[Step] = deque()
        self._streams = [(stream, self._random.choice(PACES)) for stream in (self._in, self._out, self._compute)]

    def copy_in(self, host: torch.Tensor, device: torch.Tensor, after: Mark) -> Mark:
        """Later: first poison, then the bytes."""
        self._add(self._in, lambda: device.fill_(POISON), after)
        landed = self._add(self._in, lambda: device.copy_(host))
        self._drift()
        return landed

    def copy_out(self, device: torch.Tensor, host: torch.Tensor, after: Mark) -> Mark:
        """The target is poison at once, the bytes come later."""
        host.fill_(POISON)
        landed = self._add(self._out, lambda: host.copy_(device), after)
        self._drift()
        return landed

    def compute(self, work: Callable[[], None]) -> None:
        """Later."""
        self._add(self._compute, work)
        self._drift()

    def mark(self) -> Mark:
        """A step without work."""
        return self._add(self._compute, lambda: None)

    def compute_waits(self, mark: Mark) -> None:
        """A step without work that waits."""
        self._add(self._compute, lambda: None, mark)

    def catch_up(self) -> None:
        """The model really runs now, so what was asked of its stream before must be done; the others stay behind."""
        while self._compute:
            self._do(self._compute)

    def settle(self) -> None:
        """Do all that was asked for."""
        for stream, _ in self._streams:
            while stream:
                self._do(stream)

    # ---- the order ----

    def let_time_pass(self) -> None:
        """Do at least one step of what can be done, so that whoever asks often enough is answered."""
        if self._do_one():
            self._drift()

    def _drift(self) -> None:
        """Do some of what can be done, or nothing."""
        while self._random.random() < EAGERNESS and self._do_one():
            pass

    def _do_one(self) -> bool:
        possible = [(stream, pace) for stream, pace in self._streams if stream and _may_begin(stream[0])]
        if possible:
            self._do(self._random.choices(*zip(*possible, strict=True))[0])
        return bool(possible)

    def run_to(self, step: Step) -> None:
        """Do `step`, after what its stream does before it and what these wait for."""
        stream = next((stream for stream, _ in self._streams if step in stream), None)
        while not step.done and stream is not None:
            self._do(stream)

    def _add(self, stream: deque[Step], work: Callable[[], object], after: Mark | None = None) -> Step:
        assert after is None or isinstance(after, Step), "a stream can only wait for work of its own device"
        step = Step(self, lambda: _ignore(work()), () if after is None else (after,))
        stream.append(step)
        return step

    def _do(self, stream: deque[Step]) -> None:
        """The next step of `stream`, and before it what it waits for."""
        for earlier in stream[0].after:
            self.run_to(earlier)
        step = stream.popleft()
        step.work()
        step.done, step.work, step.after = True, _nothing, ()  # it keeps nothing alive any more


def _may_begin(step: Step) -> bool:
    return all(earlier.done for earlier in step.after)


def _nothing() -> None:
    """The work of a step that is done."""


def _ignore(_: object) -> None:
    """What a tensor operation returns is not needed."""
