"""Models of the Hugging Face hub: fetch into the user's own cache, list what is there, remove it.

The user's cache and login are used, never copied; only safetensors and small text files are fetched. Connections are opened in
`pull` alone; beside it only pip opens some, for the starter (models/starter.py). Torch-free. Thread: any; `pull` calls back from several.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localkv.errors import FetchFailed, ModelError, ModelGated, ModelMissing
from localkv.models.reference import STARTER, is_path, locate, near_names
from localkv.models.starter import GGUF_NAME, ReportProgress
from localkv.paths import has_file, has_folder
from localkv.units import format_bytes

WANTED = ("*.safetensors", "*.json", "*.model", "*.jinja", "*.txt", "*.tiktoken")
CODE = ("*.py",)
UNWANTED = ("*/*", "consolidated*")
"""Sub-folders hold the same weights for other programs; Mistral's repositories hold them twice."""

SPARE_BYTES = 1 << 30
"""Left free on the disk after a download."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine that can be chatted with. `complete` is False after an interrupted download."""

    name: str
    source: Literal["starter", "hub"]
    path: Path
    n_bytes: int
    complete: bool


def pull(name: str, progress: ReportProgress, *, with_code: bool = False) -> Path:
    """The folder of the hub model `name`, fetched as far as it is missing.

    `with_code` brings Python files along, which run only with model.trust_remote_code. Raises ModelGated, ModelMissing,
    FetchFailed (running it again continues), ModelError if the repository has no safetensors.
    """
    from huggingface_hub import constants

    if name == STARTER or is_path(name):
        raise ModelMissing(f'"{name}" is no hub id; pull fetches ids such as Qwen/Qwen3-4B')
    if constants.HF_HUB_OFFLINE:
        return _offline(name)
    patterns = [*WANTED, *(CODE if with_code else ())]
    arguments = {"allow_patterns": patterns, "ignore_patterns": list(UNWANTED), "cache_dir": constants.HF_HUB_CACHE}
    files = _translated(name, lambda: _snapshot(name, dry_run=True, **arguments))
    if not any(file.filename.endswith(".safetensors") for file in files):
        raise ModelError(f"{name} has no safetensors at its top level, so localkv cannot load it; choose another repository")
    missing = sum(file.file_size or 0 for file in files if file.will_download)
    require_room(name, missing, Path(constants.HF_HUB_CACHE))
    progress(name, 0, missing)
    folder = _translated(name, lambda: _snapshot(name, tqdm_class=_bar_class(name, missing, progress), **arguments))
    progress(name, missing, missing)
    return Path(folder)


def list_local(models_dir: Path) -> list[LocalModel]:
    """The starter (if fetched) and every language model in the user's Hugging Face cache, by name."""
    models = []
    starter = models_dir / STARTER
    if starter.is_dir():
        complete = (starter / GGUF_NAME).is_file() or (starter / "config.json").is_file()
        models.append(LocalModel(STARTER, "starter", starter, _folder_bytes(starter), complete))
    for repository in _repositories():
        model = _language_model(repository, models_dir)
        if model is not None:
            models.append(model)
    return models


def remove(name: str, models_dir: Path) -> int:
    """Delete the starter or a hub model from the cache; the bytes that became free. Raises ModelMissing, ModelError."""
    if name == STARTER:
        return _remove_starter(models_dir / STARTER)
    if is_path(name):
        raise ModelError(f"{name} was not fetched by localkv, so it does not delete it; delete it yourself")
    repositories = _repositories()
    revisions = [rev.commit_hash for repo in repositories if repo.repo_id == name for rev in repo.revisions]
    if not revisions:
        near = near_names(name, [repo.repo_id for repo in repositories])
        raise ModelMissing(f"the model {name} is not on this machine" + (f"; did you mean {near[0]}?" if near else ""))
    from huggingface_hub import constants, scan_cache_dir

    strategy = scan_cache_dir(constants.HF_HUB_CACHE).delete_revisions(*revisions)
    try:
        strategy.execute()
    except OSError as error:
        raise ModelError(f"{name} could not be deleted: {error.strerror or error}") from error
    places = (*strategy.repos, *strategy.snapshots, *strategy.refs, *strategy.blobs)
    left = sorted(str(path) for path in places if has_file(path) or has_folder(path))
    if left:  # what it may not delete it passes over
        raise ModelError(f"{name} could not be deleted: {left[0]} is still there; mend its permissions, then run this again")
    return int(strategy.expected_freed_size)


