"""Records: names that stand for their bytes, and files in which no flipped bit goes unnoticed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.errors import BadRecord
from localkv.events import Reason
from localkv.kv.layout import Layer, Layout, Rows, State
from localkv.kv.record import (
    ALIGN,
    Record,
    decode_header,
    describe,
    empty_block,
    encode_header,
    lookup_key,
    pack_ids,
    root_name,
    segments_of,
    unpack_ids,
    verify,
)

PLAIN = Layout(tuple(Layer(i, Rows(1, 8, "BF16"), Rows(1, 8, "BF16")) for i in range(2)), 16)
HYBRID = Layout(
    (*PLAIN.layers, Layer(2, Rows(1, 4, "F32"), Rows(1, 4, "F32"), 8), Layer(3, states=(State("s", (3, 5), "F32"),))), 16
)
OTHER = Layout(PLAIN.layers[:1], 16)

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=40).map(pack_ids)


def sample(layout: Layout = PLAIN, kind: str = "block", position: int = 32, seed: int = 1) -> tuple[Record, bytes]:
    n_bytes = layout.block_bytes if kind == "block" else layout.checkpoint_bytes(position)
    payload = bytes((seed * 31 + i * 7) % 256 for i in range(n_bytes))
    return describe(kind, root_name("id"), pack_ids(range(16)), position, "print", payload), payload


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_survive_packing(ids):
    """Token ids come back as they were, four bytes each."""
    assert unpack_ids(pack_ids(ids)) == ids
    assert len(pack_ids(ids)) == 4 * len(ids)


@given(
    st.sampled_from([("block", 16), ("block", 64), ("checkpoint", 5), ("checkpoint", 21)]),
    IDS,
    st.text(),
    st.sampled_from([PLAIN, HYBRID]),
)
def test_a_header_says_what_was_written(kind_position, ids, fingerprint, layout):
    """A header decodes to the very record that it was made from, and ends on a page edge."""
    kind, position = kind_position
    payload = bytes(layout.block_bytes if kind == "block" else layout.checkpoint_bytes(position))
    record = describe(kind, root_name("id"), ids, position, fingerprint, payload)
    header = encode_header(record, layout)
    assert len(header) % ALIGN == 0
    assert decode_header(header, record.name) == record
    verify(record, header, payload, layout)


@given(st.data())
def test_no_flipped_bit_passes(data):
    """Any bit flipped in header or payload is noticed before the bytes are used."""
    layout, kind = data.draw(st.sampled_from([(PLAIN, "block"), (HYBRID, "checkpoint")]))
    record, payload = sample(layout, kind, 21 if kind == "checkpoint" else 32)
    header = encode_header(record, layout)
    text = len(header.rstrip(b" "))
    last = len(header) + len(payload) - 1
    at = data.draw(st.one_of(st.integers(0, text), st.integers(0, last), st.integers(len(header), last)))
    whole = bytearray(header + payload)
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadRecord) as caught:
        verify(record, bytes(whole[: len(header)]), whole[len(header) :], layout)
    assert caught.value.reason in (Reason.CHECKSUM, Reason.SHORT_READ, Reason.IDENTITY_CHANGED)
    if at < len(header):
        with pytest.raises(BadRecord):
            decode_header(bytes(whole[: len(header)]), record.name)


@given(st.data())
def test_no_truncation_passes(data):
    """A file cut anywhere, in the header or in the payload, is refused."""
    record, payload = sample()
    header = encode_header(record, PLAIN)
    cut = data.draw(st.integers(0, len(header) + len(payload) - 1))
    whole = (header + payload)[:cut]
    with pytest.raises(BadRecord):
        verify(record, whole[: len(header)], whole[len(header) :], PLAIN)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_hostile_headers_are_bad_records(body, length):
    """Whatever bytes stand where a header should be, the answer is BadRecord and not another error."""
    with pytest.raises(BadRecord):
        decode_header(length.to_bytes(8, "little") + body, "x")
    with pytest.raises(BadRecord):
        decode_header(len(body).to_bytes(8, "little") + body, "x")


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b'{"__metadata__":' * 50_000, b'{"__metadata__":5}', b'{"__metadata__":{"check":[]}}'],
    ids=["list", "nested", "number", "check"],
)
def test_nested_and_mistyped_headers_are_bad_records(body):
    """A header nested too deep, or with values of the wrong type, is refused like any other bad one."""
    with pytest.raises(BadRecord):
        decode_header(len(body).to_bytes(8, "little") + body, "x")


def test_a_record_of_another_layout_is_refused():
    """A file whose tensors are not those of the model in use is not taken, though its own checksums hold."""
    record, payload = sample()
    with pytest.raises(BadRecord, match="layout"):
        verify(record, encode_header(record, OTHER), payload, PLAIN)


def test_a_good_file_of_another_record_is_refused():
    """A whole, well-formed file under a wrong name is not taken."""
    record, payload = sample()
    other, other_payload = sample(seed=2)
    with pytest.raises(BadRecord, match="another record"):
        verify(record, encode_header(other, PLAIN), other_payload, PLAIN)
    with pytest.raises(BadRecord, match="checksum"):
        verify(record, encode_header(record, PLAIN), other_payload, PLAIN)
    assert payload != other_payload


@given(st.data())
def test_a_name_stands_for_prefix_and_bytes(data):
    """Another parent, other ids, another kind or another payload give another name; equal ones give the same."""
    parents, ids, payloads = st.sampled_from(["a", "b"]), IDS, st.binary(max_size=8)
    kinds = st.sampled_from(["block", "checkpoint"])
    one, two = (data.draw(st.tuples(kinds, parents, ids, payloads)) for _ in range(2))
    first, second = (describe(kind, root_name(parent), some, 16, "f", payload) for kind, parent, some, payload in (one, two))
    assert (first.name == second.name) == (one == two)
    assert (first.lookup == second.lookup) == (one[:3] == two[:3])


def test_the_fingerprint_does_not_enter_the_name():
    """Equal bytes computed elsewhere are the same record; where they came from is told beside the name."""
    record, payload = sample()
    assert describe("block", record.parent, record.ids, 32, "elsewhere", payload).name == record.name
    assert record.lookup == lookup_key("block", record.parent, record.ids)


def test_an_empty_block_is_known_without_its_file():
    """The block of a model without full-attention rows has a name, and a file that verifies."""
    layout = Layout((Layer(0, states=(State("s", (4,), "F32"),)),), 16)
    record = empty_block(root_name("id"), pack_ids(range(16)), 16, "f")
    assert record == describe("block", root_name("id"), pack_ids(range(16)), 16, "f", b"")
    verify(record, encode_header(record, layout), b"", layout)


@pytest.mark.parametrize(
    ("layout", "kind", "position"), [(PLAIN, "block", 32), (HYBRID, "checkpoint", 21), (HYBRID, "block", 16)]
)
def test_files_are_valid_safetensors(tmp_path, layout, kind, position):
    """The file opens with safetensors' own reader: every tensor with its dtype, shape and bytes, and the metadata."""
    from safetensors import safe_open

    record, payload = sample(layout, kind, position)
    path = tmp_path / "record.safetensors"
    header = encode_header(record, layout)
    path.write_bytes(header + payload)
    wanted = {segment.name: segment for segment in segments_of(layout, record)}
    with safe_open(path, framework="numpy") as opened:
        assert opened.metadata()["name"] == record.name
        assert opened.metadata()["payload_blake2b"] == record.digest
        assert set(opened.keys()) == set(wanted)
        for name in opened.keys():  # noqa: SIM118  not a dict
            assert opened.get_slice(name).get_shape() == list(wanted[name].shape)
            assert opened.get_slice(name).get_dtype() == wanted[name].dtype
            if wanted[name].dtype != "BF16":  # numpy has no bfloat16
                start = wanted[name].offset
                assert opened.get_tensor(name).tobytes() == payload[start : start + wanted[name].n_bytes]
    parsed = json.loads(header[8:])
    assert {name: parsed[name]["data_offsets"] for name in wanted} == {
        name: [segment.offset, segment.offset + segment.n_bytes] for name, segment in wanted.items()
    }
