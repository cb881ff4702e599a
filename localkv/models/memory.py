"""How many bytes a model's weights take once loaded, read from file headers: "does it fit" before anything is loaded.

Torch-free. Reads the JSON header of each safetensors file, or the tensor list of a GGUF; never a weight. Thread: any.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localkv.config import MOST, DType, ModelSection, Quant
from localkv.errors import ModelError, ModelTooBig
from localkv.models.reference import ModelPath, weight_files
from localkv.units import format_bytes

STARTER_PARAMETERS = 134_515_008

_MAX_HEADER = 100 << 20
"""safetensors' own limit."""

_STORED = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2}
_LARGEST_ITEM = 16
"""Bytes of the largest kind of number that a file may have, a complex one."""
_LOADED: dict[DType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
_QUANTISED: dict[Quant, float] = {"8bit": 1.0, "4bit": 0.5625}
"""Bytes per weight in bitsandbytes; 4-bit keeps one float32 for every 64 weights."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file: `item_bytes` as stored; 0 for a GGUF tensor, which is dequantised when loaded."""

    name: str
    shape: tuple[int, ...]
    item_bytes: float

    @property
    def quantisable(self) -> bool:
        """True for what bitsandbytes replaces: weights of linear layers, not embeddings or the output layer."""
        return (
            len(self.shape) == 2
            and self.name.endswith("weight")
            and not any(k in self.name for k in ("embed", "lm_head", "wte"))
        )


def weights_bytes(path: ModelPath, dtype: DType = "auto", quant: Quant = "none") -> int:
    """Bytes in memory of all weights; `dtype` "auto" is the stored one, and bfloat16 for a GGUF. Raises ModelError."""
    return math.ceil(sum(loaded_bytes(tensor, dtype, quant) for tensor in _tensors(path)))


def loaded_bytes(tensor: Tensor, dtype: DType, quant: Quant) -> float:
    """Bytes in memory of one tensor."""
    count = math.prod(tensor.shape)
    if quant != "none" and tensor.quantisable:
        return count * _QUANTISED[quant]
    if dtype == "auto":
        return count * (tensor.item_bytes or 2)
    return count * _LOADED[dtype]


def require_room(path: ModelPath, section: ModelSection, available_bytes: int, where: str) -> int:
    """Bytes the weights take, if `available_bytes` of `where` ("memory", "the GPU's memory") hold them; else ModelTooBig."""
    needed = weights_bytes(path, section.dtype, section.quant)
    if needed > available_bytes:
        smaller = "" if section.quant == "4bit" else ', model.quant = "4bit"'
        raise ModelTooBig(
            f"{path.title} needs {format_bytes(needed)} for its weights and {where} has {format_bytes(available_bytes)} free; "
            f"take a smaller model{smaller}, or close other programs",
            needed,
            available_bytes,
        )
    return needed


def _tensors(path: ModelPath) -> Iterator[Tensor]:
    if path.kind == "gguf":
        yield from _gguf_tensors(path.path)
    elif path.kind == "starter" and not (path.path / "config.json").is_file():
        yield Tensor("starter", (STARTER_PARAMETERS,), 2)
    else:
        for file in weight_files(path.path):
            yield from _safetensors_header(file)


def _safetensors_header(file: Path) -> Iterator[Tensor]:
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > _MAX_HEADER:
                raise ModelError(f"{file} is not a safetensors file: its header would be {length:,} bytes long")
            header = json.loads(stream.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                shape = tuple(int(n) for n in entry["shape"])
                count = math.prod(shape)
                stored = _STORED.get(entry["dtype"]) or (end - start) / max(1, count)
                if not (0 <= count <= MOST and 0 <= stored <= _LARGEST_ITEM):
                    raise ValueError(f"there is no tensor of shape {shape} in {end - start} bytes")
                yield Tensor(name, shape, stored)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read as safetensors ({error}); fetch the model again") from error


def _gguf_tensors(file: Path) -> Iterator[Tensor]:
    import gguf

    try:
        reader = gguf.GGUFReader(str(file))
    except (OSError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ModelError(f"{file} cannot be read as GGUF ({error}); fetch the file again") from error
    for tensor in reader.tensors:
        yield Tensor(str(tensor.name), tuple(int(n) for n in tensor.shape), 0)
