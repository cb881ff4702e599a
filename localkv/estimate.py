"""What a model's conversations cost here: bytes by kind, what fits into each tier, and rates measured just now.

Torch-free itself (the pace comes from the engine). Thread: the engine's, between turns; takes seconds.
"""

import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from localkv.engine.arithmetic import device_name
from localkv.engine.pace import measure_pace
from localkv.files import TEMP_SUFFIX, Files
from localkv.kv.layout import Layout
from localkv.kv.record import ALIGN, payload_check
from localkv.messages import Estimated, SlidingCost
from localkv.opened import READERS, Opened
from localkv.paths import Home

Report = Callable[[str], None]

FILES = 16
FILE_BYTES = 4 << 20
"""A scratch file is as long as a block of a small model; together they are long enough to time."""


def estimate(opened: Opened, home: Home, report: Report) -> Estimated:
    """Costs and rates of the model that is open."""
    layout = opened.ground.layout if opened.ground else None
    report("measuring how fast the model reads")
    pace = measure_pace(opened.loaded, layout, opened.verdict.reading, _spare_memory(opened), opened.context_tokens)
    report("measuring how fast the disk reads")
    read_rate, cold = measure_reading(home.store)
    counts = opened.keeper.counts() if opened.keeper else None
    return Estimated(
        request=0,
        epoch="",
        title=opened.loaded.title,
        device=device_name(opened.loaded.device),
        context_tokens=opened.context_tokens,
        block_tokens=opened.block_tokens,
        full_token_bytes=layout.token_bytes if layout else 0,
        sliding=_sliding(layout),
        state_bytes=sum(state.n_bytes for _, state in layout.states) if layout else 0,
        record_overhead_bytes=ALIGN,
        vram_bytes=counts.vram.limit_bytes if counts else 0,
        ram_bytes=counts.ram.limit_bytes if counts else 0,
        ssd_bytes=counts.ssd.limit_bytes if counts else 0,
        read_rate=read_rate,
        read_cold=cold,
        copy_rate=pace.copy_rate,
        token_seconds=pace.token_seconds,
        deeper_seconds=pace.deeper_seconds,
        measured_tokens=pace.depth,
        notes=opened.notes,
    )


def measure_reading(folder: Path) -> tuple[float, bool]:
    """(bytes per second of verified reads as a restore makes them, whether they came from the disk and not from memory)."""
    files = Files()
    names = [folder / f"speed-{secrets.token_hex(4)}{TEMP_SUFFIX}" for _ in range(FILES)]
    content = memoryview(secrets.token_bytes(FILE_BYTES))
    buffers = [memoryview(bytearray(FILE_BYTES)) for _ in names]
    try:
        for name in names:
            files.write_temp(name, [content])
            files.sync(name)
        dropped = [_drop_from_memory(name) for name in names]
        began = time.perf_counter()
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(_read, names, buffers))
        return FILES * FILE_BYTES / max(time.perf_counter() - began, 1e-9), all(dropped)
    except OSError:
        # Without a disk to write to there is no SSD tier either.
        return 0.0, False
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                name.unlink()


def _read(path: Path, buffer: memoryview) -> None:
    Files().read_into(path, 0, buffer)
    payload_check(buffer)


def _drop_from_memory(path: Path) -> bool:
    """Make the next read of `path` come from the disk; False where the system offers no way."""
    if not hasattr(os, "posix_fadvise"):
        return False
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    return True


def _sliding(layout: Layout | None) -> tuple[SlidingCost, ...]:
    costs = Counter[int]()
    for slab in layout.sliding_slabs if layout else ():
        costs[slab.window or 0] += slab.token_bytes
    return tuple(SlidingCost(window=window, token_bytes=n_bytes) for window, n_bytes in sorted(costs.items()))


def _spare_memory(opened: Opened) -> int:
    """What a scratch slot may take: a quarter of the RAM that is free, or half of what weights, slot and pool leave of a card."""
    if opened.loaded.device.type == "cuda":
        card = opened.card()
        return (card.total_bytes - card.used_bytes) // 2
    available: int = psutil.virtual_memory().available
    return available // 4
