"""Messages as msgpack frames between a face and the engine.

Torch-free; knows no sockets. Frames have a size cap, checked before decoding. A face drops replies with another epoch or of a
request that it does not know.
"""

import msgspec

from localkv.errors import ProtocolError
from localkv.figures import Card, Fallback, Numbers, Preloads, Restores, Source, Spread, TierUse, Written
from localkv.messages import (
    PROTOCOL_VERSION,
    AnyReply,
    AnyRequest,
    Cancel,
    Delta,
    Done,
    Estimate,
    Estimated,
    Examine,
    Failed,
    Flushed,
    Forget,
    Forgotten,
    Hello,
    Leave,
    Line,
    Look,
    Origin,
    Phase,
    Prepare,
    Progress,
    Ready,
    Reply,
    Report,
    Request,
    Role,
    Snapshot,
    Started,
    StopReason,
    Submit,
    Tier,
    TokenLog,
    Typing,
    Unload,
    Unloaded,
    Want,
    Warm,
    Welcome,
    Why,
)

MAX_FRAME_BYTES = 64 << 20
"""A 128k-token conversation is 0.5 MB of ids and about as much text; 1 MB pastes fit many times over."""

FINAL = (Welcome, Ready, Done, Failed, Snapshot, Report, Estimated, Forgotten, Unloaded, Flushed)
"""What ends a request: after one of these nothing more comes for it. (Snapshots of request 0 end nothing.)"""

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding hostile bytes may raise; RecursionError for arrays nested too deep."""

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(AnyRequest)
_replies = msgspec.msgpack.Decoder(AnyReply)


def encode(message: AnyRequest | AnyReply) -> bytes:
    """`message` as a frame. Raises ProtocolError if it is over the cap."""
    frame = _encoder.encode(message)
    if len(frame) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a {type(message).__name__} of {len(frame):,} bytes is over the limit of {MAX_FRAME_BYTES:,}")
    return frame


def decode_request(frame: bytes) -> AnyRequest:
    """The request in `frame`. Raises ProtocolError for anything else."""
    try:
        return _requests.decode(frame)
    except _UNREADABLE as error:
        raise ProtocolError(f"a frame of {len(frame):,} bytes is not a request: {error}") from error


def decode_reply(frame: bytes) -> AnyReply:
    """The reply in `frame`. Raises ProtocolError for anything else."""
    try:
        return _replies.decode(frame)
    except _UNREADABLE as error:
        raise ProtocolError(f"a frame of {len(frame):,} bytes is not a reply: {error}") from error


__all__ = [
    "MAX_FRAME_BYTES",
    "PROTOCOL_VERSION",
    "AnyReply",
    "AnyRequest",
    "Cancel",
    "Card",
    "Delta",
    "Done",
    "Estimate",
    "Estimated",
    "Examine",
    "Failed",
    "Fallback",
    "Flushed",
    "Forget",
    "Forgotten",
    "Hello",
    "Leave",
    "Line",
    "Look",
    "Numbers",
    "Origin",
    "Phase",
    "Preloads",
    "Prepare",
    "Progress",
    "Ready",
    "Reply",
    "Report",
    "Request",
    "Restores",
    "Role",
    "Snapshot",
    "Source",
    "Spread",
    "Started",
    "StopReason",
    "Submit",
    "Tier",
    "TierUse",
    "TokenLog",
    "Typing",
    "Unload",
    "Unloaded",
    "Want",
    "Warm",
    "Welcome",
    "Why",
    "Written",
    "decode_reply",
    "decode_request",
    "encode",
]
