"""What a turn needs: which records, where they are, and where prefill starts. Pure functions over frozen values.

Torch-free. The view of the index is read once, on the control thread; nothing is changed.

    prompt   |--- block ---|--- block ---|-- checkpoint's tail --|---- prefill ----|
             0             S             2S                  resume_at           len(ids)

Order of preference: the live slot, if what was fed is a prefix of the prompt and reaches furthest; then the conversation's own
history, from its head; then any chain of records for the same ids. A model whose layers all keep full attention may resume at any block
edge; any other only at a checkpoint. At least the prompt's last token is always computed: its logits are wanted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from localkv.events import Reason
from localkv.kv.layout import Layout
from localkv.kv.record import Head, RecordKind, empty_block, lookup_key, pack_ids, root_name
from localkv.placement.index import Candidate

PieceTier = Literal["slot", "ram", "ssd", "none"]


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


@dataclass(frozen=True, slots=True)
class Question:
    """What is planned for."""

    conversation: str
    ids: Sequence[int]
    head: Head | None
    diverged: bool = False
    """The template renders old turns differently now: tokens after the common prefix are not the head's any more."""


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

    @property
    def to_bring(self) -> tuple[Piece, ...]:
        """The pieces whose bytes must be copied into the slot."""
        return tuple(piece for piece in self.pieces if piece.tier in ("ram", "ssd"))


def make_plan(question: Question, slot: SlotView, chains: Chains, ground: Ground) -> Plan:
    """The plan for `question`."""
    n = len(question.ids)
    search = _Search(question, slot, chains, ground)
    live = _live_position(question.ids, slot)
    own = search.own_history()
    best = own or search.best_chain()
    if live and live >= best.resume_at:
        chain = tuple(slot.names[: live // ground.layout.block_tokens])
        mine = slot.owner == question.conversation or (question.head is None and not live)
        because = "" if mine else "the state was built by another conversation"
        plan = Plan(n, live, (), True, mine, because, (), chain, live)
    else:
        plan = search.finish(best)
    lost = search.lost(plan.resume_at)
    return _with_loss(plan, lost)


def _with_loss(plan: Plan, lost: tuple[tuple[str, int], ...]) -> Plan:
    if not lost:
        return plan
    because = plan.because or f"{sum(n for _, n in lost):,} tokens are computed again: {lost[0][0]}"
    return Plan(plan.prompt_tokens, plan.resume_at, plan.pieces, plan.live, False, because, lost, plan.names, plan.slot_tokens)


def _live_position(ids: Sequence[int], slot: SlotView) -> int:
    """Where the slot can go on: its position if all it was fed is a proper prefix of `ids`, else 0."""
    n = len(slot.ids)
    return n if n < len(ids) and list(slot.ids) == list(ids[:n]) else 0


@dataclass(frozen=True, slots=True)
class _Chain:
    """A place to resume and the records up to it."""

    blocks: tuple[Candidate, ...] = ()
    checkpoint: Candidate | None = None
    own: bool = False
    block_tokens: int = 256

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
        common = _common_prefix(self.question.ids, self.slot.ids)
        self.slot_blocks = min(common // size, len(self.slot.names), self.limit // size)

    @property
    def size(self) -> int:
        return self.ground.layout.block_tokens

    @property
    def limit(self) -> int:
        """The last place to resume: one token must be left to compute."""
        return max(len(self.question.ids) - 1, 0)

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
        options = [_Chain(blocks, None, False, self.size) for blocks in self._chain_prefixes()]
        best = options[-1] if self.ground.layout.only_full else options[0]
        for option in options:
            parent = option.blocks[-1].name if option.blocks else self.root
            for checkpoint in self.chains.checkpoints_after(parent):
                if best.resume_at < checkpoint.position <= self.limit and self._fits(checkpoint, option.resume_at):
                    best = _Chain(option.blocks, checkpoint, False, self.size)
        return best

    def _chain_prefixes(self) -> list[tuple[Candidate, ...]]:
        """Every prefix of the longest chain of blocks for the prompt, the empty one first."""
        n = self.limit // self.size
        blocks = self._longest_blocks(n) if self.ground.layout.block_bytes else self._empty_blocks(n)
        return [blocks[:i] for i in range(len(blocks) + 1)]

    def _longest_blocks(self, n: int) -> tuple[Candidate, ...]:
        """Follow all candidates level by level: a prefix may exist in several versions, and only one may go on."""
        levels: list[dict[str, Candidate]] = []
        frontier: Iterable[str] = [self.root]
        for i in range(n):
            ids = self.block_ids(i)
            found = [c for parent in frontier for c in self.chains.find(lookup_key("block", parent, ids))]
            if i < self.slot_blocks and (held := self._slot_block(i, self.slot.names[i])) and held.parent in frontier:
                found.append(held)
            if not found:
                break
            levels.append({candidate.name: candidate for candidate in found})
            frontier = list(levels[-1])
        if not levels:
            return ()
        block = max(levels[-1].values(), key=lambda c: (c.fingerprint == self.ground.fingerprint, c.used))
        chain = [block]
        for level in reversed(levels[:-1]):
            chain.append(level[chain[-1].parent])
        return tuple(reversed(chain))

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
        n_bytes = self.ground.layout.block_bytes
        return Candidate(name, "block", parent, lookup, (i + 1) * self.size, n_bytes, self.ground.fingerprint, "ram", 0.0)

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
        head = self.question.head
        if chain.resume_at and not chain.own:
            return "" if head is None and self._prompt_built(chain) else "the state was built by another conversation"
        if head is None and not chain.resume_at:
            return ""
        records = (*chain.blocks, chain.checkpoint) if chain.checkpoint else chain.blocks
        if any(record.n_bytes and record.fingerprint != self.ground.fingerprint for record in records):
            return f"{Reason.FINGERPRINT_CHANGED}: versions, threads or device changed since these records were made"
        return ""

    def _prompt_built(self, chain: _Chain) -> bool:
        """Whether other conversations' records are known to be what computing here would give. Not recorded: never."""
        return not chain.blocks and chain.checkpoint is None

    def lost(self, resume_at: int) -> tuple[tuple[str, int], ...]:
        """(reason, tokens) that the head covered and that must be computed again."""
        head = self.question.head
        if head is None or resume_at >= min(head.tokens, self.limit):
            return ()
        n_tokens = min(head.tokens, len(self.question.ids)) - resume_at
        return ((self._why_lost(head), n_tokens),)

    def _why_lost(self, head: Head) -> str:
        if head.identity != self.ground.identity:
            return Reason.IDENTITY_CHANGED
        if self.question.diverged:
            return Reason.TEMPLATE_DIVERGED
        name = head.name
        while name != self.root:
            record = self.chains.get(name)
            if record is None:
                return _reason(self.chains.why_gone(name))
            if not self.ground.layout.block_bytes:
                break
            name = record.parent
        return Reason.EDITED if head.tokens > self.limit else Reason.KIND_BOUNDARY


def _reason(tombstone: str) -> str:
    """A tombstone's word as one of the closed list. Without a tombstone the record was lost before it was saved."""
    try:
        return Reason(tombstone)
    except ValueError:
        return Reason.KIND_BOUNDARY if tombstone == "superseded" else Reason.ENGINE_RESTARTED


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
