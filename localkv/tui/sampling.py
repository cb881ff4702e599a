"""A dialog for how tokens are drawn in one conversation: a line for each setting, checked when it is to be kept.

It knows no store: it is given settings and gives settings back. Thread: the UI's.
"""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.events import DescendantFocus
from textual.widgets import Input, Static

from localkv.commands.sampling import LIMITS, changed_setting, show_setting
from localkv.config import SamplingSection
from localkv.errors import ConfigError
from localkv.tui.dialogs import Dialog
from localkv.tui.keys import own, with_keys


class Sampling(Dialog[SamplingSection | None]):
    """Asks for settings; gives them whole and valid, or None."""

    BINDINGS: ClassVar[list[BindingType]] = own(("cancel", "leave"), "dialog.up", "dialog.down")
    DEFAULT_CSS = """
    Sampling Horizontal { height: 1; }
    Sampling .name { width: 20; color: $muted; }
    Sampling Input { width: 1fr; margin: 0; }
    Sampling #limit { height: 2; color: $muted; }
    Sampling #limit.-wrong { color: $error; }
    Sampling .hint { padding: 0; }
    """

    def __init__(self, sampling: SamplingSection) -> None:
        super().__init__()
        self._sampling = sampling
        self._wrong: tuple[str, str] = ("", "")
        """The line that is wrong, and why."""

    def compose(self) -> ComposeResult:
        """A line for each setting, what the one with the focus takes, and what keys do."""
        with Vertical():
            yield Static("How this conversation samples", classes="question", markup=False)
            for key in LIMITS:
                with Horizontal():
                    yield Static(key, classes="name", markup=False)
                    yield Input(show_setting(self._sampling, key), id=key, compact=True)
            yield Static("", id="limit", markup=False)
            hint = with_keys("enter keeps them   [dialog.up] and [dialog.down] move   [cancel] leaves", self.keymap)
            yield Static(hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        """A blinking cursor would be a timer while nothing moves."""
        super().on_mount()
        for line in self.query(Input):
            line.cursor_blink = False

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Say what this setting takes, or what is wrong with it."""
        self._tell(event.widget.id or "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep all lines, if all are valid; else go to the first that is not and say why."""
        event.stop()
        chosen = self._sampling
        for line in self.query(Input):
            try:
                chosen = changed_setting(chosen, line.id or "", line.value, "line")
            except ConfigError as error:
                self._wrong = (line.id or "", str(error))
                line.focus()
                self._tell(line.id or "")
                return
        self.dismiss(chosen)

    def action_move(self, step: int) -> None:
        """To the line above or below."""
        if step < 0:
            self.focus_previous()
        else:
            self.focus_next()

    def action_leave(self) -> None:
        """Nothing changes."""
        self.dismiss(None)

    def _tell(self, key: str) -> None:
        is_wrong = key == self._wrong[0]
        limit = self.query_one("#limit", Static)
        limit.set_class(is_wrong, "-wrong")
        limit.update(self._wrong[1] if is_wrong else LIMITS.get(key, ""))
