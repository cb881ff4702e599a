"""Names, headers and checks of records: the only things that move between tiers.

Torch-free and pure. A record is a payload of bytes, the same in every tier, and this description of it. On SSD it is a
safetensors file:

    8 bytes      header length N, little endian
    N bytes      JSON: one entry per tensor, and "__metadata__"; padded with spaces so that 8 + N is a multiple of 4096
    the payload  tensors one after the other, no holes

name = blake2b(parent name, token ids, payload digest): names a prefix *and its bytes*. A record is looked up by
(parent, ids); unequal bytes never share a name, so a chain of names that ends in a conversation's head is exactly that
conversation's own state. The metadata field "check" is the xxh3-128 of the header itself with that field zeroed: a flipped bit
anywhere in the file is noticed before use.
"""

import base64
import binascii
import hashlib
import math
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import xxhash

from localkv.errors import BadRecord
from localkv.events import Reason
from localkv.kv.layout import DTYPE_BYTES, FORMAT_VERSION, Layout, Segment

ALIGN = 4096
ID_BYTES = 4
"""Of one packed token id."""
MAX_HEADER_BYTES = 4 << 20
_NO_CHECK = "0" * 32

_UNREADABLE = (
    msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError, binascii.Error, RecursionError,
)  # fmt: skip
"""What decoding hostile bytes may raise; RecursionError for brackets nested too deep."""

RecordKind = Literal["block", "checkpoint"]


class Head(msgspec.Struct, frozen=True):
    """The newest record of a conversation: where its own history ends. Stored with the conversation."""

    name: str
    identity: str
    tokens: int
    """The position of that record: this many tokens are covered by it and its parents."""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The description of one record, without its bytes."""

    name: str
    kind: RecordKind
    parent: str
    ids: bytes
    """Token ids since the parent's position, uint32 little endian: S of them for a block, fewer for a checkpoint."""
    position: int
    """Tokens covered by this record and its parents."""
    fingerprint: str
    n_bytes: int
    """Length of the payload."""
    digest: str
    """blake2b of the payload, part of the name."""
    check: str
    """xxh3-128 of the payload, verified at each read."""

    @property
    def lookup(self) -> str:
        return lookup_key(self.kind, self.parent, self.ids)


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as uint32, little endian: how they travel and are stored."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(data: bytes | memoryview) -> list[int]:
    """The token ids that `pack_ids` packed."""
    unpacked = array("I")
    unpacked.frombytes(bytes(data))
    if sys.byteorder == "big":
        unpacked.byteswap()
    return unpacked.tolist()


def root_name(identity: str) -> str:
    """The parent of every chain of this identity."""
    return _blake("root", identity.encode())


def lookup_key(kind: RecordKind, parent: str, ids: bytes) -> str:
    """Where candidates for "these tokens after that parent" are found."""
    return _blake(kind, parent.encode(), ids)


def payload_digest(payload: bytes | bytearray | memoryview) -> str:
    """blake2b of the payload as hex. 1.3 GB/s; releases the GIL."""
    return hashlib.blake2b(payload, digest_size=20).hexdigest()


def payload_check(payload: bytes | bytearray | memoryview) -> str:
    """xxh3-128 of the payload as hex. Some 30 GB/s; releases the GIL."""
    return xxhash.xxh3_128_hexdigest(payload)


def describe(
    kind: RecordKind, parent: str, ids: bytes, position: int, fingerprint: str, payload: bytes | bytearray | memoryview
) -> Record:
    """The Record of `payload`: computes digest, check and name."""
    digest = payload_digest(payload)
    name = _blake(kind, parent.encode(), ids, digest.encode())
    return Record(name, kind, parent, ids, position, fingerprint, len(payload), digest, payload_check(payload))


def empty_block(parent: str, ids: bytes, position: int, fingerprint: str) -> Record:
    """The block of a model that keeps no full-attention rows: no bytes, so its name is known without having it."""
    return describe("block", parent, ids, position, fingerprint, b"")


def segments_of(layout: Layout, record: Record) -> tuple[Segment, ...]:
    """The tensors that `record` must hold under `layout`."""
    return layout.block_segments() if record.kind == "block" else layout.checkpoint_segments(record.position)


def encode_header(record: Record, layout: Layout) -> bytes:
    """The bytes of the file before the payload; the length is a multiple of 4096."""
    tree: dict[str, Any] = {
        "__metadata__": {
            "format": "localkv",
            "version": str(FORMAT_VERSION),
            "kind": record.kind,
            "name": record.name,
            "parent": record.parent,
            "ids": base64.b64encode(record.ids).decode(),
            "position": str(record.position),
            "fingerprint": record.fingerprint,
            "payload_bytes": str(record.n_bytes),
            "payload_xxh3": record.check,
            "payload_blake2b": record.digest,
            "check": _NO_CHECK,
        }
    }
    for segment in segments_of(layout, record):
        tree[segment.name] = {
            "dtype": segment.dtype,
            "shape": list(segment.shape),
            "data_offsets": [segment.offset, segment.offset + segment.n_bytes],
        }
    body = msgspec.json.encode(tree)
    body += b" " * (-(8 + len(body)) % ALIGN)
    header = len(body).to_bytes(8, "little") + body
    check = xxhash.xxh3_128_hexdigest(header)
    return header.replace(_check_field(_NO_CHECK), _check_field(check), 1)


