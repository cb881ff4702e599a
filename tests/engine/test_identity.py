"""Identity: everything that KV depends on, and nothing else. Fingerprint: what decides only the last bits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from localkv.commands.bench.player import CONFIG
from localkv.config import EngineSection
from localkv.engine import arithmetic
from localkv.engine.identity import FileDigests, hash_file
from localkv.files import Files
from tests.engine.tiny_engine import ENGINE, ask, load_tiny, make, runtime_of

pytestmark = pytest.mark.slow

LONG = " ".join(f"the quick brown fox number {i} jumps over the lazy dog" for i in range(4))


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """A mistral with a window, in two shards."""
    folder = make("mistral", tmp_path_factory.mktemp("models") / "mistral", shard_bytes="600KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


@pytest.fixture
def twin(original, tmp_path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(original, tmp_path / "twin"))


@pytest.fixture
def identity(tmp_path):
    """The identity of a folder, as the engine finds it."""
    return lambda folder, **section: load_tiny(folder, tmp_path / "home", **section).identity


def change_json(file: Path, change) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def one_weight(folder: Path) -> None:
    file = min(folder.glob("*.safetensors"))
    tensors = load_file(file)
    name = min(tensors)
    tensors[name].flat[0] = np.nextafter(tensors[name].flat[0], np.float32(9))
    save_file(tensors, file, metadata={"format": "pt"})


def rope(folder: Path) -> None:
    change_json(folder / "config.json", lambda config: config["rope_parameters"].update(rope_theta=10001.0))


def window(folder: Path) -> None:
    change_json(folder / "config.json", lambda config: config.update(sliding_window=33))


def norm(folder: Path) -> None:
    change_json(folder / "config.json", lambda config: config.update(rms_norm_eps=2e-6))


def merge_rule(folder: Path) -> None:
    def swap(document) -> None:
        merges = document["model"]["merges"]
        merges[0], merges[1] = merges[1], merges[0]

    change_json(folder / "tokenizer.json", swap)


def added_token(folder: Path) -> None:
    token = {"id": 511, "content": "<new>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    change_json(folder / "tokenizer.json", lambda document: document["added_tokens"].append({**token, "special": True}))


@pytest.mark.parametrize("change", [one_weight, rope, window, norm, merge_rule, added_token])
def test_one_change_is_another_identity(change, original, twin, identity):
    """One bit of one weight, one number of the config, one rule of the tokenizer: each alone makes old KV worthless."""
    assert identity(twin) == identity(original)
    change(twin)
    assert identity(twin) != identity(original)


@pytest.mark.parametrize("named", [None, "second.safetensors"])
def test_it_covers_the_weights_that_are_loaded(original, twin, identity, named):
    """A folder with several sets of weights: a change of the loaded one is noticed, whatever lies beside it."""
    whole = {name: tensor for file in sorted(twin.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    loaded = twin / (named or "model.safetensors")
    save_file(whole, loaded, metadata={"format": "pt"})
    if named:
        change_json(twin / "config.json", lambda config: config.update(transformers_weights=named))
    before = load_tiny(twin, twin.parent / "home")
    name = next(name for name in whole if "k_proj" in name)
    whole[name] = whole[name] + np.float32(1)
    save_file(whole, loaded, metadata={"format": "pt"})
    after = load_tiny(twin, twin.parent / "home")
    assert not after.model.get_parameter(name).equal(before.model.get_parameter(name)), "it is this file that is loaded"
    assert after.identity != before.identity


def test_code_that_a_model_brings_is_part_of_it(twin, tmp_path, monkeypatch):
    """Under trust_remote_code it is the code that computes: another one with the same weights has another KV."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = "from transformers import MistralForCausalLM\n\n\nclass Strange(MistralForCausalLM):\n    pass\n"
    change_json(twin / "config.json", lambda config: config.update(auto_map={"AutoModelForCausalLM": "strange.Strange"}))
    found = []
    for more in ("", "\n\nANOTHER = 1\n", ""):
        (twin / "strange.py").write_text(code + more)
        loaded = load_tiny(twin, twin.parent / "home", trust_remote_code=True)
        assert type(loaded.model).__name__ == "Strange"
        found.append(loaded.identity)
    assert found[0] == found[2] != found[1]


