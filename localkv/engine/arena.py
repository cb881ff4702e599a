"""The memory of the pool on the device: one piece, allocated once, handed out as ranges of its bytes.

Knows no places and no records: which bytes belong to whom is kept by tiers/device.py. Thread: the engine's. All access is in the
order of the compute stream, so a range may be given to another record while copies from it are still queued.
"""

import mmap

import torch


class Arena:
    """`n_bytes` of device memory."""

    def __init__(self, n_bytes: int, device: torch.device) -> None:
        self._memory = _allocate(n_bytes, device)

    def view(self, place: range) -> torch.Tensor:
        """The bytes of `place`, one-dimensional."""
        return self._memory[place.start : place.stop]


def _allocate(n_bytes: int, device: torch.device) -> torch.Tensor:
    if device.type == "cpu" and n_bytes:
        # anonymous memory: what was never used costs nothing
        return torch.frombuffer(mmap.mmap(-1, n_bytes), dtype=torch.uint8)
    return torch.zeros(n_bytes, dtype=torch.uint8, device=device)
