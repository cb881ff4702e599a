"""A line to write, and below it what it finds: the parts of the switcher and of search.

`Choices` is a virtual list like that of the conversations, with one or more rows for each choice. It knows no store. Thread:
the UI's.
"""

import textwrap
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Click, Resize
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from localkv.tui.dialogs import Dialog
from localkv.tui.keys import own, with_keys
from localkv.tui.rows import Span
from localkv.tui.scrolling import stretch
from localkv.tui.theme import Palette

Answer = TypeVar("Answer")
Choice = Callable[[int], Sequence[Sequence[Span]]]
"""The rows of one choice for a width, each as spans."""


class Choices(ScrollView, can_focus=False, inherit_bindings=False):
    """Choices, each of `tall` rows, with a cursor."""

    DEFAULT_CSS = """
    Choices {
        height: 1fr; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
        background: $surface; scrollbar-background: $surface; margin: 1 0 0 0;
    }
    """

    class Clicked(Message):
        """The choice under the cursor was clicked."""

    def __init__(self, palette: Palette, tall: int) -> None:
        super().__init__()
        self._palette = palette
        self._tall = tall
        self._choices: Sequence[Choice] = ()
        self._hint = ""
        self.cursor = 0

    def show(self, choices: Sequence[Choice], hint: str = "") -> None:
        """These choices; `hint` where there are none."""
        self._choices, self._hint = choices, hint
        self.cursor = 0
        self.on_resize()
        self.scroll_to(y=0, animate=False, force=True)

    def move(self, step: int) -> None:
        """Move the cursor and keep it in view."""
        self.cursor = max(0, min(self.cursor + step, len(self._choices) - 1))
        top, height = round(self.scroll_y), self.size.height
        first, last = self.cursor * self._tall, (self.cursor + 1) * self._tall
        if first < top or last > top + height:
            self.scroll_to(y=first if first < top else last - height, animate=False, force=True)
        self.refresh()

    @property
    def page(self) -> int:
        """Choices on one screen."""
        return max(1, self.size.height // self._tall)

    def on_resize(self, event: Resize | None = None) -> None:
        """Rows are as wide as the list."""
        del event
        stretch(self, len(self._choices) * self._tall)
        self.refresh()

    def on_click(self, event: Click) -> None:
        """Take the choice that was clicked."""
        at = (round(self.scroll_y) + event.y) // self._tall
        if at < len(self._choices):
            self.cursor = at
            self.post_message(self.Clicked())

    def _emphasis(self) -> Style:
        return Style(reverse=True) if "nocolor" in self.app.pseudo_classes else self._palette.cursor

    def render_line(self, y: int) -> Strip:
        """Row `y` of the widget."""
        at, part = divmod(round(self.scroll_y) + y, self._tall)
        width, base = self.scrollable_content_region.width, self.rich_style
        if at >= len(self._choices):
            hint = textwrap.wrap(self._hint, max(1, width - 2)) if not self._choices else []
            spans: Sequence[Span] = [(f" {hint[y]}", self._palette.muted)] if y < len(hint) else []
        else:
            rows = self._choices[at](width)
            spans = rows[part] if part < len(rows) else []
            base += self._emphasis() if at == self.cursor else Style()
        return Strip([Segment(text, style) for text, style in spans]).crop_extend(0, width, None).apply_style(base)


class Picker(Dialog[Answer]):
    """A line to write and what it finds; enter takes the choice under the cursor, esc leaves without one."""

    DEFAULT_CSS = """
    Picker > Vertical { width: 90; height: 80%; }
    """
    TALL = 1
    BINDINGS: ClassVar[list[BindingType]] = own(
        ("cancel", "leave"), "dialog.up", "dialog.down", "dialog.page.up", "dialog.page.down"
    )

    def __init__(self, palette: Palette, question: str, hint: str, words: str = "") -> None:
        """`hint` may name the key of an action by its [id]."""
        super().__init__()
        self._palette = palette
        self._question = question
        self._hint = hint
        self._words = words
        self.choices = Choices(palette, self.TALL)

    def compose(self) -> ComposeResult:
        """A question, a line to write, what it finds, a hint."""
        with Vertical():
            yield Static(self._question, classes="question", markup=False)
            yield Input(self._words, max_length=500)
            yield self.choices
            yield Static(with_keys(self._hint, self.keymap), classes="hint", markup=False)

    def on_mount(self) -> None:
        """A blinking cursor would be a timer while nothing moves."""
        super().on_mount()
        self.query_one(Input).cursor_blink = False
        self.look(self._words)

    def look(self, words: str) -> None:
        """Show what `words` find."""
        raise NotImplementedError

    def take(self, at: int) -> None:
        """The choice at `at` was taken; there may be none."""
        raise NotImplementedError

    def on_input_changed(self, event: Input.Changed) -> None:
        """Find while typing."""
        event.stop()
        if event.value != self._words:
            self._words = event.value
            self.look(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the choice under the cursor."""
        event.stop()
        self.take(self.choices.cursor)

    def on_choices_clicked(self, event: Choices.Clicked) -> None:
        """Take the choice that was clicked."""
        event.stop()
        self.take(self.choices.cursor)

    def action_move(self, step: int) -> None:
        """One choice up or down."""
        self.choices.move(step)

    def action_page(self, step: int) -> None:
        """One screen up or down."""
        self.choices.move(step * self.choices.page)

    def action_leave(self) -> None:
        """No answer."""
        self.dismiss(None)
