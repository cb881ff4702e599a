"""The row in which words are looked for in the open conversation: what is typed, and which place of how many.

It knows no conversation: it is given two ways to look, and shows the count they give back. Thread: the UI's.
"""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from localkv.tui.keys import follow, keymap_of, own
from localkv.tui.marks import Count


class Words(Input):
    """Where they are typed."""

    BINDINGS: ClassVar[list[BindingType]] = own("find.next", "find.previous")

    def __init__(self, go: Callable[[int], None]) -> None:
        super().__init__(placeholder="words in this conversation", compact=True)
        self.cursor_blink = False
        self._go = go

    def action_go(self, step: int) -> None:
        """Another place that has them."""
        self._go(step)


class FindBar(Horizontal):
    """Words, and where they are."""

    BINDINGS: ClassVar[list[BindingType]] = own(("cancel", "leave", "close"))
    DEFAULT_CSS = """
    FindBar {
        height: 1;
        & Static { width: auto; padding: 0 1; color: $muted; }
        & Input { width: 1fr; height: 1; border: none; padding: 0; background: $panel; color: $foreground; }
        & Input:focus { border: none; }
    }
    """

    class Closed(Message):
        """The person has found enough."""

    def __init__(self, find: Callable[[str], Count], step: Callable[[int], Count]) -> None:
        super().__init__(id="find")
        self._find = find
        self._step = step
        self.words = Words(self.go)
        self.count = Static("", markup=False)

    def compose(self) -> ComposeResult:
        """A sign, the words, the count."""
        yield Static("find", markup=False)
        yield self.words
        yield self.count

    def on_mount(self) -> None:
        """The keys in force."""
        for node in (self, self.words):
            follow(node, keymap_of(self.app))

    def look_for(self, words: str) -> None:
        """Look for these words; without any, for those that are written here already."""
        if words:
            self.words.value = words
        self.words.focus()
        self._show(self._find(self.words.value))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look while typing."""
        event.stop()
        self._show(self._find(event.value))

    def go(self, step: int) -> None:
        """Another place."""
        self._show(self._step(step))

    def action_leave(self) -> None:
        """Mark nothing any more."""
        self._find("")
        self.post_message(self.Closed())

    def _show(self, count: Count) -> None:
        if not self.words.value.strip():
            self.count.update("")
        else:
            self.count.update(f"{count.n:,}/{count.of:,}" if count.of else "not found")
