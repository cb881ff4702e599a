"""`bench scale`: opening a store with 100,000 records, and planning a conversation of 32k tokens in it. No model, no torch.

Rows are made up and written into the catalogue directly; only the files of the conversation that is planned exist, and
they are tiny. Opening is what an engine does before it answers: catalogue, index, control thread. Median of several rounds.
"""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localkv.commands.bench import Say
from localkv.events import EventLog
from localkv.files import Files
from localkv.kv.layout import Layer, Layout, Rows
from localkv.kv.record import Head, describe, lookup_key, pack_ids, root_name
from localkv.placement.jobs import SsdLimits
from localkv.placement.keeper import Keeper
from localkv.placement.plan import Ground, Plan, Question, SlotView
from localkv.tiers.catalogue import CATALOGUE, Catalogue, Row, row_of
from localkv.tiers.disk import Store
from localkv.tiers.host import HostPool
from localkv.tiers.transfer import Transfers

TALKS = 1000
ROWS = 100_000
TOKENS = 32 * 1024
SIZE = 256
ROUNDS = 7
IDENTITY = "ab" * 20
FINGERPRINT = "bench"
LAYOUT = Layout((Layer(0, Rows(1, 1, "U8"), Rows(1, 1, "U8")),), SIZE)
"""Blocks of 512 bytes."""


def measure(say: Say) -> dict[str, Any]:
    """How long opening and planning take."""
    with tempfile.TemporaryDirectory(prefix="localkv-bench-") as folder:
        root = Path(folder) / "store"
        say(f"writing {ROWS:,} rows")
        ids, head = _fill(root)
        opens, plans = [], []
        for round_ in range(ROUNDS):
            say(f"round {round_ + 1} of {ROUNDS}")
            began = time.perf_counter()
            keeper = _open(root)
            opens.append(time.perf_counter() - began)
            plans.append(_plan(keeper, ids, head))
            keeper.close()
    return {
        "conversations": TALKS, "rows": ROWS, "open_s": statistics.median(opens), "plan_ms": 1000 * statistics.median(plans),
    }  # fmt: skip


def _open(root: Path) -> Keeper:
    events = EventLog(None)
    store = Store.open(root, IDENTITY, LAYOUT, Files(), events)
    pool = HostPool(LAYOUT.block_bytes, LAYOUT.max_checkpoint_bytes, 1 << 20)
    return Keeper(Ground(LAYOUT, IDENTITY, FINGERPRINT), pool, store, Transfers(1), SsdLimits(1 << 40, 0), events)


def _plan(keeper: Keeper, ids: list[int], head: Head) -> float:
    question = Question("bench", [*ids, 1], head)
    began = time.perf_counter()
    plan: Plan = keeper.plan(question, SlotView())
    seconds = time.perf_counter() - began
    assert plan.resume_at == TOKENS, "the whole conversation is on SSD"
    assert plan.exact
    return seconds


def _fill(root: Path) -> tuple[list[int], Head]:
    """A store of many rows; returns the conversation to plan."""
    root.mkdir(mode=0o700)
    rng = random.Random(0)
    ids = [rng.randrange(40_000) for _ in range(TOKENS)]
    rows = list(_real_rows(ids))
    head = Head(rows[-1].name, IDENTITY, TOKENS, FINGERPRINT)
    _write_files(root, rows)
    for talk in range(1, TALKS):
        rows += _made_up_rows(rng, talk, (ROWS - TOKENS // SIZE) // (TALKS - 1))
    while len(rows) < ROWS:
        rows += _made_up_rows(rng, TALKS + len(rows), 1)
    catalogue = Catalogue.open(root / CATALOGUE, EventLog(None))
    catalogue.change(IDENTITY, rows)
    catalogue.close()
    return ids, head


def _real_rows(ids: list[int]) -> Iterator[Row]:
    parent, payload = root_name(IDENTITY), bytes(LAYOUT.block_bytes)
    for i in range(TOKENS // SIZE):
        block = pack_ids(ids[i * SIZE : (i + 1) * SIZE])
        record = describe("block", parent, block, (i + 1) * SIZE, FINGERPRINT, payload)
        parent = record.name
        yield row_of(record, 4096, time.time())


def _made_up_rows(rng: random.Random, talk: int, n: int) -> list[Row]:
    """A chain of `n` blocks that nobody will ask for."""
    parent, rows = root_name(IDENTITY), []
    for i in range(n):
        name = f"{rng.getrandbits(160):040x}"
        lookup = lookup_key("block", parent, talk.to_bytes(4, "little"))
        rows.append(Row(
            name, "block", parent, lookup, (i + 1) * SIZE, FINGERPRINT, LAYOUT.block_bytes, "0" * 40, "0" * 32, 4096, 1e9 + talk
        ))  # fmt: skip
        parent = name
    return rows


def _write_files(root: Path, rows: list[Row]) -> None:
    for row in rows:
        folder = root / IDENTITY / row.name[:2]
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / f"{row.name}.safetensors"
        file.touch(mode=0o600)
        os.truncate(file, row.file_bytes)
