"""The command palette: all actions, found by a few of their characters, with their keys, and run by Enter.

It knows the table of actions and gives back the one that was chosen; running it is the screen's.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.widgets import Input, Static

from localkv.commands.actions import ACTIONS, OVER_THE_CHAT, PLACES, Action
from localkv.commands.keymap import Keymap
from localkv.tui.dialogs import Dialog
from localkv.tui.fuzzy import score
from localkv.tui.glyphs import Glyphs
from localkv.tui.keys import own, with_keys
from localkv.tui.rows import Row, row
from localkv.tui.rowsview import RowsView
from localkv.tui.theme import Palette as Colours

LEFT_OUT = ("composer", "text", "find", *OVER_THE_CHAT)
"""Places whose actions are movements of a cursor, or have something to act on only while a screen or row is open that closes this."""


_WHOLE, _BEGUN, _SCATTERED = 1000, 100, 100


def choices(query: str) -> list[Action]:
    """The actions that `query` fits, best first; all of them, in their order, for an empty one.

    What stops the answer is the last then: enter right after the palette is opened must not do that.
    """
    known = [action for action in ACTIONS if action.act and action.place not in LEFT_OUT and action.id != "palette"]
    if not query.strip():
        return sorted(known, key=lambda action: action.id == "cancel")
    scored = [(found, action) for action in known if (found := _fit(query, action)) is not None]
    return [action for _, action in sorted(scored, key=lambda pair: -pair[0])]


def describe(action: Action) -> str:
    """What it does, and where if that is not everywhere."""
    where = "" if action.place == "anywhere" else f"{PLACES[action.place]}: "
    text = where + action.help
    return text[0].upper() + text[1:]


def palette_rows(
    actions: Sequence[Action], at: int, keymap: Keymap, colours: Colours, glyphs: Glyphs, width: int
) -> list[Row]:
    """One row for each action: what it does, its slash command, its key; the one at `at` is marked."""
    keys = 1 + max([6, *(len(keymap.shown(action)) for action in actions)])
    names = 1 + max([8, *(len(action.slash) + 1 for action in actions)])
    room = max(8, width - keys - names - 2)
    rows = []
    for index, action in enumerate(actions):
        text = describe(action)
        if cell_len(text) > room:
            text = set_cell_size(text, room - 1).rstrip() + glyphs.ellipsis
        chosen = index == at
        rows.append(
            row(
                [
                    (f"{glyphs.cursor} " if chosen else "  ", colours.user),
                    (set_cell_size(text, room), colours.bold if chosen else colours.text),
                    ((f"/{action.slash}" if action.slash else "").rjust(names), colours.muted),
                    (keymap.shown(action).rjust(keys), colours.user),
                ]
            )
        )
    return rows


def _fit(query: str, action: Action) -> int | None:
    """How well `query` fits: its names whole or begun, else any of its words, else characters of all of them."""
    names = [f"/{action.slash}", action.slash, action.id] if action.slash else [action.id]
    word = query.strip().casefold()
    if word in names:
        return _WHOLE
    found = [fit for text in (*names, action.help) if (fit := score(query, text)) is not None]
    if found:
        return max(found) + (_BEGUN if word and any(name.startswith(word) for name in names) else 0)
    fit = score(query, f"{describe(action)} {' '.join(names)} {action.label}")
    return None if fit is None else fit - _SCATTERED


class Palette(Dialog[Action | None]):
    """Asks what to do; gives the action, or None."""

    DEFAULT_CSS = """
    Palette { align: center top; }
    Palette > Vertical { width: 84; height: 20; max-height: 90%; margin: 2 0 0 0; }
    Palette Input { margin: 0; }
    Palette RowsView { height: 1fr; margin: 1 0 0 0; scrollbar-gutter: stable; }
    """
    BINDINGS: ClassVar[list[BindingType]] = own(
        ("cancel", "leave"), ("palette", "leave"), "dialog.up", "dialog.down", "dialog.page.up", "dialog.page.down"
    )

    def __init__(self, colours: Colours, glyphs: Glyphs) -> None:
        super().__init__()
        self._colours = colours
        self._glyphs = glyphs
        self._found = choices("")
        self._at = 0
        self._view = RowsView(id="choices")

    def compose(self) -> ComposeResult:
        """A line to write in, what fits it, a hint."""
        field = Input(placeholder="what to do", id="query")
        field.cursor_blink = False
        with Vertical():
            yield field
            yield self._view
            hint = with_keys("enter does it   [dialog.up] and [dialog.down] choose   [cancel] closes", self.keymap)
            yield Static(hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        """All actions at first."""
        super().on_mount()
        self._draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """What fits now."""
        event.stop()
        self._found = choices(event.value)
        self._at = 0
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Do the marked one."""
        event.stop()
        if self._found:
            self.dismiss(self._found[self._at])

    def on_click(self, event: Click) -> None:
        """Do the one under the pointer."""
        offset = event.get_content_offset(self._view)
        at = -1 if offset is None else offset.y + round(self._view.scroll_y)
        if 0 <= at < len(self._found):
            self.dismiss(self._found[at])

    def action_move(self, step: int) -> None:
        """Mark another one."""
        self._at = max(0, min(self._at + step, len(self._found) - 1))
        self._draw()

    def action_page(self, step: int) -> None:
        """Ten actions up or down."""
        self.action_move(step * 10)

    def action_leave(self) -> None:
        """Nothing is done."""
        self.dismiss(None)

    def _draw(self) -> None:
        found, at = tuple(self._found), self._at
        self._view.draw((found, at), lambda width: palette_rows(found, at, self.keymap, self._colours, self._glyphs, width))
        height = self._view.scrollable_content_region.height
        top = round(self._view.scroll_y)
        if height and not top <= at < top + height:
            self._view.scroll_to(y=at if at < top else at - height + 1, animate=False, force=True)