def test_dtype_and_quantisation_are_part_of_it(original, identity):
    """The same files held in another way compute another KV."""
    ways = [{}, {"dtype": "bfloat16"}, {"dtype": "float16"}, {"quant": "8bit"}, {"quant": "4bit"}]
    assert len({identity(original, **way) for way in ways}) == len(ways)
    assert identity(original, dtype="float32") == identity(original)


def test_the_block_length_is_part_of_it(original, tmp_path):
    """Records of another block length are other records."""
    other = msgspec.structs.replace(ENGINE, block_tokens=32)
    assert load_tiny(original, tmp_path / "home", other).identity != load_tiny(original, tmp_path / "home").identity


def test_where_the_folder_lies_is_not(original, twin, identity, tmp_path):
    """Moving or renaming a model costs nothing."""
    moved = tmp_path / "elsewhere" / "another name"
    moved.parent.mkdir()
    twin.rename(moved)
    assert identity(moved) == identity(original)


def test_the_order_and_names_of_shards_are_not(original, twin, identity):
    """The same shards under each other's names, with an index that says so, are the same weights."""
    first, second, *_ = sorted(twin.glob("*.safetensors"))
    first.rename(twin / "spare")
    second.rename(first)
    (twin / "spare").rename(second)
    swap = {first.name: second.name, second.name: first.name}

    def rename(index) -> None:
        index["weight_map"] = {name: swap.get(file, file) for name, file in reversed(index["weight_map"].items())}

    change_json(twin / "model.safetensors.index.json", rename)
    assert identity(twin) == identity(original)


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json", "chat_template.jinja", "README.md"])
def test_what_only_decides_the_text_to_come_is_not(name, original, twin, identity):
    """Templates and sampling defaults say what will be fed, not what was computed for what was fed."""
    file = twin / name
    if name.endswith(".json"):
        change_json(file, lambda document: document.update(temperature=0.123))
    else:
        file.write_text("{{ messages[0].content }}")
    assert identity(twin) == identity(original)


def test_a_swap_that_keeps_size_and_time_is_noticed(original, twin, tmp_path):
    """`cp -p` over a file keeps size, mtime and inode; ctime tells, and the digest is computed again."""
    file = min(twin.glob("*.safetensors"))
    digests = FileDigests(tmp_path / "digests.json", Files())
    (before,) = digests.of([file])
    other = tmp_path / "other"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    other.write_bytes(content)
    status = file.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    subprocess.run(["cp", "-p", str(other), str(file)], check=True)
    now = file.stat()
    assert (now.st_ino, now.st_size, now.st_mtime_ns) == (status.st_ino, status.st_size, status.st_mtime_ns)
    again = FileDigests(tmp_path / "digests.json", Files())
    assert again.of([file]) != [before]
    assert again.of([file]) == [hash_file(file, lambda _: None)]


def test_a_known_digest_is_not_computed_again(original, tmp_path, monkeypatch):
    """Gigabytes are read once, not at each start."""
    files = sorted(original.glob("*.safetensors"))
    first = FileDigests(tmp_path / "digests.json", Files()).of(files)
    monkeypatch.setattr("localkv.engine.identity.hash_file", lambda *_: pytest.fail("read again"))
    assert FileDigests(tmp_path / "digests.json", Files()).of(files) == first


