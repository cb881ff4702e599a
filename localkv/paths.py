"""Where localkv keeps its things: configuration, data, cache, models, runtime socket.

Knows no file formats. `LOCALKV_HOME` moves everything below one folder. Directories are 0700 whatever the umask, because
a KV cache contains the conversation. Conversations live in the data directory; the cache directory may be deleted at
any time and costs only time.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from localkv.errors import PathError

PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600


@dataclass(frozen=True, slots=True)
class Home:
    """The four directories of one installation, and the places inside them."""

    config_dir: Path
    data_dir: Path
    cache_dir: Path
    models_dir: Path

    @property
    def config_file(self) -> Path:
        return self.config_dir / "config.toml"

    @property
    def database(self) -> Path:
        """The conversations: precious."""
        return self.data_dir / "conversations.db"

    @property
    def backups(self) -> Path:
        return self.data_dir / "backups"

    @property
    def store(self) -> Path:
        """The records on SSD, one folder per identity: disposable."""
        return self.cache_dir / "store"

    @property
    def digests(self) -> Path:
        """Cached content digests of weight files."""
        return self.cache_dir / "digests.json"

    @property
    def selftests(self) -> Path:
        return self.cache_dir / "selftests.json"

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def event_log(self) -> Path:
        return self.logs / "events.jsonl"

    @property
    def engine_log(self) -> Path:
        """stdout and stderr of the engine process."""
        return self.logs / "engine.log"

    @property
    def user_themes(self) -> Path:
        return self.config_dir / "themes"

    @property
    def engine_lock(self) -> Path:
        return self.cache_dir / "engine.lock"

    @property
    def engine_key(self) -> Path:
        """The secret that a face must know to talk to the engine."""
        return self.cache_dir / "engine.key"

    @property
    def socket(self) -> str:
        """Address of the engine's local socket.

        Unix socket paths are limited to about 100 bytes, so it lies in the runtime or temporary directory under a digest
        of the cache directory, inside a folder of mode 0700.
        """
        digest = hashlib.blake2b(os.fsencode(self.cache_dir), digest_size=8).hexdigest()
        if os.name == "nt":
            return rf"\\.\pipe\localkv-{digest}"
        runtime = os.environ.get("XDG_RUNTIME_DIR") or ""
        base = Path(runtime) if runtime and os.access(runtime, os.W_OK) else Path(tempfile.gettempdir())
        return str(base / f"localkv-{os.getuid()}" / f"{digest}.sock")

    def prepare(self) -> None:
        """Make the directories, each 0700. Raises PathError for one that is not ours or open to others."""
        for directory in (self.config_dir, self.data_dir, self.cache_dir, self.models_dir, self.logs):
            private_dir(directory)
        if os.name != "nt":
            private_dir(Path(self.socket).parent)


def find_home() -> Home:
    """The directories in force: below `LOCALKV_HOME` if set, else the platform's own. Raises PathError."""
    root = os.environ.get("LOCALKV_HOME")
    if root:
        base = expanded(root)
        if root.startswith("~") and str(base).startswith("~"):  # else each folder would have its own conversations
            raise PathError(f"there is no home folder for LOCALKV_HOME={root}; write the whole path")
        base = base.absolute()
        return Home(base / "config", base / "data", base / "cache", base / "models")
    dirs = platformdirs.PlatformDirs("localkv", appauthor=False)
    data = Path(dirs.user_data_dir)
    return Home(Path(dirs.user_config_dir), data, Path(dirs.user_cache_dir), data / "models")


def expanded(path: str | Path) -> Path:
    """`path` with "~" as the home folder that it means; as it is written, as in a shell, if there is no such user."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, ValueError):
        return Path(path)


def private_dir(directory: Path) -> None:
    """Make `directory` with mode 0700; refuse one that belongs to others or that others may write to."""
    try:
        _make(directory)
        status = directory.stat()
    except OSError as error:
        raise PathError(f"cannot use the directory {directory}: {error.strerror}; make it, or set LOCALKV_HOME") from error
    if os.name == "nt":
        return
    if status.st_uid != os.getuid():
        raise PathError(f"the directory {directory} belongs to another user (uid {status.st_uid}); set LOCALKV_HOME")
    if status.st_mode & 0o022:
        raise PathError(f"others may write to {directory} (mode {status.st_mode & 0o777:o}); run: chmod 700 {directory}")
    if status.st_mode & 0o077:
        directory.chmod(PRIVATE_DIR)


def _make(directory: Path) -> None:
    """`directory` and what is missing above it, each 0700: mkdir gives parents the mode of the umask."""
    for place in reversed((directory, *directory.parents)):
        if not place.is_dir():
            place.mkdir(mode=PRIVATE_DIR, exist_ok=True)


def has_file(path: Path) -> bool:
    """Whether a file is there. What cannot be looked at, such as a name that is too long, is not there."""
    return os.path.isfile(path)  # noqa: PTH113  Path.is_file raises for some of these


def has_folder(path: Path) -> bool:
    """Whether a folder is there. What cannot be looked at, such as a name that is too long, is not there."""
    return os.path.isdir(path)  # noqa: PTH112  Path.is_dir raises for some of these


def resource_dir(name: str) -> Path:
    """The folder `name` ("themes" or "sample_configs") that ships with localkv: in the wheel, else in the source tree."""
    package = Path(__file__).parent
    for candidate in (package / f"_{name}", package.parent / name):
        if candidate.is_dir():
            return candidate
    raise PathError(f"the folder {name} that belongs to localkv is missing beside {package}; install localkv again")
