"""`bench switch`: coming back to a conversation from RAM and from SSD, against memcpy and raw reads of the same bytes."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from localkv.commands.bench import Say, bed, bed_home
from localkv.files import Files
from localkv.kv.record import Head
from localkv.opened import READERS
from localkv.paths import Home
from localkv.runtime import Runtime

TOKENS = (512, 2048, 4096)
ROUNDS = 9
PREFILLS = 3
QUESTION_TOKENS = 8


def measure(say: Say) -> list[dict[str, Any]]:
    """One row per conversation length."""
    with bed_home.scratch_home() as home, bed.open_runtime(home) as runtime:
        return [_measure_length(home, runtime, n, say) for n in TOKENS]


def _measure_length(home: Home, runtime: Runtime, n: int, say: Say) -> dict[str, Any]:
    say(f"{n} tokens")
    prefills = []
    for seed in range(PREFILLS):
        ids = bed.random_ids(n, seed)
        done, _ = bed.turn(runtime, f"p{seed}", [ids], None)
        assert not done.numbers.restored.total, f"a prefill of all {n} tokens was to be measured: {done.numbers.restored}"
        prefills.append(done.numbers.prefill_seconds)
    head = done.head
    assert head is not None
    assert head.tokens == n
    runtime.flush(60.0)
    files = _files_of(home, runtime)
    _leave(runtime)
    kv_bytes = _restore(runtime, ids, head).restored_bytes
    buffer = torch.zeros(kv_bytes, dtype=torch.uint8)
    touched = bytearray(kv_bytes)
    target = torch.frombuffer(touched, dtype=torch.uint8)
    ram, ssd, memcpy, read, disk = [], [], [], [], []
    for _ in range(ROUNDS):
        _leave(runtime)
        ram.append(_restore(runtime, ids, head).restore_seconds)
        memcpy.append(_timed(lambda: target.copy_(buffer)))
        _leave(runtime)
        _to_ssd_only(runtime, files)
        before = bed.disk_read_bytes()
        ssd.append(_restore(runtime, ids, head).restore_seconds)
        disk.append(bed.disk_read_bytes() - before)
        bed.drop_page_cache(files)
        read.append(_timed(lambda: read_all(files, memoryview(touched))))
    middle = statistics.median
    return {
        "tokens": n,
        "kv_bytes": kv_bytes,
        "prefill_s": middle(prefills),
        "ram_s": middle(ram),
        "ssd_s": middle(ssd),
        "memcpy_s": middle(memcpy),
        "read_s": middle(read),
        "disk_bytes": int(middle(disk)),
    }


def _restore(runtime: Runtime, ids: list[int], head: Head) -> Any:
    """The numbers of a turn that goes on in the conversation."""
    numbers = bed.turn(runtime, "switch", [ids, bed.random_ids(QUESTION_TOKENS, 99)], head)[0].numbers
    assert numbers.restored.total == len(ids), f"restored {numbers.restored} of {len(ids)} tokens: {numbers.fallbacks}"
    return numbers


def _leave(runtime: Runtime) -> None:
    """Another conversation takes the slot."""
    bed.turn(runtime, "other", [bed.random_ids(16, 7)], None)


def _to_ssd_only(runtime: Runtime, files: list[Path]) -> None:
    runtime.flush(60.0)
    opened = runtime.opened
    assert opened is not None
    assert opened.keeper is not None
    opened.keeper.shed()
    bed.drop_page_cache(files)


def _files_of(home: Home, runtime: Runtime) -> list[Path]:
    """The record files of the conversation in the slot: those read when it is restored from SSD."""
    opened = runtime.opened
    assert opened is not None
    names = opened.live.names
    return [file for file in bed.record_files(home) if file.stem in names]


def read_all(files: list[Path], buffer: memoryview) -> None:
    """Read all files, in parallel, into one touched buffer: what the disk can do."""
    reader, jobs, offset = Files(), [], 0
    for file in files:
        size = min(file.stat().st_size, len(buffer) - offset)
        jobs.append((file, buffer[offset : offset + size]))
        offset += size
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(lambda job: reader.read_into(job[0], 0, job[1]), jobs))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
