"""Identity: what KV depends on. Fingerprint: what decides its last bits besides that.

A model's name or path is not an identity. Weights count by content: blake2b of the files that the loader reads, in no order
and under no name, so that moving or renaming a folder changes nothing and one changed weight changes everything. Reading
gigabytes at each start would make a person wait, so digests are kept; one is trusted only while device, inode, size, mtime_ns
and ctime_ns are as they were (`cp -p` over a file keeps size, mtime and inode but not ctime).

Knows files; knows nothing of models in memory. Thread: the engine's.
"""

import contextlib
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from localkv.files import Files, replace_durably
from localkv.kv.layout import FORMAT_VERSION, Layout

_CHUNK = 8 << 20
_STRANGERS = "transformers_modules."
"""The package under which transformers imports the code that models bring along."""
_VOLATILE_CONFIG = ("_name_or_path", "_model_name_or_path", "transformers_version", "architectures", "use_cache")
"""Keys of config.json that say nothing about the arithmetic."""

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json",
    "special_tokens_map.json", "tekken.json", "spiece.model",
)  # fmt: skip


class Trust(msgspec.Struct, frozen=True):
    """A file as it was when its digest was computed."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    digest: str


class FileDigests:
    """Content digests of weight files, computed once and kept in one small JSON file."""

    def __init__(self, cache_file: Path, files: Files) -> None:
        self._cache_file = cache_file
        self._files = files
        self._known: dict[str, Trust] = _load(cache_file)

    def of(self, paths: Sequence[Path], progress: Callable[[int, int], None] | None = None) -> list[str]:
        """The digest of each path, in the order given. Two threads read; `progress` gets bytes done and total."""
        total = sum(path.stat().st_size for path in paths)
        done = [0] * len(paths)

        def one(i: int) -> str:
            def advanced(n: int) -> None:
                done[i] = n
                if progress is not None:
                    progress(sum(done), total)

            return self._digest(paths[i], advanced)

        with ThreadPoolExecutor(2) as pool:
            digests = list(pool.map(one, range(len(paths))))
        self._keep()
        return digests

    def _digest(self, path: Path, advanced: Callable[[int], None]) -> str:
        status = path.stat()
        key = str(path.resolve())
        known = self._known.get(key)
        now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if known is not None and (known.device, known.inode, known.size, known.mtime_ns, known.ctime_ns) == now:
            advanced(status.st_size)
            return known.digest
        digest = hash_file(path, advanced)
        self._known[key] = Trust(*now, digest)
        return digest

    def _keep(self) -> None:
        with contextlib.suppress(OSError):  # only a saving of time is lost: the next start computes the digests again
            replace_durably(self._files, self._cache_file, msgspec.json.encode(self._known))


def hash_file(path: Path, advanced: Callable[[int], None]) -> str:
    """blake2b of a file's bytes. Some 1.3 GB/s; releases the GIL."""
    digest = hashlib.blake2b(digest_size=20)
    done = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            advanced(done)
    return digest.hexdigest()


def identity_of(
    weights: Sequence[str],
    model: Path,
    config: dict[str, Any],
    held_as: Sequence[str],
    layout: Layout | None,
    code: Sequence[str] = (),
) -> str:
    """The identity: hex digest of all that KV depends on.

    `weights` are content digests, `held_as` says how they are held in memory (dtype, quantisation), `config` is the model's
    config as a dict, `code` digests of the code that the model brought along. The chat template is no part of it: it changes
    what will be fed, not the KV of what was fed.
    """
    parts = {
        "format": FORMAT_VERSION,
        "weights": sorted(weights),
        "config": {key: value for key, value in config.items() if key not in _VOLATILE_CONFIG},
        "tokenizer": _tokenizer_digests(model),
        "held_as": list(held_as),
        "layout": repr(layout),
    }
    if code:
        parts["code"] = list(code)
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def digests_of_code(model: object) -> list[str]:
    """Of the Python files that `model` was made by, if they are not transformers' own: trust in them is no trust in their bytes."""
    module = sys.modules[type(model).__module__]
    if not module.__name__.startswith(_STRANGERS) or module.__file__ is None:
        return []
    return [f"{path.name} {hash_file(path, lambda _: None)}" for path in sorted(Path(module.__file__).parent.glob("*.py"))]


def _tokenizer_digests(model: Path) -> dict[str, str]:
    if model.is_file():
        return {}
    present = (model / name for name in TOKENIZER_FILES)
    return {path.name: hash_file(path, lambda _: None) for path in present if path.exists()}


def fingerprint_of(parts: dict[str, str]) -> str:
    """A short hex digest of versions, device, threads, attention path and prefill schedule."""
    known = {**parts, "machine": platform.machine(), "python_endianness": sys.byteorder}
    return hashlib.blake2b(json.dumps(known, sort_keys=True).encode(), digest_size=8).hexdigest()


def _load(cache_file: Path) -> dict[str, Trust]:
    try:
        return msgspec.json.decode(cache_file.read_bytes(), type=dict[str, Trust])
    except (OSError, msgspec.DecodeError):
        # Missing or damaged: nothing is trusted, everything is hashed again.
        return {}
