"""Hostile bytes where files, frames and settings are read: a typed error or a value, never another exception, never a hang.

Record headers as files have them are in kv/test_record.py, damaged catalogues in tiers/test_catalogue.py.
"""

import json
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localkv.chat.backups import look, made_at
from localkv.config import Config, ModelSection, SamplingSection, convert_config, load_config
from localkv.errors import BadRecord, ConfigError, EngineUnavailable, ProtocolError
from localkv.events import Event, EventLog, read_events
from localkv.files import Files
from localkv.kv.record import Head, decode_header, describe, encode_header, pack_ids, root_name, tensors_of
from localkv.paths import Home
from localkv.service import protocol
from localkv.service.launch import launch_argument, read_launch
from localkv.service.protocol import decode_reply, decode_request, encode
from localkv.tiers.audit import check_file
from localkv.units import parse_bytes
from tests.service.fakes import snapshot
from tests.tiers.tier_samples import IDENTITY, LAYOUT, sample

MANY = settings(max_examples=400)

REQUESTS = [
    protocol.Hello(request=1),
    protocol.Prepare(request=2, model=ModelSection()),
    protocol.Submit(
        request=3, conversation="c", model=ModelSection(), sampling=SamplingSection(), head=Head("n", "i", 3),
        lines=(protocol.Line(role="user", text="hi", ids=pack_ids([1, 2])),),
    ),
    protocol.Cancel(request=4, target=3),
    protocol.Look(request=5),
    protocol.Examine(request=6, model=ModelSection()),
    protocol.Estimate(request=9, model=ModelSection()),
    protocol.Forget(request=7, logs=(protocol.TokenLog(ids=b"1234"),), names=(("i", "n"),)),
    protocol.Leave(request=8),
    protocol.Unload(request=10),
    protocol.Warm(
        request=11, model=ModelSection(), why="rest",
        wants=(protocol.Want(conversation="c", ids=pack_ids([1, 2]), head=Head("n", "i", 2)),),
    ),
    protocol.Typing(
        request=12, conversation="c", model=ModelSection(), lines=(protocol.Line(role="user", text="hi"),), text="I am writ"
    ),
]  # fmt: skip
SAME = {"request": 1, "epoch": "e"}


def filled(kind):
    """A reply with plain values in fields that have no default."""
    plain = {int: 1, float: 0.5, str: "x", bool: True, bytes: b"1234"}
    return kind(**{f.name: plain.get(f.type, ()) for f in msgspec.structs.fields(kind) if f.required} | SAME)


REPLIES = [
    protocol.Welcome(**SAME, version=1, pid=7),
    protocol.Progress(**SAME, phase="loading", done=1, total=2),
    protocol.Ready(**SAME, model=ModelSection(), title="t", identity="i", context_tokens=1, token_bytes=1, device="cpu"),
    protocol.Started(**SAME, line_ids=(b"",), prompt_tokens=1, planned=protocol.Source(), resume_at=0),
    protocol.Delta(**SAME, text="x", ids=b"1234"),
    protocol.Done(**SAME, ids=b"", text="", reason="end", head=None, numbers=protocol.Numbers()),
    protocol.Failed(**SAME, error="E", message="m"),
    snapshot(),
    protocol.Report(**SAME, sections={"a": {"b": 1}}),
    filled(protocol.Estimated),
    protocol.Unloaded(**SAME, model="m", freed_bytes=1),
    protocol.Forgotten(**SAME, records=1, n_bytes=2),
    protocol.Flushed(**SAME, records=1, n_bytes=2, seconds=0.5),
]


@st.composite
def mutated(draw, originals):
    """A good input with a few bytes changed, cut, repeated or put in."""
    content = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        match draw(st.sampled_from(["flip", "set", "cut", "insert", "repeat"])):
            case "flip" if content:
                content[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if content:
                content[at] = draw(st.integers(0, 255))
            case "cut":
                del content[at:]
            case "insert":
                content[at:at] = draw(st.binary(max_size=8))
            case "repeat":
                content[at:at] = content[at : at + 16]
    return bytes(content)


# ---- frames ----


@pytest.mark.parametrize("message", [*REQUESTS, *REPLIES], ids=lambda message: type(message).__name__)
def test_every_message_survives_its_frame(message):
    """What is encoded decodes to the same, in its own direction only."""
    right, wrong = (decode_request, decode_reply) if isinstance(message, protocol.Request) else (decode_reply, decode_request)
    assert right(encode(message)) == message
    with pytest.raises(ProtocolError):
        wrong(encode(message))


def test_every_kind_of_message_is_here():
    """A message that is added is fuzzed, too."""
    assert {type(m) for m in REQUESTS} == set(protocol.AnyRequest.__args__)
    assert {type(m) for m in REPLIES} == set(protocol.AnyReply.__args__)


@MANY
@given(mutated([encode(message) for message in (*REQUESTS, *REPLIES)]) | st.binary(max_size=200))
@example(b"\x91" * 100_000)
@example(b"\x81\xa4type" + b"\x91" * 100_000)
@example(b"\x82\xa4type\xa5Hello\xa1x" + b"\x91" * 100_000)
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xc6\xff\xff\xff\xff")
def test_frames(frame):
    """Damaged, nested, oversized frames are a ProtocolError or a message of their direction."""
    for decode in (decode_request, decode_reply):
        try:
            message = decode(frame)
        except ProtocolError as error:
            assert str(len(frame)) in str(error).replace(",", "")
        else:
            assert isinstance(message, protocol.Request | protocol.Reply)


@MANY
@given(mutated([launch_argument(Home(*[Path("/a")] * 4), Config()).encode()]) | st.binary(max_size=100))
@example(b"[" * 100_000)
def test_launch_arguments(argument):
    """The engine's command line may be anything: it is understood or refused with a sentence."""
    try:
        assert read_launch(argument.decode("utf-8", "surrogateescape")).config
    except EngineUnavailable as error:
        assert "not by hand" in str(error)


# ---- settings ----

KEYS = ["model", "sampling", "engine", "memory", "chat", "name", "temperature", "threads", "ram_pool", "stop", "theme"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@MANY
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), VALUES, max_size=4))
def test_settings_of_any_shape(raw):
    """Any tree that TOML can hold is a Config or a ConfigError that names its source."""
    try:
        assert isinstance(convert_config(raw, "the file"), Config)
    except ConfigError as error:
        assert "the file" in str(error)


