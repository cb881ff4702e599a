"""The few characters that are drawn rather than written, in two sets: box drawing, and plain ASCII.

Terminals without UTF-8 (or with CJK widths for box drawing) get the second set. Meaning never hangs on a glyph alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set; every character is one cell wide."""

    ascii: bool
    bar_full: str
    bar_empty: str
    rule: str
    cross: str
    column: str
    quote: str
    cursor: str
    ellipsis: str


DRAWN = Glyphs(False, "█", "░", "─", "┼", "│", "▎", "▌", "…")
PLAIN = Glyphs(True, "#", ".", "-", "+", "|", "|", ">", "~")


def choose_glyphs(environ: Mapping[str, str], encoding: str) -> Glyphs:
    """The set that this terminal shows: ASCII for TERM=linux, for an encoding other than UTF-8, or LOCALKV_ASCII=1."""
    if environ.get("LOCALKV_ASCII", "") not in {"", "0"}:
        return PLAIN
    if environ.get("TERM") == "linux":
        return PLAIN
    return DRAWN if encoding.lower().replace("-", "") == "utf8" else PLAIN
