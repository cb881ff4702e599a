"""`localkv plan`: the arithmetic of what conversations cost, and the way from the face to the engine and back."""

import json

import msgspec
import pytest

from localkv.commands import plan
from localkv.commands.setup import find_setup
from localkv.commands.talk import changed_model
from localkv.errors import ConfigError, EngineError
from localkv.messages import Estimated, SlidingCost
from localkv.service.protocol import decode_reply, encode

from .engine import CountingRuntime, serving

GIB = 1 << 30

PLAIN = Estimated(
    request=1, epoch="e", title="plain", device="cpu", context_tokens=40_000, block_tokens=256, full_token_bytes=1000,
    sliding=(), state_bytes=0, record_overhead_bytes=4096, ram_bytes=GIB, ssd_bytes=10 * GIB, read_rate=1e9, read_cold=True,
    copy_rate=4e9, token_seconds=0.001, deeper_seconds=1e-8, measured_tokens=4096,
)  # fmt: skip
MIXED = msgspec.structs.replace(PLAIN, sliding=(SlidingCost(window=1024, token_bytes=500),), state_bytes=7_000_000)
RECURRENT = msgspec.structs.replace(PLAIN, full_token_bytes=0, state_bytes=7_000_000)
UNCACHED = msgspec.structs.replace(PLAIN, full_token_bytes=0, copy_rate=0.0, measured_tokens=0, ram_bytes=0, ssd_bytes=0)


def test_bytes_by_kind():
    """Full rows grow with the conversation, sliding rows up to their window, states not at all."""
    short, long = plan.cost_of(MIXED, 512), plan.cost_of(MIXED, 8192)
    assert (short.full_bytes, short.sliding_bytes, short.state_bytes) == (512_000, 256_000, 7_000_000)
    assert (long.full_bytes, long.sliding_bytes, long.state_bytes) == (8_192_000, 1023 * 500, 7_000_000)
    assert long.total_bytes == 8_192_000 + 1023 * 500 + 7_000_000


def test_what_fits():
    """A conversation takes its bytes and one header per record; what is longer than the context fits nowhere."""
    cost = plan.cost_of(PLAIN, 8192)
    stored = 8_192_000 + (8192 // 256 + 1) * 4096
    assert (cost.fit_slot, cost.fit_ram, cost.fit_ssd) == (1, GIB // stored, 10 * GIB // stored)
    assert plan.cost_of(RECURRENT, 8192).fit_ram == GIB // (7_000_000 + 4096)
    too_long = plan.cost_of(PLAIN, 65_536)
    assert (too_long.fit_slot, too_long.fit_ram, too_long.fit_ssd) == (0, 0, 0)


def test_seconds():
    """RAM at the copy's rate, SSD at the slower of read and copy, prefill with a part that grows with the square."""
    cost = plan.cost_of(PLAIN, 10_000)
    assert cost.from_ram_seconds == pytest.approx(10e6 / 4e9)
    assert cost.from_ssd_seconds == pytest.approx(10e6 / 1e9)
    assert cost.prefill_seconds == pytest.approx(10.0 + 0.5)
    slow_copy = msgspec.structs.replace(PLAIN, copy_rate=1e8)
    assert plan.cost_of(slow_copy, 10_000).from_ssd_seconds == pytest.approx(0.1)


def test_extrapolation_is_marked():
    """What is longer than the measured depth says that it was drawn on."""
    assert not plan.cost_of(PLAIN, 4096).prefill_extrapolated
    assert plan.cost_of(PLAIN, 8192).prefill_extrapolated
    assert plan.cost_of(UNCACHED, 4096).prefill_extrapolated


def test_an_uncached_model_has_no_tiers():
    """Nothing fits, nothing is restored; prefill still has its price."""
    cost = plan.cost_of(UNCACHED, 4096)
    assert (cost.total_bytes, cost.fit_ram, cost.from_ram_seconds, cost.from_ssd_seconds) == (0, 0, None, None)
    assert cost.prefill_seconds > 4


def test_without_a_disk_nothing_comes_from_ssd():
    """A store that cannot be written is no division by zero."""
    assert plan.cost_of(msgspec.structs.replace(PLAIN, read_rate=0.0, ssd_bytes=0), 4096).from_ssd_seconds is None


def run(home, found=MIXED, **options):
    asked = []

    def ask(_setup, _config, section):
        asked.append(section)
        return found

    plan.run(find_setup(None), **{"model": None, "quant": None, "as_json": False, "ask": ask, **options})
    return asked[0]


def test_table(home, capsys):
    """Six lengths, bytes by kind, tiers, seconds, the measured rates, and a mark at what was drawn on."""
    run(home)
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines() if line[:1].isdigit()] == [
        f"{1024 * k:,}" for k in (4, 8, 16, 32, 64, 128)
    ]
    assert "1000 B, 500 B within 1,024, 6.7 MiB of states" in said
    assert "too long" in said
    assert "s*" in said
    assert "* drawn on from what was measured up to 4,096 tokens" in said
    assert "1,000 tokens/s" in said


def test_json(home, capsys):
    """One document: bytes per token by kind, rates, and a row per length."""
    run(home, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["bytes_per_token"] == {"full": 1000, "sliding": [{"window": 1024, "bytes": 500}], "states": 7_000_000}
    assert [row["tokens"] for row in document["conversations"]] == list(plan.LENGTHS)
    assert document["rates"]["prefill_tokens_per_second"] == pytest.approx(1000)
    assert document["tier_bytes"] == {"vram": 0, "ram": GIB, "ssd": 10 * GIB}


def test_model_and_quant_reach_the_engine(home):
    """What is planned for is what was named; a quantisation that does not exist is refused."""
    section = run(home, model="starter", quant="4bit")
    assert (section.name, section.quant) == ("starter", "4bit")
    with pytest.raises(ConfigError, match="3bit"):
        run(home, quant="3bit")


def test_planned_is_what_the_chat_would_load(home, tmp_path, monkeypatch):
    """All of the section [model] holds for a model that is named, as it does in a chat; code is trusted of the settings' model alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "little").mkdir()
    home.config_file.write_text('[model]\nname = "org/own"\ndtype = "float32"\nquant = "8bit"\ntrust_remote_code = true\n')
    base = find_setup().load().model
    for model in ("little", "org/own", "org/other"):
        assert run(home, model=model) == changed_model(base, {"name": model}, "x")
    assert run(home, quant="4bit") == changed_model(base, {"quant": "4bit"}, "x")
    assert run(home) == base


class Estimating(CountingRuntime):
    def estimate(self, report):
        report("measuring")
        return MIXED


def test_the_engine_is_asked(home, capsys):
    """The request goes through the real service: the model is loaded, and one Estimated comes back to this face."""
    with serving(home, Estimating()) as runtime:
        plan.run(find_setup(None), model=None, quant=None, as_json=True)
    assert json.loads(capsys.readouterr().out)["model"] == "plain"
    assert "prepare starter" in runtime.calls


class Failing(CountingRuntime):
    def estimate(self, report):
        raise EngineError("no slot")


def test_a_failure_is_a_sentence(home):
    """What the engine could not do is said, not traced."""
    with serving(home, Failing()), pytest.raises(EngineError, match="no slot"):
        plan.run(find_setup(None), model=None, quant=None, as_json=True)


def test_estimated_travels():
    """The reply survives the frame."""
    assert decode_reply(encode(MIXED)) == MIXED
