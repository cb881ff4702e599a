"""A model of what a disk may hold after a power cut.

`Journal` is a file layer that does everything for real and writes down the steps. `states_after` then gives, for the
first k steps, legal contents of the disk: what was synced is there; of the rest, any part may be.

    bytes       not synced: absent, all there, zeros, or torn at a page
    names       created, renamed or unlinked without a later sync of the directory: done or not done, each by itself
    directories are names in their parents
    catalogue   a commit is there once it has returned (WAL, synchronous=FULL)
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from localkv.files import Files
from localkv.tiers.catalogue import Catalogue, Row

PAGE = 4096
DIRECTORY = -1


@dataclass(frozen=True)
class Step:
    """One step: what was done to which name; `other` is a rename's target, `content` the bytes or the rows."""

    verb: str
    path: Path
    other: Path | None = None
    content: bytes | tuple[Row, ...] = b""


class Journal(Files):
    """The real file system, and a list of what was done to it."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def write_temp(self, path, parts):
        written = super().write_temp(path, parts)
        self.steps.append(Step("write", path, content=path.read_bytes()))
        return written

    def sync(self, path):
        super().sync(path)
        self.steps.append(Step("sync", path))

    def rename(self, source, target):
        super().rename(source, target)
        self.steps.append(Step("rename", source, target))

    def sync_dir(self, directory):
        super().sync_dir(directory)
        self.steps.append(Step("sync_dir", directory))

    def make_dir(self, directory):
        new = not directory.exists()
        super().make_dir(directory)
        if new:
            self.steps.append(Step("make_dir", directory))

    def remove(self, path):
        there = path.exists()
        super().remove(path)
        if there:
            self.steps.append(Step("remove", path))


class JournalledCatalogue(Catalogue):
    """The real catalogue; each commit is a step."""

    steps: list[Step]
    identity: str

    def change(self, *args, **kwargs):
        super().change(*args, **kwargs)
        self.steps.append(Step("commit", Path(), content=tuple(self.rows(self.identity))))


@dataclass
class Disk:
    """What is durable, and what is not yet, after some steps."""

    names: dict[Path, int] = field(default_factory=dict)
    pending: list[tuple[str, Path, Path | None, int]] = field(default_factory=list)
    content: dict[int, bytes] = field(default_factory=dict)
    synced: set[int] = field(default_factory=set)
    current: dict[Path, int] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    def apply(self, step: Step) -> None:
        match step.verb:
            case "write":
                inode = len(self.content)
                self.content[inode] = step.content
                self._name("link", step.path, None, inode)
            case "make_dir":
                self._name("link", step.path, None, DIRECTORY)
            case "rename":
                self._name("rename", step.path, step.other, self.current[step.path])
            case "remove":
                self._name("unlink", step.path, None, self.current[step.path])
            case "sync":
                self.synced.add(self.current[step.path])
            case "sync_dir":
                durable = [one for one in self.pending if step.path in (one[1].parent, one[2].parent if one[2] else None)]
                for one in durable:
                    _do(self.names, *one)
                self.pending = [one for one in self.pending if one not in durable]
            case "commit":
                self.rows = step.content

    def _name(self, verb: str, path: Path, other: Path | None, inode: int) -> None:
        self.pending.append((verb, path, other, inode))
        _do(self.current, verb, path, other, inode)


def _do(names: dict[Path, int], verb: str, path: Path, other: Path | None, inode: int) -> None:
    if verb == "link":
        names[path] = inode
        return
    names.pop(path, None)
    if other is not None:
        names[other] = inode


def states_after(steps: list[Step], root: Path, rng: random.Random) -> Iterator[tuple[dict[Path, bytes], tuple[Row, ...]]]:
    """Legal states of the disk if the power goes after `steps`: files below `root`, and the rows of the catalogue."""
    disk = Disk(names={root: DIRECTORY})
    for step in steps:
        disk.apply(step)
    for kept in _choices(len(disk.pending), rng):
        names = dict(disk.names)
        for one in itertools.compress(disk.pending, kept):
            _do(names, *one)
        visible = {path: inode for path, inode in names.items() if inode != DIRECTORY and _reachable(path, root, names)}
        for damage in ("none", "absent", "zeros", "torn", "cut", "mixed"):
            yield {path: _bytes(disk, inode, damage, rng) for path, inode in visible.items()}, disk.rows


def _choices(n: int, rng: random.Random) -> Iterator[tuple[bool, ...]]:
    if n <= 4:
        yield from itertools.product((False, True), repeat=n)
        return
    yield (True,) * n
    yield (False,) * n
    for lost in range(n):
        yield tuple(i != lost for i in range(n))
        yield tuple(i == lost for i in range(n))
    for _ in range(16):
        yield tuple(rng.random() < 0.5 for _ in range(n))


def _reachable(path: Path, root: Path, names: dict[Path, int]) -> bool:
    return all(parent in names for parent in path.parents if parent == root or root in parent.parents)


def _bytes(disk: Disk, inode: int, damage: str, rng: random.Random) -> bytes:
    whole = disk.content[inode]
    if damage == "mixed":
        damage = rng.choice(["none", "absent", "zeros", "torn", "cut"])
    if inode in disk.synced or damage == "none":
        return whole
    if damage == "absent":
        return b""
    if damage == "zeros":
        return bytes(len(whole))
    if damage == "cut":
        return whole[: len(whole) // 2]
    pages = [whole[i : i + PAGE] for i in range(0, len(whole), PAGE)]
    return b"".join(page if i % 2 == 0 else bytes(len(page)) for i, page in enumerate(pages))
