"""A model, ready to run: found, measured against memory, identified, loaded, probed.

Knows transformers' loaders; knows nothing of conversations or tiers. Thread: the engine's. Nothing here uses the network except
the starter model's one fetch.
"""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DynamicCache,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from localkv.config import EngineSection, ModelSection
from localkv.engine import attention, linear
from localkv.engine.arithmetic import words
from localkv.engine.convert import starter_folder
from localkv.engine.identity import FileDigests, digests_of_code, fingerprint_of, identity_of
from localkv.engine.memory import trim
from localkv.errors import ModelError
from localkv.files import Files
from localkv.kv.kinds import UnknownKind, read_layout
from localkv.kv.layout import Layout
from localkv.models.memory import require_room
from localkv.models.reference import ModelPath, locate, weight_files
from localkv.models.starter import advice
from localkv.paths import Home

Report = Callable[[str, int, int], None]

DEFAULT_CONTEXT = 32768
"""For models that state no limit, such as purely recurrent ones."""

UNFIT = (ValueError, TypeError, AttributeError, RuntimeError, NotImplementedError)
"""What models raise that bring a cache of their own and are handed transformers' usual one."""

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class Loaded:
    """A model in memory and what is known of it."""

    section: ModelSection
    title: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    layout: Layout | None
    """None: the model keeps state of a kind that has no adapter; it runs uncached."""
    device: torch.device
    identity: str
    attention: str
    """The attention path in use."""
    linear: str
    """How single rows go through linear layers: "rows" or "mm"."""
    threads: int
    weights_bytes: int
    context_limit: int
    """The longest context that the model itself allows."""
    notes: tuple[str, ...]

    @property
    def text_config(self) -> Any:
        return self.model.config.get_text_config(decoder=True)

    @property
    def generation_stops(self) -> tuple[int, ...]:
        """The ids that end an answer, by the model's generation config."""
        eos = getattr(self.model.generation_config, "eos_token_id", None)
        return () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos)

    def fingerprint(self, attention_path: str, schedule: str) -> str:
        """What decides the last bits besides the identity; `schedule` says how tokens are fed."""
        return fingerprint_of(
            words(self.device)
            | {
                "threads": str(self.threads),
                "attention": attention_path,
                "linear": self.linear,
                "schedule": schedule,
            }
        )


def load(section: ModelSection, engine: EngineSection, home: Home, report: Report) -> Loaded:
    """The model of `section`, in memory. Raises ModelError and its children, with numbers where memory is short."""
    transformers.utils.logging.disable_progress_bar()
    device = pick_device(engine.device)
    threads = engine.threads or usable_cores()
    torch.set_num_threads(threads)
    path = _fetch_starter(locate(section.name, home.models_dir), home, report)
    if device.type == "cuda":
        trim(device)  # what the model before this one held is torch's still, and the card calls it taken
    require_room(path, section, _free_memory(device), "the GPU's memory" if device.type == "cuda" else "memory")
    files = weight_files(path.path) if path.kind != "gguf" else [path.path]
    before = [_stamp(file) for file in files]
    digests = FileDigests(home.digests, Files()).of(files, lambda done, total: report("checking the weights", done, total))
    report("loading the weights", 0, 0)
    model, tokenizer = _load_weights(path, section, device)
    if [_stamp(file) for file in files] != before:
        raise ModelError(f"the weights of {path.title} changed while they were loaded; try again")
    code = digests_of_code(model)
    layout, notes = _probe(model, engine.block_tokens)
    held_as = (str(model.dtype), section.quant)
    one_row = linear.wanted(device, model.dtype)
    if one_row:
        linear.install(model)
    identity = identity_of(digests, path.path, model.config.to_dict(), held_as, layout, code)
    return Loaded(
        section, path.title, model, tokenizer, layout, device, identity, _choose_attention(model, engine),
        linear.ONE_ROW if one_row else linear.MATRIX, threads,
        model.get_memory_footprint(), _context_limit(model), (*_notes(path, model), *notes, *_attention_notes(model, engine, layout)),
    )  # fmt: skip


def pick_device(wanted: str) -> torch.device:
    """The device that `wanted` ("auto", "cpu", "cuda", "cuda:1", "mps") means here. Raises ModelError."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f'engine.device = "{wanted}" but this torch ({torch.__version__}) finds no CUDA device; use "auto"')
    if wanted == "mps" and not torch.backends.mps.is_available():
        raise ModelError('engine.device = "mps" but this machine has no Metal device; use "auto"')
    return torch.device(wanted)


def usable_cores() -> int:
    """Physical cores that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))


