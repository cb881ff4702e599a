"""The starter model as bf16 safetensors: fetched as a GGUF, dequantised once, kept in the models directory.

transformers cannot save a model that it loaded from GGUF in its default way; dequantised explicitly it can. Converting takes
about 15 s, so it is done once; the folder appears whole or not at all. Thread: any, before a model is loaded.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from localkv.errors import FetchFailed
from localkv.files import Files
from localkv.models import starter
from localkv.models.reference import STARTER

Report = Callable[[str, int, int], None]
"""Called with what is being done, and how much of how much is done (0 of 0: unknown)."""


def starter_folder(models_dir: Path, report: Report, files: Files | None = None) -> Path:
    """The folder of the starter model, fetched and converted if it is not there yet. Raises FetchFailed."""
    folder = models_dir / STARTER
    if (folder / "config.json").is_file():
        return folder
    gguf = starter.fetch(models_dir, report)
    report("converting the starter model (once, about 15 s)", 0, 0)
    building = folder / ".building"
    shutil.rmtree(building, ignore_errors=True)
    try:
        building.mkdir(mode=0o700, parents=True)
        _convert(gguf, building)
        _publish(building, folder, files or Files())
    except OSError as error:
        raise FetchFailed(f"the starter model could not be written to {folder}: {error}; free some space there") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def _convert(gguf: Path, target: Path) -> None:
    config = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=config, dtype=torch.bfloat16, local_files_only=True
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True).save_pretrained(target)


def _publish(building: Path, folder: Path, files: Files) -> None:
    """Move the files up, config.json last: its presence says that all others are whole."""
    parts = sorted(building.iterdir(), key=lambda path: path.name == "config.json")
    for part in parts:
        files.sync(part)
        files.rename(part, folder / part.name)
    files.sync_dir(folder)
