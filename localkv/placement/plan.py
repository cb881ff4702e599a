"""What a turn needs: which records, where they are, and where prefill starts. Pure functions over frozen values.

Torch-free. The view of the index is read once, on the control thread; nothing is changed.

    prompt   |--- block ---|--- block ---|-- checkpoint's tail --|---- prefill ----|
             0             S             2S                  resume_at           len(ids)

Order of preference: the slot as it is, if this conversation's turn was the last and what was fed is a prefix of the prompt that
reaches at least as far as the rest; then the conversation's own history, from its head; then whatever reaches furthest of
another conversation's slot and any chain of records for the same ids. A model whose layers all keep full attention may resume at
any block edge; any other only at a checkpoint. At least the prompt's last token is always computed: its logits are wanted.

`exact` is claimed only where nothing was restored because there was nothing, where the slot goes on, or where all of the
conversation's own history comes back with the current fingerprint.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from localkv.events import Reason
from localkv.kv.layout import Layout
from localkv.kv.record import Head, RecordKind, empty_block, lookup_key, pack_ids, root_name
from localkv.placement.index import Candidate
from localkv.tiers.publish import SUPERSEDED

PieceTier = Literal["slot", "vram", "ram", "ssd", "none"]


class Chains(Protocol):
    """The view of the index that a plan is made from."""

    def get(self, name: str) -> Candidate | None:
        """The record of that name."""

    def find(self, lookup: str) -> list[Candidate]:
        """All records under that lookup."""

    def checkpoints_after(self, parent: str) -> list[Candidate]:
        """All checkpoints with that parent."""

    def why_gone(self, name: str) -> str:
        """The reason on that name's tombstone, or ""."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """What the slot holds now."""

    ids: Sequence[int] = ()
    names: Sequence[str] = ()
    owner: str = ""
    """The conversation whose turn it was."""
    mixed: bool = False
    """Some of it was restored from records of another fingerprint."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is planned for."""

    conversation: str
    ids: Sequence[int]
    head: Head | None
    diverged: bool = False
    """The template renders old turns differently now: tokens after the common prefix are not the head's any more."""
    at_most: int | None = None
    """Bring no more tokens than this: there was no room for what comes after them."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all plans of one loaded model share."""

    layout: Layout
    identity: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Piece:
    """One record of the plan; it covers the tokens [start, end)."""

    name: str
    kind: RecordKind
    start: int
    end: int
    ids: bytes
    n_bytes: int
    tier: PieceTier
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to bring, in order, and where to go on."""

    prompt_tokens: int
    resume_at: int
    pieces: tuple[Piece, ...] = ()
    live: bool = False
    """The slot goes on as it is."""
    exact: bool = True
    because: str = ""
    """Why not exact; empty if exact."""
    lost: tuple[tuple[str, int], ...] = ()
    """(reason, tokens) that the conversation's own history covered and that are computed again."""
    names: tuple[str, ...] = ()
    """The chain of block names up to the last block edge at or before resume_at."""
    slot_tokens: int = 0
    """Tokens that the slot itself supplies."""

    def mixes(self, ground: "Ground | None") -> bool:
        """Whether it brings records of another fingerprint than the present one."""
        return ground is not None and any(piece.n_bytes and piece.fingerprint != ground.fingerprint for piece in self.pieces)

    @property
    def to_bring(self) -> tuple[Piece, ...]:
        """The pieces whose bytes must be copied into the slot."""
        return tuple(piece for piece in self.pieces if piece.tier in ("vram", "ram", "ssd"))


