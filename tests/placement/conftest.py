"""Fixtures of the placement tests."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

CASES = pytest.StashKey[Counter[str]]()
"""Lives with a fault, by fault."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many cases of fault injection ran."""
    cases = config.stash.get(CASES, Counter())
    if cases:
        said = ", ".join(f"{name} {n:,}" for name, n in sorted(cases.items()))
        terminalreporter.write_line(f"lives of an engine with a fault in one call: {sum(cases.values()):,} ({said})")


@pytest.fixture(scope="module")
def fast_module_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory where there is one: thousands of syncs are then free, and no test asks what they cost."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        yield tmp_path_factory.mktemp("tiers")
        return
    made = Path(tempfile.mkdtemp(prefix="localkv-test-", dir=shm))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def fast_dir(fast_module_dir: Path) -> Path:
    """An empty directory of that kind for one test."""
    return Path(tempfile.mkdtemp(dir=fast_module_dir))
