"""The last gate before the terminal: no row of any widget holds anything that a terminal obeys.

What is shown of conversations is spelled out long before (`clean`). What can be edited is not: there each character keeps its
place and its value, because it is sent, stored and copied as it is. So the characters that steer are taken out of what is drawn,
in the composer, in fields and dialogs, and wherever somebody forgets. Pure; Textual asks once for each new row.
"""

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from localkv.chat.visible import struck

SIGN = "\ufffd"


class Guard(LineFilter):
    """Rows as wide as they were, in which nothing steers."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments, with other text where need be."""
        del background
        return [_harmless(segment) for segment in segments]


def _harmless(segment: Segment) -> Segment:
    text = struck(segment.text, _sign)
    return segment if text is segment.text else Segment(text, segment.style, segment.control)


def _sign(character: str) -> str:
    return SIGN * cell_len(character)  # most take no cell: there is no room for a sign
