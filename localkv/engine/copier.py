"""Copies between host and device memory, and who waits for whom: one interface for devices that copy at once and later.

    in        host -> device
    out       device -> host
    compute   the model, and copies that stay on the device

Each is a stream: its work is done in order. Between streams nothing is ordered but by waits, and a wait that is missing is no error;
it is wrong text, now and then, that no exception shows. Four waits are owed in each direction, all of them the slot's:

    in     the copy waits until the compute that read this buffer last is over; the compute that reads it waits for the copy
    out    the compute that fills a buffer waits until its last bytes have left; the copy waits for that compute
    host   bytes that come out are read, and host memory that goes in is reused, only when the copy's mark is reached

Knows tensors; nothing of records, slots or tiers. Thread: the engine's.
"""

from collections.abc import Callable
from typing import Protocol

import torch


class Mark(Protocol):
    """A point in the work of a stream."""

    def reached(self) -> bool:
        """Whether all work before it is done. Never blocks."""
        ...

    def wait(self) -> None:
        """Block until it is reached."""
        ...


class Copier(Protocol):
    """One device's streams. Tensors that are handed in must live until the mark is reached."""

    staged: bool
    """Payloads go through a buffer on the device; otherwise the slot reads and writes host memory itself."""

    def copy_in(self, host: torch.Tensor, device: torch.Tensor, after: Mark) -> Mark:
        """Copy to the device, not before `after`; the mark is reached when the bytes are there."""
        ...

    def copy_out(self, device: torch.Tensor, host: torch.Tensor, after: Mark) -> Mark:
        """Copy from the device, not before `after`; the mark is reached when the host may read the bytes."""
        ...

    def compute(self, work: Callable[[], None]) -> None:
        """Do `work`, copies within the device, in the order of the compute stream."""
        ...

    def mark(self) -> Mark:
        """The compute stream as it stands: reached when all that was asked of it so far is done."""
        ...

    def compute_waits(self, mark: Mark) -> None:
        """What is asked of the compute stream from now on is not begun before `mark` is reached. The host does not wait."""
        ...

    def catch_up(self) -> None:
        """What comes next runs on the compute stream by itself: the model."""
        ...

    def settle(self) -> None:
        """Block until every stream is idle: memory that they use may then be given up."""
        ...


class Reached:
    """The mark of what was over at once."""

    def reached(self) -> bool:
        """Always."""
        return True

    def wait(self) -> None:
        """Nothing is waited for."""


REACHED = Reached()


class DirectCopier:
    """A device whose copies are over when the call returns: the CPU, where nothing is staged, and mps, where all is."""

    def __init__(self, *, staged: bool) -> None:
        self.staged = staged

    def copy_in(self, host: torch.Tensor, device: torch.Tensor, after: Mark) -> Mark:  # noqa: ARG002 - nothing is ever late
        """Copy now."""
        device.copy_(host)
        return REACHED

    def copy_out(self, device: torch.Tensor, host: torch.Tensor, after: Mark) -> Mark:  # noqa: ARG002 - nothing is ever late
        """Copy now."""
        host.copy_(device)
        return REACHED

    def compute(self, work: Callable[[], None]) -> None:
        """Do it now."""
        work()

    def mark(self) -> Mark:
        """It is over."""
        return REACHED

    def compute_waits(self, mark: Mark) -> None:
        """There is nothing to wait for."""

    def catch_up(self) -> None:
        """There is never anything left to do."""

    def settle(self) -> None:
        """There is never anything left to do."""


def copier_for(device: torch.device) -> Copier:
    """The copier that fits `device`."""
    if device.type == "cuda":
        from localkv.engine.cuda import CudaCopier

        return CudaCopier(device)
    return DirectCopier(staged=device.type != "cpu")
