"""`bench exact`: the exactness matrix on this machine: every architecture, fp32 and bf16, every way to leave and come back."""

import tempfile
from pathlib import Path
from typing import Any

from localkv.commands.bench import Say
from localkv.commands.bench.matrix import DTYPES, measure_matrix
from localkv.commands.bench.tiny import ARCHITECTURES
from localkv.paths import find_home


def measure(say: Say) -> list[dict[str, Any]]:
    """One row per architecture and dtype; a cell per column. See `matrix` for what cells say."""
    real = find_home()
    # Beside the real cache and not in the temporary directory, which may be in memory.
    real.prepare()
    with tempfile.TemporaryDirectory(dir=real.cache_dir, prefix="bench-") as folder:
        return measure_matrix(ARCHITECTURES, DTYPES, Path(folder), say)
