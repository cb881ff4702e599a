"""Small screens over the chat: rename, confirm, help. Each is one question; Esc leaves it without an answer.

They know no store and no engine: they take words and give back an answer. Text of people is never read as markup.
"""

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from localkv.commands.keymap import Keymap
from localkv.commands.registry import COMMANDS
from localkv.tui.keys import follow, help_sections, keymap_of, own, with_keys
from localkv.tui.listline import MEANINGS
from localkv.tui.once import Once
from localkv.tui.rows import BLANK, Row, row, spans_of, wrap
from localkv.tui.rowsview import RowsView
from localkv.tui.scrolling import use_plain_bars
from localkv.tui.theme import Palette

Answer = TypeVar("Answer")

READING = (
    "reading.close", "reading.up", "reading.down", "reading.page.up", "reading.page.down", "reading.home", "reading.end"
)  # fmt: skip
"""Actions of what is only read."""


class Dialog(Once[Answer], ModalScreen[Answer]):
    """What all of them look like."""

    BINDINGS: ClassVar[list[BindingType]] = own(("quit", "app.quit"))
    DEFAULT_CSS = """
    Dialog {
        align: center middle;
        background: $background 60%;
        & > Vertical {
            width: 60; max-width: 94%; height: auto; max-height: 90%;
            background: $surface; border: round $rule; padding: 0 1;
        }
        & .question { height: auto; color: $foreground; }
        & .hint { height: auto; color: $muted; padding: 1 0 0 0; }
        & Input { background: $panel; border: none; height: 1; padding: 0 1; margin: 1 0 0 0; }
        & Input:focus { border: none; }
        & RowsView { background: $surface; scrollbar-background: $surface; scrollbar-gutter: stable; }
        &.-ascii > Vertical { border: ascii $rule; }
    }
    """

    def on_mount(self) -> None:
        """Drawn like the screen beneath, with its keys."""
        follow(self, self.keymap)
        if any(screen.has_class("-ascii") for screen in self.app.screen_stack):
            self.add_class("-ascii")
            use_plain_bars(self)

    @property
    def keymap(self) -> Keymap:
        """The keys in force."""
        return keymap_of(self.app)


class Line(Dialog[str | None]):
    """Asks for one line; gives it, or None. `empty`: an empty line is an answer, too."""

    BINDINGS: ClassVar[list[BindingType]] = own(("cancel", "leave"))

    def __init__(self, question: str, text: str, *, empty: bool = False) -> None:
        super().__init__()
        self._question = question
        self._text = text
        self._empty = empty

    def compose(self) -> ComposeResult:
        """A question, a line to write, a hint."""
        with Vertical():
            yield Static(self._question, classes="question", markup=False)
            yield Input(self._text, max_length=200)
            hint = with_keys("enter keeps it   [cancel] leaves it as it was", self.keymap)
            yield Static(hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        """A blinking cursor would be a timer while nothing moves."""
        super().on_mount()
        self.query_one(Input).cursor_blink = False

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """What was written."""
        event.stop()
        text = event.value.strip()
        self.dismiss(text if text or self._empty else None)

    def action_leave(self) -> None:
        """No answer."""
        self.dismiss(None)


class Rename(Line):
    """Asks for another title; gives it, or None. An empty one changes nothing."""

    def __init__(self, title: str) -> None:
        super().__init__("Title of this conversation", title)


class Confirm(Dialog[bool]):
    """Asks whether to do what can't be undone; y alone agrees, all other keys are harmless."""

    BINDINGS: ClassVar[list[BindingType]] = own(("cancel", "leave"), "question.no", "question.yes")

    def __init__(self, question: str, yes: str, no: str) -> None:
        """`yes` and `no` say what happens."""
        super().__init__()
        self._question = question
        self._yes = yes
        self._no = no

    def compose(self) -> ComposeResult:
        """A question and what the keys mean."""
        with Vertical():
            yield Static(self._question, classes="question", markup=False)
            agree, leave = with_keys("[question.yes]", self.keymap), with_keys("[cancel]", self.keymap)
            yield Static(f"{agree}  {self._yes}      {leave}  {self._no}", classes="hint", markup=False)

    def action_leave(self) -> None:
        """No."""
        self.dismiss(False)

    def action_agree(self) -> None:
        """Yes."""
        self.dismiss(True)


class Help(Dialog[None]):
    """All keys and commands."""

    DEFAULT_CSS = """
    Help > Vertical { width: 82; height: 90%; }
    Help RowsView { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = own(("cancel", "leave"), ("help", "leave"), *READING)

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self._palette = palette

    def compose(self) -> ComposeResult:
        """Rows that scroll, and a hint."""
        view = RowsView(id="help")
        view.draw(None, lambda width: help_rows(self._palette, self.keymap, width))
        with Vertical():
            yield view
            hint = with_keys("[cancel] closes   [reading.up] and [reading.down] scroll", self.keymap)
            yield Static(hint, classes="hint", markup=False)

    def action_scroll(self, step: int) -> None:
        """Scroll the text."""
        self.query_one(RowsView).scroll_relative(y=step, animate=False)

    def action_leave(self) -> None:
        """Close it."""
        self.dismiss(None)


def help_rows(palette: Palette, keymap: Keymap, width: int) -> list[Row]:
    """All keys, then all commands, then what the marks in the list mean."""
    sections = help_sections(keymap)
    sections["Commands, written as a message"] = [(command.usage, command.help) for command in COMMANDS]
    sections["Marks in the list"] = list(MEANINGS)
    rows: list[Row] = []
    for title, lines in sections.items():
        rows += [*([BLANK] if rows else []), row([(title, palette.heading)])]
        size = min(max(len(name) for name, _ in lines) + 2, max(8, width // 2))
        for name, text in lines:
            inner = wrap([(text, palette.text)], max(8, width - size - 2))
            for index, part in enumerate(inner):
                lead = f"  {name if not index else '':<{size}}"
                rows.append(row([(lead, palette.user if not index else palette.text), *spans_of(part)]))
    return rows
