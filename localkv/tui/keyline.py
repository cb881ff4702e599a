"""The last row: which keys do what where the focus is. One widget; Textual's Footer is one for each key, made anew at every
change of focus.

What is too wide for the row is left out from the end, but never esc and F1: the way out, and what shows all. A click on a key
does what the key does.
"""

from collections.abc import Callable, Mapping

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

ALWAYS = frozenset(("cancel", "help"))
"""Actions that give way to no other."""


class KeyLine(Widget):
    """Keys and their words."""

    DEFAULT_CSS = """
    KeyLine { height: 1; dock: bottom; background: $background; }
    """

    def __init__(self, palette: Palette, words: Callable[[], Mapping[str, str]] = dict) -> None:
        """`words`: by id of an action, what it is called at the moment; an empty word leaves it out."""
        super().__init__()
        self._palette = palette
        self._words = words
        self._drawn: Mapping[str, str] = {}

    def on_mount(self) -> None:
        """Follow the focus."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        del screen
        self.refresh()

    def renew(self) -> None:
        """Draw the row again if keys are called something else now."""
        if self._words() != self._drawn:
            self.refresh()

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The row."""
        del y
        self._drawn = dict(self._words())
        spans: list[Span] = []
        for _, binding in self._shown():
            word = self._word(binding)
            spans += [(f" {binding.key_display}", self._palette.user), (f" {word}", self._palette.muted)]
        return row(spans).strip.crop_extend(0, self.size.width, None).apply_style(self.rich_style)

    async def on_click(self, event: Click) -> None:
        """Do what the key under the pointer does."""
        left = 0
        for node, binding in self._shown():
            left += self._width(binding)
            if event.x < left:
                await self.app.run_action(binding.action, node)
                return

    def _shown(self) -> Shown:
        """The bindings that fit."""
        known: Shown = []
        for active in self.screen.active_bindings.values():
            named = active.binding.show and active.enabled and self._word(active.binding)
            if named and active.binding.action not in {binding.action for _, binding in known}:
                known.append((active.node, active.binding))
        room = self.size.width - sum(self._width(binding) for _, binding in known if binding.id in ALWAYS)
        shown: Shown = []
        for node, binding in known:
            if binding.id not in ALWAYS:
                room -= self._width(binding)
            if binding.id in ALWAYS or room >= 0:
                shown.append((node, binding))
        return shown

    def _word(self, binding: Binding) -> str:
        return self._drawn.get(binding.id or "", binding.description)

    def _width(self, binding: Binding) -> int:
        return cell_len(binding.key_display or binding.key) + cell_len(self._word(binding)) + 2
