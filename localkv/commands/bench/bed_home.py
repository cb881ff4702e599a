"""A scratch home for benches. Torch-free."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localkv.paths import Home, find_home


@contextmanager
def scratch_home() -> Iterator[Home]:
    """A home of its own, with the user's models: the user's cache and conversations are not touched."""
    real = find_home()
    # Beside the real cache and not in the temporary directory, which may be in memory: reads must come from the disk.
    real.prepare()
    with tempfile.TemporaryDirectory(dir=real.cache_dir, prefix="bench-") as folder:
        base = Path(folder)
        home = Home(base / "config", base / "data", base / "cache", real.models_dir)
        home.prepare()
        yield home
