"""Bytes that weights take, from headers alone."""

import pytest

from localkv.config import ModelSection
from localkv.errors import ModelError, ModelTooBig
from localkv.models.memory import STARTER_PARAMETERS, require_room, weights_bytes
from localkv.models.reference import ModelPath
from tests.models.test_reference import write_safetensors

SHAPES = {"model.embed_tokens.weight": (100, 8), "model.layers.0.mlp.up_proj.weight": (64, 8), "model.norm.weight": (8,)}


@pytest.fixture
def model(tmp_path):
    """A model of one file in bfloat16."""
    (tmp_path / "config.json").write_text("{}")
    write_safetensors(tmp_path / "model.safetensors", SHAPES)
    return ModelPath("folder", tmp_path, "Org/model")


def test_counts_every_tensor(model):
    """The sum of all tensors in the stored type, or in the type asked for."""
    count = 800 + 512 + 8
    assert weights_bytes(model) == 2 * count
    assert weights_bytes(model, "float32") == 4 * count


def test_quantisation_counts_linear_weights_only(model):
    """bitsandbytes leaves embeddings and norms as they are."""
    assert weights_bytes(model, "auto", "8bit") == 2 * 808 + 512
    assert weights_bytes(model, "auto", "4bit") == 2 * 808 + 512 * 0.5625


def test_starter_before_it_is_there(tmp_path):
    """Memory for the starter is known before it was fetched."""
    assert weights_bytes(ModelPath("starter", tmp_path / "none", "starter")) == 2 * STARTER_PARAMETERS


def test_gguf_counts_what_it_becomes(tmp_path):
    """A GGUF is dequantised when loaded: two bytes per weight, whatever the file holds."""
    import gguf
    import numpy as np

    file = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    weights = np.ones((32, 64), dtype=np.float32)
    writer.add_tensor(
        "blk.0.ffn_up.weight",
        gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0),
        raw_dtype=gguf.GGMLQuantizationType.Q8_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = ModelPath("gguf", file, "m")
    assert weights_bytes(path) == 2 * 32 * 64
    assert weights_bytes(path, "float32") == 4 * 32 * 64


def test_require_room_names_both_numbers(model):
    """A model that memory cannot hold is refused with needed and available bytes."""
    assert require_room(model, ModelSection(), 2640, "memory") == 2640
    with pytest.raises(ModelTooBig, match=r"2\.6 KiB.*2\.6 KiB free") as caught:
        require_room(model, ModelSection(), 2639, "memory")
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (2640, 2639)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x05\0\0\0\0\0\0\0{nope", b"\x0e\0\0\0\0\0\0\0" + b'{"a":{"b": 1}}'],
)
def test_broken_files_are_model_errors(tmp_path, content):
    """A damaged file is named; it does not end in a foreign exception."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="model.safetensors"):
        weights_bytes(ModelPath("folder", tmp_path, "x"))


ENTRY = '{"dtype": "X", "shape": %s, "data_offsets": %s}'


@pytest.mark.parametrize(
    "entry",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        ENTRY % ("[1e999]", "[0, 8]"),
        ENTRY % ("[NaN]", "[0, 8]"),
        ENTRY % ("[-1]", "[0, 8]"),
        ENTRY % ("[9" + "0" * 4_000 + "]", "[0, 8]"),
        ENTRY % ("[1]", "[0, 9" + "0" * 4_000 + "]"),
        ENTRY % ("[1]", "[8, 0]"),
        ENTRY % ("[1]", "[0, NaN]"),
        ENTRY % ("[1]", "[0, 1e308]"),
        ENTRY % ("[9" + "0" * 5_000 + "]", "[0, 8]"),
    ],
    ids=range(11),
)
def test_headers_of_strangers_are_refused(tmp_path, entry):
    """A header that is nested without end, or numbers that no tensor has, are a damaged file."""
    header = b'{"w": ' + entry.encode() + b"}"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match="model.safetensors"):
        weights_bytes(ModelPath("folder", tmp_path, "x"))


def test_broken_gguf_is_a_model_error(tmp_path):
    """A damaged GGUF is named, too."""
    (tmp_path / "x.gguf").write_bytes(b"GGUFnonsense")
    with pytest.raises(ModelError, match="x.gguf"):
        weights_bytes(ModelPath("gguf", tmp_path / "x.gguf", "x"))
