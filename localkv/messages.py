"""What faces and engine say to each other: requests and replies as frozen msgspec structs.

Torch-free; knows no sockets and no frames (service/protocol.py). The runtime speaks these words too, so that nothing is
translated between it and a face. Every reply carries the request it belongs to and the engine's epoch. Token ids travel as
uint32 bytes (kv.record.pack_ids).
"""

from typing import Literal

import msgspec

from localkv.config import ModelSection, SamplingSection
from localkv.figures import Card, Numbers, Preloads, Restores, Source, Spread, TierUse, Written
from localkv.kv.record import Head

PROTOCOL_VERSION = 1

Role = Literal["system", "user", "assistant"]
StopReason = Literal["end", "stop_string", "max_tokens", "context_full", "cancelled", "failed"]
Phase = Literal["queued", "loading", "restoring", "prefill"]
Tier = Literal["slot", "vram", "ram", "ssd"]
Origin = Literal["slot", "vram", "ram", "ssd", "none"]


class Request(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What a face asks. `request` is unique within one connection."""

    request: int


class Hello(Request, frozen=True, kw_only=True):
    """First frame of a face; answered by Welcome."""

    version: int = PROTOCOL_VERSION


class Prepare(Request, frozen=True, kw_only=True):
    """Load this model (if another is loaded, replace it); answered by Progress("loading") and Ready or Failed."""

    model: ModelSection


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One message on the path from the root of the conversation to its leaf."""

    role: Role
    text: str
    ids: bytes = b""
    """Exactly what was fed or sampled for it, template tokens included; empty: not tokenised yet."""


class Submit(Request, frozen=True, kw_only=True):
    """Answer the conversation `lines`; the last line is the question, or an assistant line to be continued."""

    conversation: str
    model: ModelSection
    lines: tuple[Line, ...]
    sampling: SamplingSection
    head: Head | None = None
    """The newest record named by a message on this path."""
    resident: bool = False
    """The person wants this conversation's cache to be the last that goes."""
    keep_head: bool = False
    """Another branch continues from that head: its checkpoint stays on SSD when a newer one is saved."""
    private: bool = False
    """What this turn computes stays in memory: none of its records is ever written to SSD."""


Why = Literal["open", "rest", "likely"]


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that may be wanted soon: all ids of its path, and its newest record."""

    conversation: str
    ids: bytes
    head: Head | None = None


class Warm(Request, frozen=True, kw_only=True):
    """Bring conversations nearer: this one was opened (into the slot), the cursor rests on it, or these are likely next (into RAM).

    A hint: it has no reply, waits for idle time, and is dropped for a newer one and where another model is loaded.
    """

    model: ModelSection
    wants: tuple[Want, ...]
    why: Why


class Typing(Request, frozen=True, kw_only=True):
    """What is typed in a conversation so far: read as much of it as will stay. A hint, like Warm; replaces the one before."""

    conversation: str
    """Empty: of a conversation that is not stored yet."""
    model: ModelSection
    lines: tuple[Line, ...]
    """The path to the message that is being written."""
    text: str
    head: Head | None = None


class Cancel(Request, frozen=True, kw_only=True):
    """Stop the request `target`: within one prefill chunk or one token."""

    target: int


class Look(Request, frozen=True, kw_only=True):
    """Ask for a Snapshot now."""

    heads: tuple[Head, ...] = ()
    """Conversations whose resume time is wanted: their newest records."""


class Examine(Request, frozen=True, kw_only=True):
    """Ask for a Report: what this engine and machine are (for `localkv doctor`). Loads `model` first."""

    model: ModelSection


class TokenLog(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of one path of a conversation that is to be forgotten."""

    ids: bytes
    shared: int = 0
    """So many tokens at its beginning belong to other conversations, too: their records stay."""


class Forget(Request, frozen=True, kw_only=True):
    """Remove records from RAM and SSD: those of `logs`, and those named; answered by Forgotten."""

    logs: tuple[TokenLog, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    """(identity, name)."""


class Estimate(Request, frozen=True, kw_only=True):
    """Ask for an Estimated: what conversations with `model` cost here (for `localkv plan`). Loads `model` first."""

    model: ModelSection


class Unload(Request, frozen=True, kw_only=True):
    """Save what is unsaved and let go of the model and its memory, after what is under way; answered by Unloaded."""


class Leave(Request, frozen=True, kw_only=True):
    """The face goes. The last one to leave makes the engine flush and end; answered by Flushed."""


class Reply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What the engine says. `request` 0 belongs to no request."""

    request: int
    epoch: str


class Welcome(Reply, frozen=True, kw_only=True):
    """The engine is there. It may not have imported torch yet."""

    version: int
    pid: int


class Progress(Reply, frozen=True, kw_only=True):
    """How far a phase is. `total` 0: unknown. Units: bytes while loading and restoring, tokens in prefill."""

    phase: Phase
    done: int
    total: int
    detail: str = ""
    per_second: float = 0.0


class Ready(Reply, frozen=True, kw_only=True):
    """A model is loaded."""

    model: ModelSection
    title: str
    identity: str
    context_tokens: int
    token_bytes: int
    device: str
    notes: tuple[str, ...] = ()
    """Sentences the user should read: demo model, default attention, uncached kind, dequantised GGUF."""


class Started(Reply, frozen=True, kw_only=True):
    """The question is tokenised and the plan is made.

    `line_ids` are the ids of every line of Submit, in order; the face stores those of lines that were new, or that the
    template renders differently now (`diverged_at` is then the index of the first such line, else -1).
    """

    line_ids: tuple[bytes, ...]
    diverged_at: int = -1
    prompt_tokens: int
    planned: Source
    resume_at: int
    restore_seconds: float = 0.0
    """Predicted, by this machine's moving averages; Numbers has what it took."""
    prefill_seconds: float = 0.0
    """Predicted, for the tokens that can't be restored, the new ones among them."""
    from_scratch_seconds: float = 0.0
    """Predicted: what computing the whole prompt would take instead."""


class Delta(Reply, frozen=True, kw_only=True):
    """More of the answer: only what is new, also when an answer is continued. Several may have been merged on the way."""

    text: str
    ids: bytes


class Done(Reply, frozen=True, kw_only=True):
    """The answer is complete or cut; `ids` are all its ids and `text` all its text.

    Of an answer that was continued, that includes what was there before: the part that Submit carried as its last line.
    """

    ids: bytes
    text: str
    reason: StopReason
    head: Head | None
    numbers: Numbers


class Failed(Reply, frozen=True, kw_only=True):
    """The request could not be done; nothing that was streamed is lost. `error` is the class name in errors.py."""

    error: str
    message: str


class Snapshot(Reply, frozen=True, kw_only=True):
    """Everything the panel shows, as of now. Sent about ten times a second while something moves, else on Look."""

    model: str
    device: str
    weights_bytes: int
    slot_bytes: int
    slot_tokens: int
    context_tokens: int
    vram: TierUse
    ram: TierUse
    ssd: TierUse
    fallback_tokens: dict[str, int]
    """By reason, since the engine started."""
    fallback_turns: int
    turns: int
    prompt_tokens: int
    restored_tokens: int
    seconds_saved: float
    """Restored tokens at the measured prefill rate, less the time restoring took."""
    written_bytes: int
    """Of record files, since the engine started."""
    unsaved_records: int
    busy_conversation: str
    last: Numbers
    recent: tuple[str, ...] = ()
    """The newest events as sentences, newest first."""
    typed_tokens: int = 0
    """Computed while messages were typed, whether they were sent like that or not."""
    resume_seconds: dict[str, float] = {}
    """By name of head, for those that Look asked for: predicted seconds until the next message can be computed."""
    resume_tiers: dict[str, Origin] = {}
    """By name of head, for the same ones: the farthest tier that something must come from; "none": it is computed again."""
    fallback_prefills: dict[str, int] = {}
    """By reason: turns that computed again what a cache should have covered. A turn may have several reasons."""
    restores: Restores = Restores()
    preloads: Preloads = Preloads()
    written: Written = Written()
    ttft_ms: Spread = Spread()
    """From the engine receiving Submit to the first token, of all turns that drew one."""
    tokens_per_second: Spread = Spread()
    """Of decoding, of all turns that drew two tokens or more."""
    kept_records: int = 0
    """Of conversations that the person wants resident."""
    pinned_bytes: int = 0
    """Of the RAM tier, registered with a device for fast copies."""
    card: Card = Card()


class Report(Reply, frozen=True, kw_only=True):
    """What `doctor` prints: ordered sections of name -> value."""

    sections: dict[str, dict[str, str | int | float | bool | None]]


class Forgotten(Reply, frozen=True, kw_only=True):
    """So much went from SSD; `problem` says what could not."""

    records: int
    n_bytes: int
    problem: str = ""


class Unloaded(Reply, frozen=True, kw_only=True):
    """The model is gone from memory, and the next turn loads it again. `model` is empty if none was loaded, or if it stays."""

    model: str = ""
    freed_bytes: int = 0
    """On the device; on a CPU, of RAM."""
    records: int = 0
    """Saved before."""
    n_bytes: int = 0
    problem: str = ""
    """What could not be saved, and is computed again when it is wanted."""


class SlidingCost(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that keep the last `window` - 1 tokens, and what they keep of each."""

    window: int
    token_bytes: int


class Estimated(Reply, frozen=True, kw_only=True):
    """What a conversation costs with this model on this machine. Bytes, and rates per second measured just now."""

    title: str
    device: str
    context_tokens: int
    block_tokens: int
    full_token_bytes: int
    """Of each token of a conversation, in layers that keep all tokens."""
    sliding: tuple[SlidingCost, ...]
    state_bytes: int
    """However long the conversation is."""
    record_overhead_bytes: int
    ram_bytes: int
    ssd_bytes: int
    vram_bytes: int = 0
    """Of the pool on the device, beside the slot."""
    read_rate: float
    """Bytes from SSD, verified; 0 if nothing can be written there."""
    read_cold: bool
    """They came from the disk and not from the system's memory."""
    copy_rate: float
    """Bytes from RAM into the slot; 0 for a model that runs uncached."""
    token_seconds: float
    """To read one token at the start of a conversation."""
    deeper_seconds: float
    """More for each token before it."""
    measured_tokens: int
    """Up to which depth that was measured."""
    notes: tuple[str, ...] = ()


class Flushed(Reply, frozen=True, kw_only=True):
    """Everything is on SSD (or could not be, see `problem`); the engine ends if no face is left."""

    records: int
    n_bytes: int
    seconds: float
    problem: str = ""


AnyRequest = Hello | Prepare | Submit | Warm | Typing | Cancel | Look | Examine | Estimate | Forget | Unload | Leave
AnyReply = (
    Welcome
    | Progress
    | Ready
    | Started
    | Delta
    | Done
    | Failed
    | Snapshot
    | Report
    | Estimated
    | Forgotten
    | Unloaded
    | Flushed
)
