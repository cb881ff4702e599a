"""What the placement tests say at the end of a run."""

from collections import Counter

import pytest

CASES = pytest.StashKey[Counter[str]]()
"""Lives with a fault, by fault."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many cases of fault injection ran."""
    cases = config.stash.get(CASES, Counter())
    if cases:
        said = ", ".join(f"{name} {n:,}" for name, n in sorted(cases.items()))
        terminalreporter.write_line(f"lives of an engine with a fault in one call: {sum(cases.values()):,} ({said})")
