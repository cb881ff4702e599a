"""Strangers' text as the screen shows it: harmless, with tabs of a fixed width, so that it can be cleaned piece by piece.

Knows no widgets. What is harmful, chat/visible knows.
"""

from localkv.chat.visible import one_line, visible

TAB = "    "

__all__ = ["TAB", "harmless", "one_line"]


def harmless(text: str) -> str:
    """`text` with nothing in it that a terminal obeys, and no tabs."""
    return visible(text).replace("\t", TAB)
