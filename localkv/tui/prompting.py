"""A dialog for the system prompt of one conversation, with the price of another one said before it is kept.

It knows no store: it is given a text and a price, and gives a text back. Thread: the UI's.
"""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.message import Message
from textual.widgets import Static, TextArea

from localkv.commands.price import Price
from localkv.tui.dialogs import Dialog
from localkv.tui.keys import own, with_keys


class PromptText(TextArea):
    """A text in which Enter ends writing; ctrl+j starts a line, as in the composer."""

    class Ended(Message):
        """The text is written."""

    async def _on_key(self, event: Key) -> None:
        """Enter and new lines act in the order of typing."""
        if event.key not in {"enter", "ctrl+j", "shift+enter", "alt+enter"}:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.post_message(self.Ended())
        else:
            self._replace_via_keyboard("\n", *self.selection)


class SystemPrompt(Dialog[str | None]):
    """Asks for another system prompt; gives it, empty for none, or None if it stays."""

    BINDINGS: ClassVar[list[BindingType]] = own(("cancel", "leave"))
    DEFAULT_CSS = """
    SystemPrompt PromptText { height: auto; min-height: 3; max-height: 8; border: none; padding: 0 1; background: $panel; }
    SystemPrompt PromptText:focus { border: none; }
    SystemPrompt .price { height: auto; color: $warning; }
    """

    def __init__(self, system: str, price: Price) -> None:
        super().__init__()
        self._system = system
        self._price = price

    def compose(self) -> ComposeResult:
        """The text, the price, and what keys do."""
        with Vertical():
            yield Static("System prompt of this conversation; empty for none", classes="question", markup=False)
            yield PromptText(self._system, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False, compact=True)
            yield Static(self._price.sentence(), classes="price", markup=False)
            hint = with_keys("enter keeps it   ^j a new line   [cancel] leaves it", self.keymap)
            yield Static(hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        """A blinking cursor would be a timer while nothing moves."""
        super().on_mount()
        text = self.query_one(PromptText)
        text.cursor_blink = False
        text.move_cursor(text.document.end)

    def on_prompt_text_ended(self, event: PromptText.Ended) -> None:
        """The text as it stands."""
        event.stop()
        self.dismiss(self.query_one(PromptText).text.strip())

    def action_leave(self) -> None:
        """Nothing changes."""
        self.dismiss(None)
