"""The self-test: what is wrong with attention, slot, or the way of reading is found on the loaded model, and avoided."""

import dataclasses

import msgspec
import pytest
import torch
from transformers import AttentionInterface

from localkv.commands.bench import tiny
from localkv.engine import attention, selftest
from localkv.engine.attention import folded_attention
from localkv.engine.selftest import Verdict, prove
from localkv.engine.slot import Slot
from tests.engine.tiny_engine import ask, load_tiny, make, runtime_of

pytestmark = pytest.mark.slow

LONG = " ".join(f"the quick brown fox number {i} jumps over the lazy dog" for i in range(6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tiny model folders, made when asked for."""
    base = tmp_path_factory.mktemp("models")
    return lambda name: base / name if (base / name).exists() else make(name, base / name)


@pytest.fixture
def loaded(folder, tmp_path):
    return load_tiny(folder("llama"), tmp_path)


@pytest.fixture
def sabotage():
    """Replace localkv's attention by another function for one test."""
    yield lambda function: AttentionInterface.register(attention.ATTENTION, function)
    attention.register()


def build(loaded, kind=Slot):
    return lambda: kind(loaded.layout, 64, loaded.device)


def test_a_sound_model_passes(loaded, tmp_path):
    """The slot may be used, with localkv's attention, read in chunks."""
    verdict = prove(loaded, build(loaded), tmp_path / "verdicts.json", "key")
    expected = Verdict("localkv", True, verdict.difference, "", "chunks", verdict.forward_seconds, verdict.token_seconds)
    assert verdict == expected
    assert verdict.token_seconds > 0
    assert verdict.difference < 1e-5


def test_wrong_attention_is_replaced_by_the_default(loaded, tmp_path, sabotage):
    """Attention that is off by a few per cent on single tokens alone is found, and the model's own takes its place."""

    def wrong(module, query, key, value, mask, **kwargs):
        if query.shape[2] == 1:
            key = key * 1.5
        return folded_attention(module, query, key, value, mask, **kwargs)

    sabotage(wrong)
    verdict = prove(loaded, build(loaded), tmp_path / "verdicts.json", "key")
    assert (verdict.attention, verdict.cached) == ("sdpa", True)
    assert "localkv differs by" in verdict.detail
    assert loaded.model.config._attn_implementation == "sdpa"


def test_a_refusing_attention_is_replaced_by_the_default(loaded, tmp_path, sabotage):
    """A keyword that localkv's attention does not know costs speed and not the cache, and is named."""

    def refuse(*_args, **_kwargs):
        raise attention.AttentionRefused("softcap")

    sabotage(refuse)
    verdict = prove(loaded, build(loaded), tmp_path / "verdicts.json", "key")
    assert (verdict.attention, verdict.cached) == ("sdpa", True)
    assert "softcap" in verdict.detail


class Forgetful(Slot):
    """Loses the last token of every record."""

    def load_checkpoint(self, position, payload):
        payload[-64:] = 0
        super().load_checkpoint(position, payload)


class Misplaced(Slot):
    """Puts blocks where other ones belong."""

    def load_block(self, index, payload):
        super().load_block(index + 1, payload)


class Shifted(Slot):
    """Believes that it is one token further: positions are wrong, bytes are right."""

    def reset(self):
        super().reset()
        self.move_to(1)


@pytest.mark.parametrize(
    ("kind", "name"), [(Misplaced, "llama"), (Forgetful, "mistral"), (Forgetful, "mamba2"), (Shifted, "llama")]
)
def test_a_broken_slot_leads_to_no_cache(kind, name, folder, tmp_path):
    """State that does not come back as it was, or rows at wrong positions: the model runs uncached, and never refuses to run."""
    loaded = load_tiny(folder(name), tmp_path)
    verdict = prove(loaded, build(loaded, kind), tmp_path / "verdicts.json", "key")
    assert not verdict.cached
    assert "differs by" in verdict.detail


def test_a_broken_slot_is_said_and_the_chat_goes_on(folder, tmp_path, monkeypatch):
    """The person reads why there is no cache, in the notes and in the report, and gets an answer."""
    monkeypatch.setattr("localkv.opened.Slot", Misplaced)
    with runtime_of(folder("llama"), tmp_path) as runtime:
        opened = runtime.opened
        assert opened.keeper is None
        assert "the self-test failed, so this model runs without a cache" in " ".join(opened.notes)
        assert runtime.report()["model"]["cached"] is False
        done, lines = ask(runtime, LONG)
        again, _ = ask(runtime, "and?", lines=lines, head=done.head)
        assert len(done.ids) == len(again.ids) == 32


def test_a_verdict_is_remembered(loaded, tmp_path, monkeypatch):
    """The second start takes the verdict from its file; another key or a damaged file runs the test again."""
    file = tmp_path / "verdicts.json"
    first = prove(loaded, build(loaded), file, "key")
    calls = []
    monkeypatch.setattr(selftest, "_examine", lambda *_: calls.append(1) or first)
    loaded.model.set_attn_implementation("sdpa")
    assert prove(loaded, build(loaded), file, "key") == first
    assert loaded.model.config._attn_implementation == first.attention
    assert not calls
    prove(loaded, build(loaded), file, "another key")
    assert len(calls) == 1
    file.write_bytes(b"{")
    prove(loaded, build(loaded), file, "key")
    assert len(calls) == 2
    file.write_bytes(msgspec.json.encode({"key": msgspec.structs.replace(first, token_seconds=0.0)}))
    prove(loaded, build(loaded), file, "key")
    assert len(calls) == 3, "one of a time when the pace was not measured"


def test_a_verdict_file_that_cannot_be_written_costs_only_time(loaded, tmp_path):
    """A read-only or full disk does not keep a model from opening."""
    assert prove(loaded, build(loaded), tmp_path / "no" / "such" / "folder" / "v.json", "key").cached


@pytest.mark.parametrize("name", ["jamba", "mamba2", "qwen3_next", "falcon_h1", "lfm2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_who_forgets_between_chunks_is_found(name, dtype, folder, tmp_path):
    """jamba starts every chunk from an empty recurrent state, silently: it alone is read token by token, in any dtype."""
    loaded = load_tiny(folder(name), tmp_path, dtype=dtype)
    verdict = prove(loaded, build(loaded), tmp_path / "verdicts.json", "key")
    assert verdict.cached
    assert verdict.reading == ("tokens" if name == "jamba" else "chunks")
    assert ("token by token" in verdict.detail) == (name == "jamba")


def test_the_chunk_trap_is_real_and_avoided(folder, tmp_path):
    """Read in chunks, jamba's logits are far from those of one forward over everything; the product's are not."""
    with runtime_of(folder("jamba"), tmp_path) as runtime:
        opened = runtime.opened
        ids = opened.tokens.render(tuple(ask(runtime, LONG)[1][:1])).prompt
        with torch.inference_mode():
            right = opened.loaded.model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        found = {}
        for reading in ("chunks", "tokens"):
            opened.live.reset()
            for a, b in selftest.chunks(0, len(ids), 16, reading):
                logits = opened.live.feed(ids[a:b])
            found[reading] = float((logits - right).abs().max() / right.abs().max())
    assert found["tokens"] < 1e-4 < 1e-2 < found["chunks"]


def test_a_state_that_no_cache_sees_is_found(tmp_path):
    """rwkv hands its state around beside the cache: it would be cached as "nothing" and be wrong; it reads everything each time."""
    make("rwkv", tmp_path / "rwkv", attention_hidden_size=64)
    with runtime_of(tmp_path / "rwkv", tmp_path) as runtime:
        opened = runtime.opened
        assert opened.keeper is None
        assert opened.verdict.reading == "whole"
        assert "reads the whole conversation again" in " ".join(opened.notes)
        done, lines = ask(runtime, "hello there", n_tokens=4)
        ids = opened.tokens.render(lines[:1]).prompt
        for token in msgspec.convert(list(memoryview(done.ids).cast("I")), list[int]):
            with torch.inference_mode():
                assert token == int(opened.loaded.model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
            ids.append(token)


INDEXED = {
    "num_hidden_layers": 2, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2, "kv_lora_rank": 16,
    "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12, "n_group": 2, "topk_group": 1,
    "first_k_dense_replace": 1, "moe_intermediate_size": 32, "index_topk": 16, "index_head_dim": 16, "index_n_heads": 2,
}  # fmt: skip


def test_an_unknown_kind_runs_uncached_and_says_so_by_name(tmp_path):
    """Indexed attention has no adapter: it is named in notes and report, each turn says uncached_kind, and answers come."""
    make("deepseek_v32", tmp_path / "indexed", **INDEXED)
    with runtime_of(tmp_path / "indexed", tmp_path) as runtime:
        assert runtime.opened.keeper is None
        assert "DynamicIndexedLayer" in " ".join(runtime.opened.notes)
        assert "DynamicIndexedLayer" in runtime.report()["model"]["notes"]
        done, lines = ask(runtime, "hello there")
        assert len(done.ids) == 32
        assert done.head is None
        assert done.numbers.restored.total == 0
        again, _ = ask(runtime, "and?", lines=lines)
        assert again.numbers.prefilled_tokens == again.numbers.prompt_tokens


def test_a_model_that_needs_its_own_attention_says_so(folder, tmp_path):
    """Which attention runs, and why not the faster one, is in the notes by name."""
    with runtime_of(folder("gpt_oss"), tmp_path) as runtime:
        assert "GptOssForCausalLM allows no other attention" in " ".join(runtime.opened.notes)
        assert runtime.report()["model"]["attention"] == "eager"


def test_a_verdict_of_an_older_version_is_read():
    """A file without the way of reading is not damage."""
    old = {"key": {"attention": "sdpa", "cached": True, "difference": 0.0, "detail": ""}}
    assert msgspec.json.decode(msgspec.json.encode(old), type=dict[str, Verdict])["key"].reading == "chunks"


def test_nan_is_infinitely_far():
    """Something that is not a number never counts as close."""
    nan = torch.full((4,), float("nan"))
    assert selftest._difference([nan], [torch.ones(4)]) == float("inf")


def test_the_script_fits_small_vocabularies(loaded):
    """The fixed ids exist in every model."""
    first, second, token = selftest._script(dataclasses.replace(loaded))
    assert max(*first, *second, token) < tiny.VOCABULARY
    assert len(first) == 16
