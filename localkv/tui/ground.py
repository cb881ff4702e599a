"""Containers that show nothing of themselves: one row of such a one is made, and stands for all of them.

For each frame Textual makes every row of every widget that reaches into what changed. While an answer is written these were
240 rows ten times a second, and 175 of them lay wholly under other widgets: the containers' [counted].

Invariant: all rows are alike. So these have neither border nor padding above or below, and nothing of their own to show.
"""

from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Ground(Widget):
    """Its topmost row, again and again."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows of `crop`."""
        return super().render_lines(Region(crop.x, 0, crop.width, min(crop.height, 1))) * crop.height


class Columns(Horizontal, Ground):
    """Widgets side by side."""


class Stack(Vertical, Ground):
    """Widgets below one another."""
