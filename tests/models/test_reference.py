"""What a model's name stands for."""

import json
import struct

import pytest
from huggingface_hub import constants

from localkv.errors import ModelError, ModelMissing
from localkv.models.reference import ModelPath, absolute_name, locate, near_names, weight_files


def write_safetensors(path, shapes=None, dtype="BF16", size=2):
    """A safetensors file with zero bytes for each shape."""
    shapes = shapes or {"model.embed_tokens.weight": (4, 2)}
    header, offset = {}, 0
    for name, shape in shapes.items():
        count = size
        for n in shape:
            count *= n
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + count]}
        offset += count
    body = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(body)) + body + bytes(offset))


@pytest.fixture
def folder(tmp_path):
    """A complete model folder."""
    path = tmp_path / "little"
    path.mkdir()
    (path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    write_safetensors(path / "model.safetensors")
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty Hugging Face cache."""
    path = tmp_path / "hub"
    path.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(path))
    return path


def add_repository(cache, name, shards=("model.safetensors",), index=None):
    """A repository in the cache, as huggingface_hub lays it out."""
    repository = cache / ("models--" + name.replace("/", "--"))
    snapshot = repository / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "blobs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    (snapshot / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    for shard in shards:
        write_safetensors(snapshot / shard)
    if index:
        (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return snapshot


def test_starter_is_known_without_files(tmp_path):
    """The starter can be named before it was fetched: the engine fetches it."""
    assert locate("starter", tmp_path) == ModelPath("starter", tmp_path / "starter", "SmolLM2-135M-Instruct (starter)")


def test_folder_and_gguf(folder, tmp_path):
    """A folder and a .gguf file are found by their paths, which become absolute."""
    assert locate(str(folder), tmp_path) == ModelPath("folder", folder, "little")
    file = tmp_path / "x.Q4.GGUF"
    file.write_bytes(b"GGUF")
    assert locate(str(file), tmp_path) == ModelPath("gguf", file, "x.Q4")


@pytest.mark.parametrize("name", ["/no/such/folder", "./no", "~/no-such-model", "no.gguf", "../no"])
def test_missing_paths_are_not_looked_up_on_the_hub(name, cache, tmp_path):
    """What is written like a path is never taken for a hub id."""
    with pytest.raises(ModelMissing) as caught:
        locate(name, tmp_path)
    assert "models pull" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "~nosuch/a",
        "~nosuch/x.gguf",
        "a" * 300,
        "org/" + "b" * 300,
        "/" + "a" * 300,
        "a" * 300 + ".gguf",
        "./" + "a/" * 3000,
        "./a\0",
    ],
)
def test_names_that_no_file_system_takes(name, cache, tmp_path, monkeypatch):
    """A home that nobody has, a name that is too long: nothing is there, and it can be stored and said."""
    monkeypatch.chdir(tmp_path)
    assert absolute_name(name) in {name, str(tmp_path / name)}
    with pytest.raises(ModelMissing):
        locate(name, tmp_path)


@pytest.mark.parametrize("name", ["a" * 100, "org/" + "b" * 100, "a--b", "a.git", "org/a-", "a."])
def test_names_that_the_hub_does_not_take(name, cache, tmp_path, monkeypatch):
    """What the hub's own rules forbid names no model, and no pull line is given for it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelMissing, match="names no model"):
        locate(name, tmp_path)


def test_an_index_of_names_that_are_too_long(folder, tmp_path):
    """An index is data from strangers: names that no disk takes are missing files."""
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": "a" * 300}}))
    with pytest.raises(ModelMissing, match="not complete"):
        locate(str(folder), tmp_path)
    (folder / "config.json").write_text(json.dumps({"transformers_weights": "a" * 300 + ".safetensors.index.json"}))
    with pytest.raises(ModelError):
        locate(str(folder), tmp_path)


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "a/..", "Org/na..me", "-x", "a\nb"])
def test_nonsense_is_refused(name, cache, tmp_path, monkeypatch):
    """A name that can be neither path nor hub id is refused with what can be written instead."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelMissing):
        locate(name, tmp_path)


def test_missing_hub_model_says_how_to_pull(cache, tmp_path):
    """The exact pull line and the nearest names on this machine are in the message."""
    add_repository(cache, "Qwen/Qwen3-4B")
    with pytest.raises(ModelMissing) as caught:
        locate("Qwen/Qwen3-4b-it", tmp_path)
    lines = str(caught.value).splitlines()
    assert "  localkv models pull Qwen/Qwen3-4b-it" in lines
    assert "Qwen/Qwen3-4B" in lines[-1]


def test_cached_model_is_found_offline(cache, tmp_path):
    """A complete repository in the user's cache is used where it lies."""
    snapshot = add_repository(cache, "Org/model")
    assert locate("Org/model", tmp_path) == ModelPath("folder", snapshot, "Org/model")


