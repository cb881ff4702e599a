"""Which records hold the state of given token ids: walks over rows, from the root of an identity.

Pure; opens nothing. A block is found under (parent, its ids), so a walk needs the ids and the block length. Models that keep
no full-attention rows have blocks without bytes: those have no row, and their names follow from the ids alone.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from localkv.kv.record import ID_BYTES, empty_block, lookup_key, root_name
from localkv.tiers.catalogue import Row

BLOCK_TOKENS = range(16, 1025, 16)
"""Every block length that the settings allow."""


@dataclass(slots=True)
class Lineage:
    """The rows of one identity, ready for walks."""

    identity: str
    rows: dict[str, Row] = field(default_factory=dict)
    _blocks: dict[str, list[Row]] = field(default_factory=dict)
    _checkpoints: dict[str, list[Row]] = field(default_factory=dict)

    @classmethod
    def of(cls, identity: str, rows: Iterable[Row]) -> "Lineage":
        """The lineage of `rows`, all of them of `identity`."""
        made = cls(identity)
        for row in rows:
            made.rows[row.name] = row
            if row.kind == "block":
                made._blocks.setdefault(row.lookup, []).append(row)
            else:
                made._checkpoints.setdefault(row.parent, []).append(row)
        return made

    @property
    def block_tokens(self) -> Sequence[int]:
        """The block lengths to walk with: that of the blocks that are there, else all that are possible."""
        lengths = {
            row.position for row in self.rows.values() if row.kind == "block" and row.parent == root_name(self.identity)
        }
        return sorted(lengths) if self._blocks else BLOCK_TOKENS

    def walk(self, ids: bytes) -> Iterator[Row]:
        """The rows whose state is that of a prefix of `ids`, in any version."""
        for size in self.block_tokens:
            yield from self._walk(ids, size)

    def _walk(self, ids: bytes, size: int) -> Iterator[Row]:
        step, frontier, start = size * ID_BYTES, [root_name(self.identity)], 0
        while frontier:
            for parent in frontier:
                yield from self._checkpoints_after(parent, ids, start)
            part = ids[start : start + step]
            if len(part) < step:
                return
            start += step
            frontier = list(self._next(frontier, part, start // ID_BYTES))
            yield from (self.rows[name] for name in frontier if name in self.rows)

    def _next(self, frontier: Sequence[str], part: bytes, position: int) -> Iterator[str]:
        for parent in frontier:
            if self._blocks:
                yield from (row.name for row in self._blocks.get(lookup_key("block", parent, part), ()))
            else:
                yield empty_block(parent, part, position, "").name

    def _checkpoints_after(self, parent: str, ids: bytes, start: int) -> Iterator[Row]:
        for row in self._checkpoints.get(parent, ()):
            if row.lookup == lookup_key("checkpoint", parent, ids[start : row.position * ID_BYTES]):
                yield row

    def cut_off(self, ids: bytes) -> Iterator[Row]:
        """The rows for a part of `ids` whose parent is lost: no walk gets to them, and they hold tokens all the same."""
        root, sizes = root_name(self.identity), self.block_tokens or BLOCK_TOKENS
        for row in self.rows.values():
            if row.parent not in self.rows and row.parent != root and self._is_part(row, ids, sizes):
                yield row

    def _is_part(self, row: Row, ids: bytes, sizes: Sequence[int]) -> bool:
        """Whether the row's own tokens stand in `ids` where it says, as far as it has any."""
        end = row.position
        starts = {end - size if row.kind == "block" else end - end % size for size in sizes}
        parts = (ids[start * ID_BYTES : end * ID_BYTES] for start in starts if 0 <= start < end <= len(ids) // ID_BYTES)
        return any(row.lookup == lookup_key(row.kind, row.parent, part) for part in parts)

    def below(self, names: Iterable[str]) -> set[str]:
        """`names` and all records that build on them."""
        children: dict[str, list[str]] = {}
        for row in self.rows.values():
            children.setdefault(row.parent, []).append(row.name)
        found, waiting = set(names), list(names)
        while waiting:
            fresh = [name for name in children.get(waiting.pop(), ()) if name not in found]
            found.update(fresh)
            waiting += fresh
        return found


def no_longer_needed(lineage: Lineage, ids: bytes, shared: int) -> set[str]:
    """The records of the prefixes of `ids` that are longer than `shared` tokens, and what builds on them."""
    found = itertools.chain(lineage.walk(ids), lineage.cut_off(ids))
    return lineage.below([row.name for row in found if row.position > shared])


def needed(lineage: Lineage, logs: Iterable[bytes]) -> set[str]:
    """The records that some log of token ids may be restored from."""
    return {row.name for ids in logs for row in lineage.walk(ids)}
