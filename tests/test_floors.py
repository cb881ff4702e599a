"""The floors: imports go down only, torch stays out of the face, and the first frame waits for nothing heavy."""

import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
}
HEAVY = ("torch", "transformers", "textual")

ENGINE_SIDE = (
    "localkv.runtime",
    "localkv.ahead",
    "localkv.opened",
    "localkv.admission",
    "localkv.answer",
    "localkv.status",
    "localkv.estimate",
    "localkv.engine",
    "localkv.kv.kinds",
    "localkv.chat.tokens",
    "localkv.chat.stream",
    "localkv.tiers.host",
    "localkv.tiers.transfer",
    "localkv.service.worker",
    "localkv.service.server",
    "localkv.service.work",
)
"""What lives in the engine process, and may know torch."""

DOORS = ("localkv", "localkv.__main__", "localkv.cli")
"""They import a face or the engine only when asked for; what they load at start is tested by loading them."""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_contract(contract: str) -> None:
    """The import graph keeps each contract of pyproject.toml, imports inside functions and for types included."""
    said = run("-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--contract", contract, "--no-cache")
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_module_has_a_side() -> None:
    """Each module is either under the contract that keeps torch out, or named as part of the engine process."""
    graph = grimp.build_graph("localkv", cache_dir=None)
    sides = (*CONTRACTS["torch-free"]["source_modules"], *ENGINE_SIDE)
    empty_packages = {module for module in graph.modules if graph.find_children(module)}
    homeless = [
        module
        for module in graph.modules - empty_packages - set(DOORS)
        if not any(module == side or module.startswith(f"{side}.") for side in sides)
    ]
    assert sorted(homeless) == []


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("localkv.cli", HEAVY),
        ("localkv.plain", HEAVY),
        ("localkv.service.client", HEAVY),
        ("localkv.service.worker", HEAVY),
        ("localkv.tui.app", ("torch", "transformers")),
    ],
)
def test_what_an_import_loads(module: str, forbidden: tuple[str, ...]) -> None:
    """A fresh interpreter that imports the module has not loaded what is heavy: imports count even where no graph sees them."""
    said = run("-c", f"import sys, {module}; print(*(name for name in {forbidden!r} if name in sys.modules))")
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip() == ""
