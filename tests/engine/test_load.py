"""Weights in all their forms: shards, GGUF, half precision and quantised; each opens, is cached, and comes back exactly."""

import gguf
import pytest
import torch

from localkv.engine import load
from localkv.errors import ModelError
from tests.engine.gguf_samples import write_gguf
from tests.engine.tiny_engine import ask, load_tiny, make, runtime_of

pytestmark = pytest.mark.slow

LONG = " ".join(f"the quick brown fox number {i} jumps over the lazy dog" for i in range(4))
KINDS = gguf.GGMLQuantizationType


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make("llama", tmp_path_factory.mktemp("models") / "llama")


def test_what_the_model_before_held_is_given_back_before_there_is_asked_for_room(llama, tmp_path, monkeypatch):
    """A card calls taken what torch keeps for later: another model would be refused for want of the memory that the last one had."""
    done = []
    monkeypatch.setattr(load, "pick_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(load, "trim", lambda device: done.append(f"trim {device.type}"))
    monkeypatch.setattr(load, "_free_memory", lambda _: done.append("look") or 0)
    with pytest.raises(ModelError, match="GPU's memory"):
        load_tiny(llama, tmp_path)
    assert done == ["trim cuda", "look"]


def comes_back(folder, base, **section) -> None:
    """A conversation is answered, saved, and goes on exactly in another runtime on the same home."""
    with runtime_of(folder, base, **section) as runtime:
        done, lines = ask(runtime, LONG)
        live, _ = ask(runtime, "and then", head=done.head, lines=lines, keep_head=True)
        runtime.flush(60.0)
    with runtime_of(folder, base, **section) as runtime:
        again, _ = ask(runtime, "and then", head=done.head, lines=lines)
    assert again.numbers.restored.ssd == done.head.tokens
    assert live.numbers.exact
    assert again.numbers.exact
    assert again.ids == live.ids


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtypes(llama, dtype, tmp_path):
    """Weights and state are held in the dtype that was asked for."""
    loaded = load_tiny(llama, tmp_path, dtype=dtype)
    assert loaded.model.dtype is getattr(torch, dtype)
    assert {slab.dtype for slab in loaded.layout.slabs} == {{"float32": "F32", "bfloat16": "BF16", "float16": "F16"}[dtype]}
    with runtime_of(llama, tmp_path, dtype=dtype) as runtime:
        assert runtime.opened.verdict.cached
        assert len(ask(runtime, LONG)[0].ids) == 32


def test_shards_are_the_same_model(llama, tmp_path):
    """A model in several files computes what it computes in one."""
    shards = make("llama", tmp_path / "shards", shard_bytes="300KB")
    assert len(list(shards.glob("*.safetensors"))) > 2
    answers = []
    for folder in (llama, shards):
        with runtime_of(folder, tmp_path / "home") as runtime:
            answers.append(ask(runtime, LONG)[0].ids)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("quant", ["8bit", "4bit"])
def test_quantised_weights_on_a_cpu(llama, quant, tmp_path):
    """bitsandbytes quantises on this CPU, the weights shrink, the cache is proven as for any model, and comes back."""
    whole, small = load_tiny(llama, tmp_path / "a"), load_tiny(llama, tmp_path / "a", quant=quant)
    assert small.weights_bytes < 0.6 * whole.weights_bytes
    names = {type(module).__name__ for module in small.model.modules()}
    assert {"8bit": "Linear8bitLt", "4bit": "Linear4bit"}[quant] in names
    comes_back(llama, tmp_path / "b", quant=quant)


def test_where_four_bits_cannot_be_had(tmp_path):
    """A matrix whose height bitsandbytes cannot pack on a CPU is refused in a sentence that says what to take instead."""
    folder = make("mamba2", tmp_path / "mamba2")
    try:
        loaded = load_tiny(folder, tmp_path, quant="4bit")
    except ModelError as error:
        assert "--quant 8bit" in str(error)
    else:
        assert loaded.layout is not None  # a CPU whose kernels need no packing


@pytest.mark.parametrize("kind", [KINDS.F32, KINDS.F16, KINDS.Q8_0, KINDS.Q4_0], ids=lambda kind: kind.name)
def test_gguf(llama, kind, tmp_path):
    """A GGUF file is unpacked, says so, and its state is kept like any other's; unpacked without loss it says what it said before."""
    file = write_gguf(llama, tmp_path / "tiny.gguf", kind)
    with runtime_of(file, tmp_path / "home", dtype="float32") as runtime:
        opened = runtime.opened
        assert opened.verdict.cached
        assert "unpacked to float32" in " ".join(opened.notes)
        answer, _ = ask(runtime, LONG)
    if kind is KINDS.F32:
        with runtime_of(llama, tmp_path / "home") as runtime:
            assert ask(runtime, LONG)[0].ids == answer.ids
    comes_back(file, tmp_path / "other")


def test_gguf_is_not_quantised_again(llama, tmp_path):
    """What cannot be done is refused, not left out in silence."""
    file = write_gguf(llama, tmp_path / "tiny.gguf", KINDS.Q8_0)
    with pytest.raises(ModelError, match="--quant none"):
        load_tiny(file, tmp_path, quant="4bit")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", '{"model_type": "no such thing"}'),
        ("tokenizer.json", "{}"),
        ("model.safetensors", "x" * 99),
    ],
)
def test_a_broken_folder_is_refused_in_a_sentence(name, content, tmp_path):
    """Whatever is wrong inside, the person reads which model and where, and no foreign exception comes through."""
    folder = make("llama", tmp_path / "broken")
    (folder / name).write_text(content)
    with pytest.raises(ModelError, match="broken"):
        load_tiny(folder, tmp_path)
