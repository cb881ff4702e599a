"""The last row: which keys do what where the focus is. One widget; Textual's Footer is one for each key, made anew at every
change of focus.

What is too wide for the row is left out from the end; F1 shows all. A click on a key does what the key does.
"""

from rich.cells import cell_len
from textual.binding import Binding
from textual.dom import DOMNode
from textual.events import Click
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from localkv.tui.rows import Span, row
from localkv.tui.theme import Palette

Shown = list[tuple[DOMNode, Binding]]


class KeyLine(Widget):
    """Keys and their words."""

    DEFAULT_CSS = """
    KeyLine { height: 1; dock: bottom; background: $background; }
    """

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette

    def on_mount(self) -> None:
        """Follow the focus."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        del screen
        self.refresh()

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The row."""
        del y
        spans: list[Span] = []
        for _, binding in self._shown():
            spans += [(f" {binding.key_display}", self._palette.user), (f" {binding.description}", self._palette.muted)]
        return row(spans).strip.crop_extend(0, self.size.width, None).apply_style(self.rich_style)

    async def on_click(self, event: Click) -> None:
        """Do what the key under the pointer does."""
        left = 0
        for node, binding in self._shown():
            left += _width(binding)
            if event.x < left:
                await self.app.run_action(binding.action, node)
                return

    def _shown(self) -> Shown:
        """The bindings that fit."""
        shown: Shown = []
        room = self.size.width
        for active in self.screen.active_bindings.values():
            if active.binding.show and active.enabled:
                if active.binding.action in {binding.action for _, binding in shown}:
                    continue
                room -= _width(active.binding)
                if room < 0:
                    break
                shown.append((active.node, active.binding))
        return shown


def _width(binding: Binding) -> int:
    return cell_len(binding.key_display or binding.key) + cell_len(binding.description) + 2
