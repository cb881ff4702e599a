"""Where messages are written: a TextArea in which Enter sends.

It knows no conversation: it is given a draft and earlier questions, and says what was sent and what changed. A subclass of
TextArea, because that places the terminal's cursor for input method editors. Thread: the UI's.
"""

from collections.abc import Sequence

from textual.events import Key
from textual.message import Message
from textual.widgets import TextArea

from localkv.tui.completion import Completion
from localkv.tui.keys import bindings

MAX_ROWS = 8


class Composer(TextArea):
    """A text that grows from one to eight rows."""

    BINDINGS = bindings("composer")
    DEFAULT_CSS = """
    Composer {
        height: auto;
        min-height: 1;
        max-height: 8;
        border: none;
        padding: 0 1;
        background: $background;
        color: $foreground;
        scrollbar-size-vertical: 1;
        &:focus { border: none; }
        & .text-area--placeholder { color: $muted; }
        & .text-area--cursor { background: $foreground; color: $background; }
    }
    """

    class Sent(Message):
        """The person sends `text`; the composer is empty already."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Paged(Message):
        """The person wants to scroll the conversation by `step` screens."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Ended(Message):
        """ctrl+d with nothing written."""

    def __init__(self, *, placeholder: str = "", id: str | None = None) -> None:  # noqa: A002  textual's name
        super().__init__(
            id=id, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False, compact=True, placeholder=placeholder
        )
        self.cursor_blink = False
        self.past: Sequence[str] = ()
        """Earlier questions, oldest first."""
        self.completion: Completion | None = None
        """What offers endings for what is being written."""
        self._back = 0
        self._draft = ""

    async def _on_key(self, event: Key) -> None:
        """Keys that are bound, by the screen or here, act in the order of typing; the rest is text.

        Textual lets a bound key bubble up to the app before it acts. Characters typed after it would overtake it: in a fast
        "a backspace b" the b would be deleted, and what is typed after Enter would be sent or lost.
        """
        if self.completion is not None and (text := self.completion.take_key(event.key, self.text)) is not None:
            event.stop()
            event.prevent_default()
            self._become(text)
            return
        for node in (self.screen, self):
            for binding in node._bindings.key_to_bindings.get(event.key, ()):
                event.stop()
                event.prevent_default()
                await node.run_action(binding.action)
                return
        await super()._on_key(event)

    def _become(self, text: str) -> None:
        if text != self.text:
            self.load_text(text)
            self.move_cursor(self.document.end)

    def begin(self, draft: str, past: Sequence[str]) -> None:
        """Another conversation: its draft, and its earlier questions, oldest first."""
        self.load_text(draft)
        self.move_cursor(self.document.end)
        self.past = past
        self._back = 0

    def action_send(self) -> None:
        """Send the text; after a backslash, start a new line instead."""
        row, column = self.cursor_location
        if self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        text = self.text
        if text.strip():
            self.load_text("")
            self.post_message(self.Sent(text))

    def give_back(self, text: str) -> None:
        """Put a text that could not be sent before what has been typed since."""
        self.insert(text, (0, 0))
        self.move_cursor(self.document.end)

    def action_newline(self) -> None:
        """Start a new line."""
        self.insert("\n")

    def action_page(self, step: int) -> None:
        """Scroll the conversation."""
        self.post_message(self.Paged(step))

    def action_cursor_up(self, select: bool = False) -> None:
        """One row up; from the first row to an earlier question."""
        if select or not self.cursor_at_first_line or self._back >= len(self.past):
            super().action_cursor_up(select)
            return
        if self._back == 0:
            self._draft = self.text
        self._recall(self._back + 1)

    def action_cursor_down(self, select: bool = False) -> None:
        """One row down; from the last row to a later question, and at last to the draft."""
        if select or not self._back or not self.cursor_at_last_line:
            super().action_cursor_down(select)
            return
        self._recall(self._back - 1)

    def action_delete_right(self) -> None:
        """Delete a character; with nothing written, leave."""
        if self.text:
            super().action_delete_right()
        else:
            self.post_message(self.Ended())

    def _recall(self, back: int) -> None:
        self._back = back
        self.load_text(self.past[-back] if back else self._draft)
        self.move_cursor(self.document.end if not back else (0, len(self.document.get_line(0))))
