"""Every region of a record file, spoilt one byte at a time and cut at every edge: nothing of it is ever used, or passes an audit."""

import json
import os
import random
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from localkv.errors import BadRecord
from localkv.events import EventLog
from localkv.files import Files
from localkv.kv.layout import Layer, Layout, Rows, State
from localkv.kv.record import Record, describe, encode_header, pack_ids, root_name, segments_of
from localkv.tiers.audit import check_file
from localkv.tiers.catalogue import Row
from localkv.tiers.disk import Store
from localkv.tiers.publish import record_path
from tests.tiers.tier_samples import IDENTITY

LAYOUT = Layout(
    (
        *(Layer(i, Rows(2, 8, "BF16"), Rows(2, 8, "BF16")) for i in range(3)),
        Layer(3, Rows(1, 4, "F32"), Rows(1, 4, "F32"), 8),
        Layer(4, states=(State("conv", (3, 5), "F32"), State("ssm", (2, 7), "F32"))),
    ),
    16,
)
"""Three layers that keep all tokens, one with a window, one with two states."""

KINDS = {"block": 16, "checkpoint": 21}
"""Kinds of records and their positions."""

PER_REGION = 6
"""Bytes that are tried in each region: its first, its last, and some between."""


@dataclass(frozen=True)
class Stored:
    """One record on the disk, and the regions of its file: name -> (begin, end)."""

    store: Store
    row: Row
    record: Record
    path: Path
    whole: bytes
    regions: dict[str, tuple[int, int]]


def regions_of(record: Record, header: bytes) -> dict[str, tuple[int, int]]:
    """Length, every name and value of the metadata, every entry of a tensor, the padding, and every tensor's bytes."""
    text = header[8:].rstrip(b" ")
    found = {"length": (0, 8), "braces": (8, 9), "padding": (8 + len(text), len(header))}
    for key, value in json.loads(text)["__metadata__"].items():
        body = f'"{key}":"{value}"'.encode()
        at = header.index(body)
        found[f"meta {key}"], found[f"value {key}"] = (at, at + len(key) + 2), (at + len(key) + 3, at + len(body))
    for match in re.finditer(rb'"([^"]+)":\{"dtype":.*?\}', header):
        found[f"entry {match[1].decode()}"] = match.span()
    for segment in segments_of(LAYOUT, record):
        begin = len(header) + segment.offset
        found[f"payload {segment.name}"] = (begin, begin + segment.n_bytes)
    return found


@pytest.fixture(scope="module", params=KINDS)
def stored(request, fast_module_dir):
    """A record of each kind."""
    kind, position = request.param, KINDS[request.param]
    n_bytes = LAYOUT.block_bytes if kind == "block" else LAYOUT.checkpoint_bytes(position)
    payload = random.Random(kind).randbytes(n_bytes)
    record = describe(kind, root_name(IDENTITY), pack_ids(range(16)), position, "print", payload)
    store = Store.open(fast_module_dir / kind, IDENTITY, LAYOUT, Files(), EventLog(None))
    (row,) = store.publish([(record, memoryview(payload))])
    path = record_path(store.root, IDENTITY, record.name)
    regions = regions_of(record, encode_header(record, LAYOUT))
    yield Stored(store, row, record, path, path.read_bytes(), regions)
    store.close()


def who_passes(stored: Stored, content: bytes) -> list[str]:
    """Who lets a file of this content pass: the reader before use, the audit."""
    stored.path.write_bytes(content)
    passed = []
    for name, look in (
        ("read", lambda: stored.store.read(stored.row, stored.record.ids, memoryview(bytearray(stored.row.n_bytes)))),
        ("audit", lambda: check_file(stored.path, Files())),
    ):
        try:
            look()
        except BadRecord:
            continue
        passed.append(name)
    return passed


def test_the_regions_are_the_whole_file(stored):
    """Every layer of either kind is among the regions, and no payload byte is outside of them; a good file passes."""
    names = {name for name in stored.regions if name.startswith("payload")}
    layers = {re.search(r"\d+", name)[0] for name in names}
    assert layers == ({"0", "1", "2"} if stored.record.kind == "block" else {"0", "1", "2", "3", "4"})
    edges = sorted(stored.regions[name] for name in names)
    assert all(one[1] == other[0] for one, other in pairwise(edges))
    assert (edges[0][0], edges[-1][1]) == (stored.row.header_bytes, len(stored.whole))
    assert sum(name.startswith("entry") for name in stored.regions) == len(names)
    assert who_passes(stored, stored.whole) == ["read", "audit"]


def test_every_flipped_byte_is_refused(stored, record_property):
    """One byte changed, in any region, by one bit or more: refused by the reader and by the audit, 100 % of the cases."""
    rng, cases = random.Random(5), 0
    for begin, end in stored.regions.values():
        for at in {begin, end - 1, *(rng.randrange(begin, end) for _ in range(PER_REGION - 2))}:
            for mask in (1 << rng.randrange(8), rng.randint(1, 255)):
                spoilt = bytearray(stored.whole)
                spoilt[at] ^= mask
                assert who_passes(stored, bytes(spoilt)) == [], (at, mask)
                cases += 1
    record_property("cases", cases)
    assert cases > 400


def test_every_cut_is_refused(stored):
    """The file cut at the edges of every region, one byte before and after them, and in their middle; or longer than it was."""
    cuts = {at for begin, end in stored.regions.values() for at in (begin - 1, begin, begin + 1, (begin + end) // 2, end - 1)}
    for cut in sorted(cut for cut in cuts if 0 <= cut < len(stored.whole)):
        assert who_passes(stored, stored.whole[:cut]) == [], cut
    assert who_passes(stored, stored.whole + b"\0") == []
    os.truncate(stored.path, len(stored.whole))
    assert who_passes(stored, stored.whole) == ["read", "audit"]
