"""Small records, and a store to put them in, for the tests of the tiers."""

import random
from pathlib import Path

from localkv.events import EventLog
from localkv.files import Files
from localkv.kv.layout import Layer, Layout, Rows
from localkv.kv.record import Record, describe, pack_ids, root_name
from localkv.tiers.disk import Store

IDENTITY = "a1" * 20
LAYOUT = Layout(tuple(Layer(i, Rows(2, 32, "BF16"), Rows(2, 32, "BF16")) for i in range(2)), 16)
"""Blocks of 8 KiB: two pages of payload, one of header."""


def sample(seed: int, parent: str | None = None) -> tuple[Record, memoryview]:
    """A block whose bytes follow from `seed`."""
    payload = random.Random(seed).randbytes(LAYOUT.block_bytes)
    ids = pack_ids(range(seed, seed + 16))
    return describe("block", parent or root_name(IDENTITY), ids, 16, "print", payload), memoryview(payload)


def chain(n: int) -> list[tuple[Record, memoryview]]:
    """Records of which each is the next one's parent."""
    found: list[tuple[Record, memoryview]] = []
    for seed in range(n):
        found.append(sample(seed, found[-1][0].name if found else None))
    return found


def open_store(root: Path, files: Files | None = None, identity: str = IDENTITY, events: EventLog | None = None) -> Store:
    return Store.open(root, identity, LAYOUT, files or Files(), events or EventLog(None))


def read_back(store: Store, record: Record) -> bytes:
    """The verified payload of `record`, which must have a row."""
    row = next(row for row in store.rows() if row.name == record.name)
    payload = bytearray(row.n_bytes)
    store.read(row, record.ids, memoryview(payload))
    return bytes(payload)


def files_below(root: Path) -> list[Path]:
    """All record and temporary files, wherever they lie."""
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("catalogue"))


def sweep_all(store: Store, age_seconds: float = 0.0) -> None:
    while store.sweep(age_seconds):
        pass