def _fetch_starter(path: ModelPath, home: Home, report: Report) -> ModelPath:
    if path.kind != "starter":
        return path
    return ModelPath("starter", starter_folder(home.models_dir, report), path.title)


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    available: int = psutil.virtual_memory().available
    return available


def _load_weights(
    path: ModelPath, section: ModelSection, device: torch.device
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Translate every way in which a model folder can be unusable into ModelError."""
    # bitsandbytes says for every layer of every token that it casts to float16: that would be all there is in the log.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": section.trust_remote_code}
    where: Path = path.path
    if path.kind == "gguf":
        where, options["gguf_file"] = path.path.parent, path.path.name
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, **options)
        model = AutoModelForCausalLM.from_pretrained(where, **options, **_weight_options(path, section, device))
        if section.quant == "none":
            torch.nn.Module.to(model, device)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, json.JSONDecodeError) as error:
        raise ModelError(f"{path.title} cannot be loaded from {path.path}: {error}") from error
    model.eval()
    return model, tokenizer


def _weight_options(path: ModelPath, section: ModelSection, device: torch.device) -> dict[str, Any]:
    options: dict[str, Any] = {"dtype": _DTYPES.get(section.dtype, "auto")}
    if path.kind != "gguf":
        # A pickle can run any program, also one that appeared after the files were looked at.
        options["use_safetensors"] = True
    if path.kind == "gguf":
        if section.quant != "none":
            raise ModelError(
                f"{path.title} is a GGUF file, which cannot be loaded with --quant {section.quant}; take --quant none"
            )
        options["quantization_config"] = GgufConfig(dequantize=True)
        options["dtype"] = _DTYPES.get(section.dtype, torch.bfloat16)
    elif section.quant == "4bit":
        compute = _DTYPES.get(section.dtype, torch.bfloat16)
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute
        )
    elif section.quant == "8bit":
        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    if section.quant != "none" or device.type == "cuda":
        # Tensor by tensor onto the card: a model that fits the card need not fit RAM first.
        options["device_map"] = {"": str(device)}
    return options


def _probe(model: PreTrainedModel, block_tokens: int) -> tuple[Layout | None, tuple[str, ...]]:
    """The layout, from two tokens through transformers' own cache; without one, a sentence says why."""
    try:
        cache = DynamicCache(config=model.config.get_text_config(decoder=True))
        with torch.inference_mode():
            model(torch.zeros((1, 2), dtype=torch.long, device=model.device), cache=cache, use_cache=True, logits_to_keep=1)
        return read_layout(cache, block_tokens), ()
    except UnknownKind as error:
        return None, (str(error),)
    except AssertionError as error:
        # bitsandbytes in 4 bits on a CPU, of a matrix whose height it cannot pack.
        raise ModelError(
            f"{type(model).__name__} cannot run on this device in this form: {error}; take --quant 8bit or --quant none"
        ) from error
    except UNFIT as error:
        return None, (f"{type(model).__name__} does not work with transformers' own cache ({error}), so it runs without one",)


def _choose_attention(model: PreTrainedModel, engine: EngineSection) -> str:
    default: str = model.config._attn_implementation
    if engine.attention == "default" or not attention.supports(model):
        return default
    attention.register()
    return attention.ATTENTION


def _attention_notes(model: PreTrainedModel, engine: EngineSection, layout: Layout | None) -> tuple[str, ...]:
    attends = layout is not None and bool(layout.slabs)
    if engine.attention == "default" or attention.supports(model) or not attends:
        return ()
    default = model.config._attn_implementation
    return (f"{type(model).__name__} allows no other attention than transformers' own ({default}), which is slower on a CPU",)


def _context_limit(model: PreTrainedModel) -> int:
    config = model.config.get_text_config(decoder=True)
    return int(getattr(config, "max_position_embeddings", None) or DEFAULT_CONTEXT)


def _notes(path: ModelPath, model: PreTrainedModel) -> tuple[str, ...]:
    if path.kind == "starter":
        return advice()
    if path.kind == "gguf":
        dtype = str(model.dtype).removeprefix("torch.")
        return (f"{path.title} is a GGUF file; its weights were unpacked to {dtype} and take their full size in memory",)
    return ()


def _stamp(file: Path) -> tuple[int, int, int, int]:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
