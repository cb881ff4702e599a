"""What a model's name stands for on this machine: the starter, a folder, a .gguf file, or a hub id in the user's cache.

Torch-free, reads only small files (config.json and the index of the weights), and never uses the network: fetching is
models/hub.py and models/starter.py. Thread: any.

Weights are taken from safetensors only, and from the very files that transformers will read: an identity that covers others would trust
the cache of another model. A folder whose index points outside of itself is refused: an index is data from strangers, and "../../" in it
would load whatever file of the user's it names.
"""

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal

from localkv.errors import ModelError, ModelMissing
from localkv.paths import expanded, has_file, has_folder

STARTER = "starter"
INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
ADAPTER_FILE = "adapter_config.json"

_HUB_ID = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?$")

Kind = Literal["folder", "gguf", "starter"]


@dataclass(frozen=True, slots=True)
class ModelPath:
    """Where a model's files are. Of the starter, `path` is its folder, which may not exist yet."""

    kind: Kind
    path: Path
    title: str


def locate(name: str, models_dir: Path) -> ModelPath:
    """The files of the model `name`.

    Raises ModelMissing if they are not all on this machine (its message holds the `localkv models pull` line to run), and
    ModelError for a folder that must not be loaded.
    """
    if name == STARTER:
        return ModelPath("starter", models_dir / STARTER, "SmolLM2-135M-Instruct (starter)")
    path = expanded(name)
    if name.lower().endswith(".gguf"):
        return _gguf(path)
    if has_folder(path):
        return _folder(path, path.name or name)
    if is_path(name):
        raise ModelMissing(f"there is no model folder {path}; give a folder with a config.json, a .gguf file or a hub id")
    if not _HUB_ID.match(name) or ".." in name:
        raise _no_name(name)
    return _cached(name)


def is_path(name: str) -> bool:
    """True if `name` is written like a place in the file system and cannot be a hub id."""
    return (
        name.lower().endswith(".gguf")
        or name.startswith(("/", "./", "../", "~", ".\\", "..\\"))
        or bool(PureWindowsPath(name).drive)
    )


def absolute_name(name: str) -> str:
    """`name` as it can be stored with a conversation: places in the file system made absolute, all else as it is."""
    path = expanded(name)
    return str(path.absolute()) if name != STARTER and (is_path(name) or has_folder(path)) else name


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The up to three of `known` that are written most like `name`, best first; the part after the slash counts too."""
    candidates = list(known)
    tails = {candidate.rsplit("/", 1)[-1].lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.rsplit("/", 1)[-1].lower(), list(tails), n=3, cutoff=0.6)
    return [tails[tail] for tail in close]


def cached_names() -> list[str]:
    """The ids of all model repositories in the user's Hugging Face cache, complete or not."""
    from huggingface_hub import constants

    root = Path(constants.HF_HUB_CACHE)
    if not root.is_dir():
        return []
    prefix = "models--"
    return sorted(entry.name[len(prefix) :].replace("--", "/") for entry in root.iterdir() if entry.name.startswith(prefix))


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, in loading order.

    As transformers chooses them: what config.json names, else the one file, else the files of the index. Raises ModelError if the
    index or config.json names files outside of `folder` or cannot be read, or if there are no safetensors.
    """
    named = _named_in_config(folder / "config.json")
    index = folder / (named if named.endswith(".json") else INDEX_FILE)
    indexed = _indexed_names(index) if has_file(index) or named.endswith(".json") else []
    if named.endswith(".safetensors"):
        return [folder / named]
    if not named and has_file(folder / SINGLE_FILE):
        return [folder / SINGLE_FILE]
    if indexed:
        return [folder / name for name in indexed]
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise ModelError(
            f"{folder} holds pickled weights only, which can run any program when they are read; "
            "localkv reads safetensors: convert the model, or take a repository that has them"
        )
    raise ModelError(f"{folder} holds neither {SINGLE_FILE} nor {INDEX_FILE}; it is not a complete model folder")


def _named_in_config(config: Path) -> str:
    """The file of weights, or its index, that config.json asks for; empty if it leaves that open or cannot be read."""
    try:
        document = json.loads(config.read_text(encoding="utf-8"))
        name = document.get("transformers_weights")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""  # who loads it says what is wrong with it
    if name is None:
        return ""
    if not isinstance(name, str) or not name.endswith((".safetensors", ".safetensors.index.json")):
        raise ModelError(f"{config} names {name!r} as its weights, which is neither safetensors nor an index of them")
    if not _stays_inside(name):
        raise ModelError(f"{config} points to {name!r}, outside of its own folder; the model is refused")
    return name


def _refuse_adapter(folder: Path) -> None:
    """With peft installed transformers would put the adapter on top, and no identity would know of it."""
    if has_file(folder / ADAPTER_FILE) and find_spec("peft") is not None:
        raise ModelError(
            f"{folder} holds an adapter ({ADAPTER_FILE}) beside the model, which localkv does not use; merge it into the weights, "
            "or move that file away"
        )


def _indexed_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index} cannot be read as an index of weights ({error}); fetch the model again") from error
    for name in names:
        if not isinstance(name, str) or not _stays_inside(name):
            raise ModelError(f"{index} points to {name!r}, outside of its own folder; the model is refused")
    return names


def _stays_inside(name: str) -> bool:
    """True if `name` is a relative path that goes nowhere but down, on any platform."""
    windows = PureWindowsPath(name)
    parts = (*PurePosixPath(name).parts, *windows.parts)
    return bool(name) and not name.startswith(("/", "\\")) and not windows.drive and ".." not in parts and "\0" not in name


def _no_name(name: str) -> ModelMissing:
    return ModelMissing(f'"{name}" names no model; write "starter", a hub id such as Qwen/Qwen3-4B, a folder or a .gguf file')


def _gguf(path: Path) -> ModelPath:
    if not has_file(path):
        raise ModelMissing(f"there is no file {path}; give the path of a .gguf file that exists")
    return ModelPath("gguf", path.absolute(), path.stem)


def _folder(path: Path, title: str) -> ModelPath:
    if not has_file(path / "config.json"):
        ggufs = sorted(path.glob("*.gguf"))
        hint = f"; it holds {ggufs[0].name}: give that file as the model" if ggufs else ""
        raise ModelMissing(f"the folder {path} has no config.json, so it is no model folder{hint}")
    _refuse_adapter(path)
    missing = [file.name for file in weight_files(path) if not has_file(file)]
    if missing:
        raise ModelMissing(f"the model folder {path} is not complete: {missing[0]} is missing ({len(missing)} in all)")
    return ModelPath("folder", path.absolute(), title)


def _cached(name: str) -> ModelPath:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    pull = f"localkv models pull {name}"
    try:
        config = try_to_load_from_cache(name, "config.json", cache_dir=constants.HF_HUB_CACHE)
    except HFValidationError as error:  # it knows more rules, such as a longest name
        raise _no_name(name) from error
    if not isinstance(config, str):
        near = near_names(name, [STARTER, *cached_names()])
        also = f"\nOn this machine there is: {', '.join(near)}" if near else ""
        raise ModelMissing(f"the model {name} is not on this machine. To fetch it, run:\n  {pull}{also}")
    folder = Path(config).parent
    try:
        return _folder(folder, name)
    except ModelMissing as error:
        raise ModelMissing(f"the model {name} is on this machine only in part. To complete it, run:\n  {pull}") from error