def make_plan(question: Question, slot: SlotView, chains: Chains, ground: Ground) -> Plan:
    """The plan for `question`."""
    search = _Search(question, slot, chains, ground)
    live, mine = _live_position(question.ids, slot), slot.owner == question.conversation
    own = search.own_history()
    best = own or search.best_chain()
    if live and live >= best.resume_at and (mine or own is None):
        names = tuple(slot.names[: live // ground.layout.block_tokens])
        plan = Plan(len(question.ids), live, (), True, mine, "" if mine else _FOREIGN, (), names, live)
    else:
        plan = search.finish(best)
    lost = search.lost(plan.resume_at)
    return _with_loss(plan, lost) if lost else plan


_FOREIGN = "the state was built by another conversation"
_NOTHING = "nothing of the conversation's own history could be used"


def from_the_start(question: Question, reason: Reason) -> Plan:
    """A plan that brings nothing; what the conversation's own history covered is lost for `reason`."""
    n, covered = len(question.ids), question.head.tokens if question.head else 0
    lost = ((str(reason), min(covered, n)),) if covered else ()
    exact = not lost and reason is Reason.UNCACHED_KIND
    return Plan(n, 0, exact=exact, because="" if exact else f"nothing could be restored: {reason}", lost=lost)


def without_room(question: Question, plan: Plan, name: str) -> Question:
    """`question` again, after there was no room in RAM for the piece `name` of `plan`: what comes before it must do."""
    return replace(question, at_most=next((piece.start for piece in plan.pieces if piece.name == name), 0))


def _with_loss(plan: Plan, lost: tuple[tuple[str, int], ...]) -> Plan:
    because = f"{sum(n for _, n in lost):,} tokens are computed again: {lost[0][0]}"
    return replace(plan, exact=False, because=because, lost=lost)


def _live_position(ids: Sequence[int], slot: SlotView) -> int:
    """Where the slot can go on: its position if all it was fed is a proper prefix of `ids`, else 0."""
    n = len(slot.ids)
    return n if n < len(ids) and list(slot.ids) == list(ids[:n]) else 0


@dataclass(frozen=True, slots=True)
class _Chain:
    """A place to resume and the records up to it."""

    blocks: tuple[Candidate, ...]
    checkpoint: Candidate | None
    own: bool
    """It ends in the conversation's head."""
    block_tokens: int

    @property
    def resume_at(self) -> int:
        return self.checkpoint.position if self.checkpoint else len(self.blocks) * self.block_tokens


@dataclass(slots=True)
class _Search:
    """One search; nothing outlives `make_plan`."""

    question: Question
    slot: SlotView
    chains: Chains
    ground: Ground
    slot_blocks: int = field(init=False)
    """How many leading blocks of the prompt the slot holds."""

    def __post_init__(self) -> None:
        size = self.size
        common = common_prefix(self.question.ids, self.slot.ids)
        self.slot_blocks = min(common // size, len(self.slot.names), self.limit // size)

    @property
    def size(self) -> int:
        return self.ground.layout.block_tokens

    @property
    def limit(self) -> int:
        """The last place to resume: one token must be left to compute."""
        last, at_most = max(len(self.question.ids) - 1, 0), self.question.at_most
        return last if at_most is None else min(last, at_most)

    @property
    def root(self) -> str:
        return root_name(self.ground.identity)

    def block_ids(self, i: int) -> bytes:
        return pack_ids(self.question.ids[i * self.size : (i + 1) * self.size])

    def own_history(self) -> _Chain | None:
        """The chain that ends in the conversation's head, if every record of it is there and fits the prompt."""
        head = self.question.head
        if head is None or head.identity != self.ground.identity or not 0 < head.tokens <= self.limit:
            return None
        last = self.chains.get(head.name)
        if last is None or last.position != head.tokens:
            return None
        checkpoint = last if last.kind == "checkpoint" else None
        if checkpoint is None and not self.ground.layout.only_full:
            return None
        edge = head.tokens - head.tokens % self.size
        if checkpoint is not None and not self._fits(checkpoint, edge):
            return None
        blocks = self._own_blocks(checkpoint.parent if checkpoint else head.name, edge // self.size)
        return None if blocks is None else _Chain(blocks, checkpoint, True, self.size)

    def _own_blocks(self, name: str, n: int) -> tuple[Candidate, ...] | None:
        """The `n` blocks that end in `name`, first one first; None unless all are there and fit the prompt."""
        if not self.ground.layout.block_bytes:
            blocks = self._empty_blocks(n)
            return blocks if (blocks[-1].name if blocks else self.root) == name else None
        found: list[Candidate] = []
        for i in reversed(range(n)):
            block = self.chains.get(name) or self._slot_block(i, name)
            if block is None or block.lookup != lookup_key("block", block.parent, self.block_ids(i)):
                return None
            found.append(block)
            name = block.parent
        return tuple(reversed(found)) if name == self.root else None

    def best_chain(self) -> _Chain:
        """The furthest place to resume from any records for these ids; ties go to the current fingerprint, then the newest."""
        n = self.limit // self.size
        levels = self._levels(n) if self.ground.layout.block_bytes else [{b.name: b} for b in self._empty_blocks(n)]
        places: list[tuple[int, str]] = [(0, self.root)]
        places += [(i + 1, name) for i, level in enumerate(levels) for name in level]
        order = (0, False, 0.0)
        found: tuple[int, str, Candidate | None] = (0, self.root, None)
        for i, name in places:
            ends = [c for c in self.chains.checkpoints_after(name) if self._reaches(c, i * self.size, order[0])]
            ends += [levels[i - 1][name]] if i and self.ground.layout.only_full else []
            for end in ends:
                rank = (end.position, end.fingerprint == self.ground.fingerprint, end.used)
                if rank > order:
                    found, order = (i, name, end if end.kind == "checkpoint" else None), rank
        i, name, checkpoint = found
        return _Chain(_trace(levels[:i], name), checkpoint, False, self.size)

    def _reaches(self, checkpoint: Candidate, edge: int, at_least: int) -> bool:
        return at_least <= checkpoint.position <= self.limit and self._fits(checkpoint, edge)

    def _levels(self, n: int) -> list[dict[str, Candidate]]:
        """All candidates for each of the first `n` blocks that have a whole chain before them.

        A prefix may exist in several versions, of which only one may go on, or have a checkpoint.
        """
        levels: list[dict[str, Candidate]] = []
        frontier: Collection[str] = [self.root]
        for i in range(n):
            ids = self.block_ids(i)
            found = [c for parent in frontier for c in self.chains.find(lookup_key("block", parent, ids))]
            if i < self.slot_blocks and (held := self._slot_block(i, self.slot.names[i])) and held.parent in frontier:
                found.append(held)
            if not found:
                break
            levels.append({candidate.name: candidate for candidate in reversed(found)})
            frontier = levels[-1]
        return levels

    def _empty_blocks(self, n: int) -> tuple[Candidate, ...]:
        """Blocks of a model without full attention: no bytes, so their names follow from the ids."""
        chain: list[Candidate] = []
        parent = self.root
        for i in range(n):
            record = empty_block(parent, self.block_ids(i), (i + 1) * self.size, self.ground.fingerprint)
            chain.append(
                Candidate(record.name, "block", parent, record.lookup, record.position, 0, record.fingerprint, "ram", 0.0)
            )
            parent = record.name
        return tuple(chain)

    def _slot_block(self, i: int, name: str) -> Candidate | None:
        """Block `i` as the slot holds it, if it is the block `name`."""
        if i >= self.slot_blocks or self.slot.names[i] != name:
            return None
        parent = self.slot.names[i - 1] if i else self.root
        lookup = lookup_key("block", parent, self.block_ids(i))
        fingerprint = "" if self.slot.mixed else self.ground.fingerprint
        n_bytes = self.ground.layout.block_bytes
        return Candidate(name, "block", parent, lookup, (i + 1) * self.size, n_bytes, fingerprint, "ram", 0.0)

    def _fits(self, checkpoint: Candidate, edge: int) -> bool:
        ids = pack_ids(self.question.ids[edge : checkpoint.position])
        return checkpoint.lookup == lookup_key("checkpoint", checkpoint.parent, ids)

    def finish(self, chain: _Chain) -> Plan:
        """The plan that resumes where `chain` ends."""
        names = tuple(block.name for block in chain.blocks)
        in_slot = 0
        while in_slot < min(self.slot_blocks, len(names)) and self.slot.names[in_slot] == names[in_slot]:
            in_slot += 1
        pieces = [self._piece(block, i * self.size, i < in_slot) for i, block in enumerate(chain.blocks)]
        if chain.checkpoint is not None:
            pieces.append(self._piece(chain.checkpoint, len(chain.blocks) * self.size, False))
        because = self._why_inexact(chain)
        n = len(self.question.ids)
        return Plan(n, chain.resume_at, tuple(pieces), False, not because, because, (), names, in_slot * self.size)

    def _piece(self, record: Candidate, start: int, in_slot: bool) -> Piece:
        tier: PieceTier = "slot" if in_slot else "none" if not record.n_bytes else record.tier
        ids = pack_ids(self.question.ids[start : record.position])
        return Piece(record.name, record.kind, start, record.position, ids, record.n_bytes, tier, record.fingerprint)

    def _why_inexact(self, chain: _Chain) -> str:
        if not chain.own:
            return _FOREIGN if chain.resume_at else "" if self.question.head is None else _NOTHING
        records = (*chain.blocks, chain.checkpoint) if chain.checkpoint else chain.blocks
        if any(record.n_bytes and record.fingerprint != self.ground.fingerprint for record in records):
            return f"{Reason.FINGERPRINT_CHANGED}: versions, threads or device changed since these records were made"
        return ""

    def lost(self, resume_at: int) -> tuple[tuple[str, int], ...]:
        """(reason, tokens) that the head covered and that must be computed again."""
        head = self.question.head
        covered = min(head.tokens, len(self.question.ids) - 1) if head else 0
        if head is None or resume_at >= covered:
            return ()
        return ((self._why_lost(head), covered - resume_at),)

    def _why_lost(self, head: Head) -> str:
        if head.identity != self.ground.identity:
            return Reason.IDENTITY_CHANGED
        if self.question.diverged:
            return Reason.TEMPLATE_DIVERGED
        if self.question.at_most is not None:
            return Reason.NO_ROOM
        name = head.name
        while name != self.root:
            record = self.chains.get(name)
            if record is None:
                return _reason(self.chains.why_gone(name))
            if not self.ground.layout.block_bytes:
                break
            name = record.parent
        return Reason.EDITED  # all of it is there, and the prompt no longer begins with it


def _reason(tombstone: str) -> str:
    """A tombstone's word as one of the closed list. Without a tombstone the record was lost before it was saved."""
    try:
        return Reason(tombstone)
    except ValueError:
        return Reason.KIND_BOUNDARY if tombstone == SUPERSEDED else Reason.ENGINE_RESTARTED


def _trace(levels: Sequence[Mapping[str, Candidate]], name: str) -> tuple[Candidate, ...]:
    """The chain of blocks that ends in `name`, which is in the last of `levels`; first block first."""
    chain: list[Candidate] = []
    for level in reversed(levels):
        chain.append(level[name])
        name = chain[-1].parent
    return tuple(reversed(chain))


_STEP = 512
"""Tokens compared at once: 40 times as fast as one by one."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids both begin with."""
    n, start = min(len(a), len(b)), 0
    while start < n and list(a[start : start + _STEP]) == list(b[start : start + _STEP]):
        start += _STEP
    for i in range(start, n):
        if a[i] != b[i]:
            return i
    return n