GOOD_TOML = b'[model]\nname = "starter"\n[sampling]\ntemperature = 0.7\nstop = ["a"]\n[memory]\nram_pool = "8 GiB"\n'


@MANY
@given(content=mutated([GOOD_TOML]) | st.binary(max_size=80))
@example(content=b"a = " + b"[" * 5000)
@example(content=b"[" + b"a." * 5000 + b"b]")
@example(content=b"[sampling]\nseed = " + b"9" * 5000)
def test_configuration_files(tmp_path_factory, content):
    """Damaged, foreign and nested files are a ConfigError that names the file."""
    file = tmp_path_factory.getbasetemp() / "fuzz.toml"
    file.write_bytes(content)
    try:
        assert isinstance(load_config(file), Config)
    except ConfigError as error:
        assert str(file) in str(error)


@given(st.text(max_size=30))
@example("9" * 400 + " GiB")
@example("1" + "0" * 310 + ".5 T")
@example("٣ GiB")
def test_sizes(text):
    """Any text is a number of bytes or a ConfigError."""
    try:
        assert parse_bytes(text) >= 0
    except ConfigError as error:
        assert "size" in str(error)


# ---- records ----

RECORD, PAYLOAD = sample(1)
HEADER = encode_header(RECORD, LAYOUT)
CHECKPOINT = describe("checkpoint", root_name(IDENTITY), pack_ids([1, 2]), 2, "f", bytes(LAYOUT.checkpoint_bytes(2)))


@MANY
@given(mutated([HEADER, encode_header(CHECKPOINT, LAYOUT), HEADER[:600]]))
@example((100_000).to_bytes(8, "little") + b"[" * 100_000)
@example((30).to_bytes(8, "little") + b'{"__metadata__":{"payload_byte')
@example((20).to_bytes(8, "little") + b'{"a":{"shape":[-1]}}')
def test_headers(header):
    """A header is exactly as it was written or a BadRecord; the list of its tensors is sound or a BadRecord."""
    try:
        assert decode_header(header, "n") in (RECORD, CHECKPOINT)
    except BadRecord:
        pass
    try:
        assert all(tensor.n_bytes >= 0 for tensor in tensors_of(header, "n"))
    except BadRecord:
        pass


@settings(max_examples=200)
@given(mutated([HEADER + bytes(PAYLOAD)]) | st.binary(max_size=64))
def test_record_files(tmp_path_factory, content):
    """A whole file is the record of its name or a BadRecord."""
    file = tmp_path_factory.getbasetemp() / f"{RECORD.name}.safetensors"
    file.write_bytes(content)
    try:
        check_file(file, Files())
        assert content == HEADER + bytes(PAYLOAD)
    except BadRecord:
        assert content != HEADER + bytes(PAYLOAD)


# ---- small files ----


@settings(max_examples=100)
@given(content=mutated([msgspec.json.encode(Event(1.0, "k", {"a": 1})) + b"\n"]) | st.binary(max_size=100))
def test_event_logs(tmp_path_factory, content):
    """Lines that are no events are counted, not raised."""
    file = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    file.write_bytes(content)
    assert all(isinstance(event, Event) for event in read_events(file, 100))


@settings(max_examples=60)
@given(content=st.binary(max_size=200), name=st.text(st.characters(exclude_characters="/\0", codec="utf-8"), max_size=30))
def test_backups(tmp_path_factory, content, name):
    """Any file in the folder of backups is looked at without an exception, and cannot be restored."""
    file = tmp_path_factory.getbasetemp() / f"conversations-{name}.db"
    file.write_bytes(content)
    assert look(file, 2).problem
    assert made_at(file) >= 0
    file.unlink()


def test_events_hold_any_text(tmp_path):
    """A reason or path with hostile text is one line of JSON all the same."""
    log = EventLog(tmp_path / "e.jsonl")
    rng = random.Random(1)
    for _ in range(50):
        log.emit("k", text="".join(chr(rng.randrange(0xD7FF)) for _ in range(20)))
    assert log.write_error == ""
    lines = (tmp_path / "e.jsonl").read_bytes().splitlines()
    assert len(lines) == 50
    assert all(json.loads(line)["kind"] == "k" for line in lines)
