"""What this process holds of a device's memory, and giving back what it does not need any more.

Imports torch. Thread: the engine's. On a GPU the figure is what the card has free, on a CPU what the process keeps in RAM.
"""

import ctypes
import gc
import sys

import psutil
import torch

from localkv.figures import Card


def free_now(device: torch.device) -> int:
    """Bytes that are free on `device`, up to a constant: differences count."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    return -int(psutil.Process().memory_info().rss)


def card_of(device: torch.device) -> Card:
    """The device's memory, and what all programs have taken of it; nothing on a CPU."""
    if device.type != "cuda":
        return Card()
    free, total = torch.cuda.mem_get_info(device)
    return Card(total_bytes=total, used_bytes=total - free)


def trim(device: torch.device) -> None:
    """Hand to the system what Python, torch and the C library keep for later."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


class Scales:
    """How much has been freed since they were made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = free_now(device)

    def freed(self) -> int:
        """Bytes given back by now, after trimming."""
        trim(self._device)
        return max(0, free_now(self._device) - self._before)
