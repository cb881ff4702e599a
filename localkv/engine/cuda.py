"""CUDA: copies on a stream per direction, and host memory that the device may read by itself.

The copying half is a Copier: an event before and after each copy, in both directions. Copies of one record race with the model
otherwise: a block that is copied out while it is still being computed, a buffer that is filled while it is still being read.
Buffers outlive their copies (`settle` before they are dropped), so the allocator never has to be told of a stream.

Copies from and to pageable memory are correct, too: the driver stages them, at about half the speed, and the call then waits.

Thread: the engine's; `Pinner` any, with the consequence below. Knows no records.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from localkv.engine.copier import Mark


@dataclass(frozen=True, slots=True)
class CudaMark:
    """An event on a stream, and what must live until then."""

    event: torch.cuda.Event
    keeps: tuple[torch.Tensor, ...] = ()

    def reached(self) -> bool:
        """Whether all work before it is done. Never blocks."""
        reached: bool = self.event.query()
        return reached

    def wait(self) -> None:
        """Block until it is reached."""
        self.event.synchronize()


class CudaCopier:
    """Two streams beside the current one, on which the model runs."""

    staged = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._in = torch.cuda.Stream(device)
        self._out = torch.cuda.Stream(device)

    def copy_in(self, host: torch.Tensor, device: torch.Tensor, after: Mark) -> Mark:
        """On the stream of copies to the device."""
        return self._copy(self._in, host, device, after)

    def copy_out(self, device: torch.Tensor, host: torch.Tensor, after: Mark) -> Mark:
        """On the stream of copies to the host."""
        return self._copy(self._out, device, host, after)

    def _copy(self, stream: torch.cuda.Stream, source: torch.Tensor, target: torch.Tensor, after: Mark) -> Mark:
        with torch.cuda.stream(stream):
            _make_wait(stream, after)
            target.copy_(source, non_blocking=True)
            return CudaMark(stream.record_event(), (source, target))

    def compute(self, work: Callable[[], None]) -> None:
        """Queue it on the current stream."""
        work()

    def mark(self) -> Mark:
        """An event on the current stream."""
        return CudaMark(torch.cuda.current_stream(self._device).record_event())

    def compute_waits(self, mark: Mark) -> None:
        """The current stream waits; the host does not."""
        _make_wait(torch.cuda.current_stream(self._device), mark)

    def catch_up(self) -> None:
        """The model's kernels are queued behind what was asked for before."""

    def settle(self) -> None:
        """Wait for the whole device."""
        torch.cuda.synchronize(self._device)


def _make_wait(stream: torch.cuda.Stream, mark: Mark) -> None:
    assert isinstance(mark, CudaMark), "a stream can only wait for an event of its own device"
    stream.wait_event(mark.event)


class Pinner:
    """Registers host memory with a device, so that copies from and to it need no stage and no waiting."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def pin(self, address: int, n_bytes: int) -> str:
        """Register it; why not, if the system refuses."""
        with torch.cuda.device(self._device):
            failed = torch.cuda.cudart().cudaHostRegister(address, n_bytes, 0)
            if int(failed) == 0:
                return ""
            # A refused registration leaves an error behind, in this thread, that the next checked call would raise as its own
            # ("out of memory"): a kernel that nobody needs takes it away.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=self._device).add_(1)
            return f"the system refuses to pin {n_bytes >> 20} MiB more (CUDA error {int(failed)})"

    def unpin(self, address: int) -> None:
        """Take it back, before the memory is given up."""
        with torch.cuda.device(self._device):
            torch.cuda.cudart().cudaHostUnregister(address)
