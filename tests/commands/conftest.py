"""The screen's world for commands that it shares with plain mode."""

from tests.tui.conftest import world  # noqa: F401  a fixture