@pytest.mark.parametrize("change", [one_weight, window])
def test_another_identity_is_a_named_fallback(change, original, twin, tmp_path):
    """A conversation whose model changed is computed again from the start, and says why; none of the old records is used."""
    with runtime_of(twin, tmp_path / "home") as runtime:
        done, lines = ask(runtime, LONG)
        runtime.flush(60.0)
    change(twin)
    with runtime_of(twin, tmp_path / "home") as runtime:
        again, _ = ask(runtime, "and then", head=done.head, lines=lines)
    numbers = again.numbers
    assert (numbers.restored.total, numbers.exact) == (0, False)
    assert [(lost.reason, lost.tokens) for lost in numbers.fallbacks] == [("identity_changed", done.head.tokens)]
    assert "identity_changed" in numbers.inexact_because


def engine(**changes) -> EngineSection:
    return msgspec.structs.replace(ENGINE, **changes)


@pytest.mark.parametrize("other", [engine(threads=2), engine(attention="default")], ids=["threads", "attention"])
def test_another_fingerprint_is_usable_and_not_exact(other, tmp_path):
    """With other threads or another attention path the records are good and are used; the answer is not called exact."""
    folder = make("llama", tmp_path / "llama")
    with runtime_of(folder, tmp_path / "home") as runtime:
        done, lines = ask(runtime, LONG)
        runtime.flush(60.0)
    with runtime_of(folder, tmp_path / "home", msgspec.structs.replace(CONFIG, engine=other)) as runtime:
        again, _ = ask(runtime, "and then", head=done.head, lines=lines)
    assert again.numbers.restored.total == done.head.tokens
    assert not again.numbers.exact
    assert again.numbers.inexact_because.startswith("fingerprint_changed")
    with runtime_of(folder, tmp_path / "home") as runtime:
        back, _ = ask(runtime, "and then", head=done.head, lines=lines)
    assert back.numbers.exact


def test_another_schedule_is_another_fingerprint(tmp_path):
    """How tokens are fed decides the last bits: records of another schedule are usable and not exact."""
    folder = make("llama", tmp_path / "llama")
    with runtime_of(folder, tmp_path / "home") as runtime:
        done, lines = ask(runtime, LONG)
        runtime.flush(60.0)
        selftests = runtime.opened and tmp_path / "home" / "cache" / "selftests.json"
    verdicts = json.loads(selftests.read_text())
    for verdict in verdicts.values():
        verdict["reading"] = "tokens"
    selftests.write_text(json.dumps(verdicts))
    with runtime_of(folder, tmp_path / "home") as runtime:
        again, _ = ask(runtime, "and then", head=done.head, lines=lines)
    assert again.numbers.restored.total == done.head.tokens
    assert not again.numbers.exact
    assert again.numbers.inexact_because.startswith("fingerprint_changed")


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(arithmetic, "_version", lambda name: "9.9" if name == "flash-linear-attention" else "-"),
        lambda patch: patch.setattr(arithmetic, "ARITHMETIC", 0),
        lambda patch: patch.setattr(arithmetic, "instructions", lambda: "AVX512"),
    ],
    ids=["a kernel that was installed", "another arithmetic", "another processor"],
)
def test_what_else_computes_is_another_fingerprint_and_is_examined_anew(change, tmp_path, monkeypatch):
    """Kernels that transformers takes up by itself, other instructions, localkv's own path: records of theirs are not called exact."""
    folder = make("llama", tmp_path / "llama")
    with runtime_of(folder, tmp_path / "home") as runtime:
        done, lines = ask(runtime, LONG)
        runtime.flush(60.0)
    selftests = tmp_path / "home" / "cache" / "selftests.json"
    assert len(json.loads(selftests.read_text())) == 1
    change(monkeypatch)
    with runtime_of(folder, tmp_path / "home") as runtime:
        again, _ = ask(runtime, "and then", head=done.head, lines=lines)
    assert again.numbers.restored.total == done.head.tokens
    assert again.numbers.inexact_because.startswith("fingerprint_changed")
    assert len(json.loads(selftests.read_text())) == 2