def decode_header(header: bytes, name: str) -> Record:
    """The Record that a file's first bytes describe.

    `header` is everything before the payload. Raises BadRecord(checksum) if any bit of it is not as written, and
    BadRecord(short_read) if it is not all there. Does not look at the payload.
    """
    if len(header) < 8:
        raise BadRecord(name, Reason.SHORT_READ, f"the header is {len(header)} bytes long")
    length = int.from_bytes(header[:8], "little")
    if length > MAX_HEADER_BYTES or length + 8 != len(header):
        raise BadRecord(name, Reason.CHECKSUM, f"the header says {length:,} bytes and has {len(header) - 8:,}")
    try:
        meta = msgspec.json.decode(header[8:], type=dict[str, Any])["__metadata__"]
        check = meta["check"]
        blank = header.replace(_check_field(check), _check_field(_NO_CHECK), 1)
        if xxhash.xxh3_128_hexdigest(blank) != check or len(check) != len(_NO_CHECK):
            raise BadRecord(name, Reason.CHECKSUM, "the header does not match its own checksum")
        return _from_metadata(meta, name)
    except _UNREADABLE as error:
        raise BadRecord(name, Reason.CHECKSUM, f"the header cannot be read: {error}") from error


def tensors_of(header: bytes, name: str) -> tuple[Segment, ...]:
    """The tensors that a file's first bytes list, in payload order: what any reader of safetensors would find.

    Raises BadRecord(checksum) unless they follow one another without a hole and have the size that shape and dtype ask for.
    """
    try:
        tree = msgspec.json.decode(header[8:], type=dict[str, Any])
        listed = [(tensor, body) for tensor, body in tree.items() if tensor != "__metadata__"]
        tensors = [
            Segment(tensor, body["dtype"], tuple(body["shape"]), body["data_offsets"][0], _size_of(body))
            for tensor, body in sorted(listed, key=lambda item: item[1]["data_offsets"][0])
        ]
        end = 0
        for tensor, segment in zip((tensor for tensor, _ in listed), tensors, strict=True):
            if segment.offset != end or segment.n_bytes != math.prod(segment.shape) * DTYPE_BYTES[segment.dtype]:
                raise BadRecord(name, Reason.CHECKSUM, f"the tensor {tensor} does not lie where the one before it ends")
            end += segment.n_bytes
        if end != int(tree["__metadata__"]["payload_bytes"]):
            raise BadRecord(name, Reason.CHECKSUM, f"its tensors have {end:,} bytes and its payload another number")
    except (*_UNREADABLE, IndexError) as error:
        raise BadRecord(name, Reason.CHECKSUM, f"the list of tensors cannot be read: {error}") from error
    return tuple(tensors)


def _size_of(entry: dict[str, Any]) -> int:
    begin, end = entry["data_offsets"]
    return int(end) - int(begin)


def _from_metadata(meta: dict[str, str], name: str) -> Record:
    if meta["format"] != "localkv" or meta["version"] != str(FORMAT_VERSION):
        raise BadRecord(name, Reason.IDENTITY_CHANGED, f"format {meta['format']} {meta['version']} is not ours")
    kind: RecordKind = "block" if meta["kind"] == "block" else "checkpoint"
    ids = base64.b64decode(meta["ids"], validate=True)
    return Record(
        meta["name"], kind, meta["parent"], ids, int(meta["position"]), meta["fingerprint"],
        int(meta["payload_bytes"]), meta["payload_blake2b"], meta["payload_xxh3"],
    )  # fmt: skip


def verify(wanted: Record, header: bytes, payload: bytes | bytearray | memoryview, layout: Layout) -> None:
    """Return only if `header` and `payload` are exactly the record `wanted` under `layout`; else raise BadRecord.

    Name, parent, ids and fingerprint fit, shapes equal the layout, the length is exact, the checksum matches.
    """
    if header != encode_header(wanted, layout):  # a good header is never parsed: that takes as long as writing it
        found = decode_header(header, wanted.name)
        what = "the tensors are not those of this model's layout" if found == wanted else "the file describes another record"
        raise BadRecord(wanted.name, Reason.CHECKSUM, what)
    if len(payload) != wanted.n_bytes:
        raise BadRecord(wanted.name, Reason.SHORT_READ, f"{len(payload):,} of {wanted.n_bytes:,} payload bytes")
    if payload_check(payload) != wanted.check:
        raise BadRecord(wanted.name, Reason.CHECKSUM, "the payload does not match its checksum")


def _check_field(check: str) -> bytes:
    return f'"check":"{check}"'.encode()


def _blake(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