def require_room(name: str, n_bytes: int, directory: Path) -> None:
    """Raise FetchFailed with both numbers if the disk of `directory` cannot take `n_bytes` more."""
    existing = next((folder for folder in (directory, *directory.parents) if folder.is_dir()), Path("/"))
    free = shutil.disk_usage(existing).free
    if n_bytes + SPARE_BYTES > free:
        raise FetchFailed(
            f"{name} needs {format_bytes(n_bytes)} more on the disk of {directory} and {format_bytes(free)} are free "
            f"({format_bytes(SPARE_BYTES)} are kept free); make room, or set HF_HUB_CACHE to a folder on a larger disk"
        )


def _snapshot(name: str, **arguments: Any) -> Any:
    import huggingface_hub

    return huggingface_hub.snapshot_download(name, **arguments)


def _offline(name: str) -> Path:
    try:
        return locate(name, Path()).path
    except ModelMissing as error:
        raise FetchFailed(f"HF_HUB_OFFLINE is set, so {name} is not fetched; unset it and run it again") from error


def _translated(name: str, call: Callable[[], Any]) -> Any:
    """What `call` returns; the hub's errors become ours.

    Connection errors are those of whichever HTTP library this version of huggingface_hub brings (httpx, later httpx2).
    """
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT  # the public one, or the mirror that this person uses
    unreachable = getattr(errors, "HTTPError", errors.HfHubHTTPError)
    again = f"run it again to continue:\n  localkv models pull {name}"
    try:
        return call()
    except errors.GatedRepoError as error:
        raise ModelGated(
            f"{name} wants its terms accepted first: open {hub}/{name}, accept them, run `hf auth login`, then {again}"
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
        raise ModelMissing(
            f"the hub has no model {name}, or it is private and this login may not see it; "
            f"look at {hub}/models?search={name.rsplit('/', 1)[-1]} or run `hf auth login`"
        ) from error
    except (errors.LocalEntryNotFoundError, errors.IncompleteSnapshotError, errors.DryRunError, unreachable) as error:
        raise FetchFailed(
            f"{name} was not fetched completely, because the hub cannot be reached ({_first_line(error)}); {again}"
        ) from error
    except OSError as error:
        raise FetchFailed(f"{name} was not fetched completely ({_first_line(error)}); {again}") from error


def _first_line(error: BaseException) -> str:
    cause = error.__cause__ or error
    text = str(cause).strip()
    return text.splitlines()[0] if text else type(cause).__name__


def _bar_class(name: str, total: int, progress: ReportProgress) -> type:
    """A progress bar for huggingface_hub that draws nothing and reports bytes.

    It makes two bars of bytes, what came in and what was written; the larger one counts, so that neither files without
    deduplication nor those with it stand still.
    """
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]  # a module of the same name hides the class

    class Reporting(tqdm):
        most = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]  # tqdm has no types
            self.counts_bytes = kwargs.get("unit") == "B"
            self.seen = 0.0

        def update(self, n: float | None = 1) -> None:
            self.seen += n or 0
            if self.counts_bytes:
                Reporting.most = max(Reporting.most, min(int(self.seen), total))
                progress(name, Reporting.most, total)

    return Reporting


def _repositories() -> list[Any]:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return []
    return sorted((repo for repo in cache.repos if repo.repo_type == "model"), key=lambda repo: str(repo.repo_id))


def _language_model(repository: Any, models_dir: Path) -> LocalModel | None:
    """The repository as a LocalModel if its newest config.json describes a causal language model."""
    newest = max(repository.revisions, key=lambda revision: revision.last_modified, default=None)
    if newest is None or not looks_causal(newest.snapshot_path / "config.json"):
        return None
    try:
        path = locate(repository.repo_id, models_dir).path
        complete = True
    except ModelError:
        path, complete = newest.snapshot_path, False
    return LocalModel(repository.repo_id, "hub", path, repository.size_on_disk, complete)


def looks_causal(config_file: Path) -> bool:
    """True if config.json names an architecture that generates text from text."""
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
        names = [str(name) for name in config.get("architectures") or ()]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False
    multimodal = "text_config" in config
    return any(
        name.endswith(("ForCausalLM", "LMHeadModel")) or (multimodal and "ConditionalGeneration" in name) for name in names
    )


def _remove_starter(folder: Path) -> int:
    if not folder.is_dir():
        raise ModelMissing("the starter model is not on this machine")
    linked = folder.is_symlink()  # what a link leads to is not localkv's: only the link goes
    n_bytes = 0 if linked else _folder_bytes(folder)
    try:
        folder.unlink() if linked else shutil.rmtree(folder)
    except OSError as error:
        raise ModelError(f"{folder} could not be deleted: {error.strerror or error}") from error
    return n_bytes


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