def test_partial_download_is_told_apart(cache, tmp_path):
    """A repository without one of its shards is not loaded; the message says how to complete it."""
    add_repository(
        cache, "Org/big", shards=["model-1.safetensors"], index={"a": "model-1.safetensors", "b": "model-2.safetensors"}
    )
    with pytest.raises(ModelMissing, match="only in part") as caught:
        locate("Org/big", tmp_path)
    assert "localkv models pull Org/big" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../other/model.safetensors", "a/../../b", "..\\b", "C:\\x", "C:x", "\\\\host\\x", "", 3, None, "a\0b"],
)
def test_index_that_leaves_its_folder_is_refused(folder, name, tmp_path):
    """An index is data from strangers: it can't make us read other files."""
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(ModelError, match="outside"):
        locate(str(folder), tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": 3}', "\xff", "[" * 100_000, '{"a":' * 100_000], ids=range(8)
)
def test_broken_index(folder, text, tmp_path):
    """An unreadable index is an error of ours, not of json."""
    (folder / "model.safetensors.index.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelError):
        locate(str(folder), tmp_path)


def test_pickled_weights_are_refused(folder, tmp_path):
    """Only safetensors are loaded; a pickle can run any program."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled"):
        locate(str(folder), tmp_path)


def test_folder_without_config_hints_at_its_gguf(tmp_path):
    """A folder that only holds a GGUF is named with the file to give instead."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "a.gguf").write_bytes(b"")
    with pytest.raises(ModelMissing, match=r"a\.gguf"):
        locate(str(tmp_path / "dir"), tmp_path)


def test_weight_files_follow_the_index(folder):
    """Each shard once, in order."""
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "a.safetensors"}})
    )
    assert [file.name for file in weight_files(folder)] == ["a.safetensors", "b.safetensors"]


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("named", [None, "other.safetensors", "sub/other.safetensors", "other.safetensors.index.json"])
def test_weight_files_are_those_that_transformers_reads(folder, named):
    """A folder may hold several sets of weights: what is hashed and measured must be the one that is loaded."""
    for name, shard in ((INDEX, "a.safetensors"), ("other.safetensors.index.json", "b.safetensors")):
        (folder / name).write_text(json.dumps({"weight_map": {"x": shard}}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | ({"transformers_weights": named} if named else {})))
    expected = {None: "model.safetensors", "other.safetensors.index.json": "b.safetensors"}.get(named, named)
    assert weight_files(folder) == [folder / expected]


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "x.bin", 3, ["x.safetensors"]]
)
def test_a_config_that_names_strange_weights_is_refused(folder, name, tmp_path):
    """config.json is data from strangers, too."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_weights": name}))
    with pytest.raises(ModelError, match=r"outside|neither"):
        locate(str(folder), tmp_path)


def test_an_adapter_that_would_be_put_on_top_is_refused(folder, tmp_path, monkeypatch):
    """Where peft is installed transformers uses it unasked, and the identity would not say so; elsewhere nobody reads that file."""
    (folder / "adapter_config.json").write_text("{}")
    monkeypatch.setattr("localkv.models.reference.find_spec", lambda _: None)
    assert locate(str(folder), tmp_path).kind == "folder"
    monkeypatch.setattr("localkv.models.reference.find_spec", lambda name: name)
    with pytest.raises(ModelError, match="adapter"):
        locate(str(folder), tmp_path)


def test_absolute_name(folder, tmp_path, monkeypatch):
    """Stored names mean the same in every working directory; hub ids and the starter stay."""
    monkeypatch.chdir(tmp_path)
    assert absolute_name("little") == str(folder)
    assert absolute_name("x.gguf") == str(tmp_path / "x.gguf")
    assert absolute_name("Org/model") == "Org/model"
    (tmp_path / "starter").mkdir()
    assert absolute_name("starter") == "starter"


def test_a_path_of_nobody_is_no_model(tmp_path):
    """A "~" before a name that no user has is told as any other folder that is not there."""
    absolute_name("~nobody-at-all/x")
    with pytest.raises(ModelMissing, match="~nobody-at-all"):
        locate("~nobody-at-all/x", tmp_path)


def test_near_names_ignore_case_and_owner():
    """The part after the slash decides."""
    assert near_names("qwen3-4b", ["Qwen/Qwen3-4B", "google/gemma", "starter"]) == ["Qwen/Qwen3-4B"]
