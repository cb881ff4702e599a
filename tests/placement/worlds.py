"""Random worlds of records for the plan: routes of tokens, records for them in several versions, and what the slot holds."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from localkv.kv.layout import Layer, Layout, Rows, State
from localkv.kv.record import Head, Record, describe, empty_block, pack_ids, root_name, unpack_ids
from localkv.placement.index import Entry, Index, Saving
from localkv.placement.plan import Ground, Question, SlotView
from localkv.tiers.catalogue import row_of

SIZE = 16
IDENTITY = "ab" * 20
ROOT = root_name(IDENTITY)
NOW, OLD = "now", "old"
"""Fingerprints."""

ROWS = Rows(1, 8, "BF16")
LAYOUTS = {
    "only_full": Layout((Layer(0, ROWS, ROWS),), SIZE),
    "sliding": Layout((Layer(0, ROWS, ROWS), Layer(1, ROWS, ROWS, window=8)), SIZE),
    "recurrent": Layout((Layer(0, ROWS, ROWS), Layer(1, states=(State("ssm", (4,), "F32"),))), SIZE),
    "empty_blocks": Layout((Layer(0, states=(State("ssm", (4,), "F32"),)),), SIZE),
}


@dataclass
class World:
    """All records there ever were, which of them are where, and what each stands for."""

    layout: Layout
    path: dict[str, tuple[int, ...]] = field(default_factory=lambda: {ROOT: ()})
    """name -> all tokens that it and its parents cover."""
    parent: dict[str, str] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    """name -> "ram", "ssd", or the reason why it is gone ("": it vanished without a tombstone)."""

    def add(self, kind, parent, ids, version, fingerprint, where):
        """A record for `ids` after `parent`; its bytes follow from `version`. The first of a name stays."""
        position = len(self.path[parent]) + len(ids)
        if kind == "block" and not self.layout.block_bytes:
            record = empty_block(parent, pack_ids(ids), position, NOW)
            self.path[record.name], self.parent[record.name] = (*self.path[parent], *ids), parent
            return record.name
        n_bytes = self.layout.block_bytes if kind == "block" else self.layout.checkpoint_bytes(position)
        record = describe(kind, parent, pack_ids(ids), position, fingerprint, bytes([version]) * n_bytes)
        if record.name not in self.records:
            self.records[record.name] = record
            self.where[record.name] = where
            self.path[record.name], self.parent[record.name] = (*self.path[parent], *ids), parent
        return record.name

    def present(self, name):
        return self.where.get(name) in ("ram", "ssd")

    def index(self):
        """The index that knows what is present and why the rest is gone."""
        index = Index(ROOT)
        for n, (name, record) in enumerate(self.records.items()):
            if self.present(name):
                place = object() if self.where[name] == "ram" else None
                index.add(Entry(row_of(record, 4096, float(n)), record.ids, Saving.SAVED, place))
            elif self.where[name]:
                index.tombstones[name] = self.where[name]
        return index


@dataclass
class Case:
    """One thing to plan."""

    world: World
    question: Question
    slot: SlotView
    ground: Ground


tokens = st.integers(0, 1)
residency = st.sampled_from(["ram", "ssd", "ssd", "ram", "ssd", "checksum", "evicted", "superseded", ""])


@st.composite
def routes(draw, world):
    """One conversation's way: the names of its blocks, and its checkpoints."""
    chain, checkpoints = [ROOT], []
    for _ in range(draw(st.integers(0, 8))):
        # all 16 tokens equal: there are but two blocks per parent, so that routes share prefixes and lookups
        ids = [draw(tokens)] * SIZE
        version, print_ = draw(st.integers(0, 1)), draw(st.sampled_from([NOW, NOW, NOW, OLD]))
        chain.append(world.add("block", chain[-1], ids, version, print_, draw(residency)))
    for _ in range(draw(st.integers(0, 3))):
        parent = draw(st.sampled_from(chain))
        tail = [draw(tokens)] * draw(st.integers(0, SIZE - 1))
        if not world.path[parent] and not tail:
            continue
        if world.layout.only_full and not tail:
            continue
        version, print_ = draw(st.integers(0, 1)), draw(st.sampled_from([NOW, NOW, OLD]))
        checkpoints.append(world.add("checkpoint", parent, tail, version, print_, draw(residency)))
    return chain, checkpoints


@st.composite
def cases(draw):
    """A world, a prompt that mostly follows one of its routes, a head, and a slot that mostly follows one, too."""
    world = World(LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))])
    made = [draw(routes(world)) for _ in range(draw(st.integers(1, 3)))]
    ends = [name for chain, checkpoints in made for name in (*chain, *checkpoints)]
    prompt = list(world.path[draw(st.sampled_from(ends))])
    prompt = prompt[: draw(st.integers(0, len(prompt)))] if draw(st.integers(0, 3)) == 0 else prompt
    prompt += draw(st.lists(tokens, min_size=0 if prompt else 1, max_size=20))
    question = Question(
        "me", prompt, draw(heads(world, made)), draw(st.booleans()) and draw(st.booleans()),
        draw(st.none() | st.none() | st.integers(0, len(prompt))),
    )  # fmt: skip
    return Case(world, question, draw(slots(world, made)), Ground(world.layout, IDENTITY, NOW))


@st.composite
def heads(draw, world, made):
    """Nothing, a conversation's end, or a claim that can't be true."""
    ends = [name for _, checkpoints in made for name in checkpoints]
    ends += [chain[-1] for chain, _ in made if len(chain) > 1]
    choice = draw(st.integers(0, 9))
    if choice == 0 or not ends:
        return None
    name = draw(st.sampled_from(ends))
    identity = "cd" * 20 if choice == 1 else IDENTITY
    off_by = 1 if choice == 2 else 0
    return Head(name, identity, len(world.path[name]) + off_by, NOW)


@st.composite
def slots(draw, world, made):
    chain, _ = draw(st.sampled_from(made))
    ids = list(world.path[chain[-1]]) + draw(st.lists(tokens, max_size=20))
    ids = ids[: draw(st.integers(0, len(ids)))] if draw(st.booleans()) else ids
    names = chain[1:][: len(ids) // SIZE]
    names = names[: draw(st.integers(0, len(names)))] if draw(st.booleans()) else names
    prints = {world.records[name].fingerprint for name in names if name in world.records}
    return SlotView(ids, names, draw(st.sampled_from(["me", "other"])), OLD in prints or draw(st.integers(0, 9)) == 0)


def ids_of(piece):
    return unpack_ids(piece.ids)
