"""The panes of the chat screen: which are seen, which has the focus, how the list is filtered and the view scrolled.

Knows no conversation and no engine: what the panes show is written by others. Nothing here is posted when the terminal is
resized: a message between two Resize events keeps Textual from folding them into one. Thread: the UI's.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Key
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from localkv.commands.actions import Action, Place
from localkv.commands.keymap import DEFAULT_KEYMAP, Keymap
from localkv.tui.clipboard import Tool
from localkv.tui.completion import Completion
from localkv.tui.composer import Composer
from localkv.tui.glyphs import Glyphs
from localkv.tui.ground import Columns, Ground, Stack
from localkv.tui.heart import Heart, LiveRows
from localkv.tui.history import History
from localkv.tui.instruments import Instruments
from localkv.tui.keyline import KeyLine
from localkv.tui.keys import bindings, rebind, with_keys
from localkv.tui.layout import HEIGHTS, WIDTHS, classes_at
from localkv.tui.queue import Queue
from localkv.tui.rowsview import RowsView
from localkv.tui.sessions import Sessions
from localkv.tui.theme import Palette
from localkv.tui.transcript import Transcript


class Panes(Screen[None], Ground):
    """List, conversation, composer, cache panel."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("anywhere")
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(
        self,
        palette: Palette,
        glyphs: Glyphs,
        clock: Callable[[], float],
        *,
        panel: bool,
        keymap: Keymap = DEFAULT_KEYMAP,
    ) -> None:
        """`panel`: the cache panel is open where there is room."""
        classes = ["-ascii"] * glyphs.ascii + ["panel-closed"] * (not panel)
        super().__init__(classes=" ".join(classes) or None)
        self.keymap = keymap
        self.copy_tool: Tool | None = None
        """What copies; None leaves it to the terminal."""
        self._palette = palette
        self.heart = Heart(self.set_interval)
        self.transcript = Transcript(palette, glyphs, id="transcript")
        self.sessions = Sessions(palette, clock, glyphs, id="sessions")
        self.composer = Composer(placeholder="Write a message", id="composer")
        self.count = Static("", id="count", markup=False)
        self.queue = Queue(palette, id="queue")
        self.completion = self.composer.completion = Completion(palette, glyphs, id="completion")
        self.filter = Input(id="filter", placeholder="words of a title", compact=True)
        self.filter.cursor_blink = False
        self.keyline = KeyLine(palette, self.say_keys)
        self.instruments = Instruments(
            glyphs,
            head=RowsView(id="side-head"),
            header=RowsView(id="header"),
            tiers=RowsView(id="tiers"),
            phase=RowsView(id="phase"),
            panel=LiveRows(self.heart, self.show_facts, id="panel"),
            history=History(),
            clock=clock,
            keyed=self.keyed,
        )

    def compose(self) -> ComposeResult:
        """List, conversation with what stands around it, cache panel, footer."""
        self.add_class(
            *classes_at(*self.app.size)
        )  # Textual does so after the first layout: it would be that of a wide screen
        with Columns(id="body"):
            with Stack(id="side"):
                yield self.instruments.head
                yield self.filter
                yield self.sessions
            with Stack(id="main"):
                yield self.instruments.header
                yield self.transcript
                yield self.instruments.tiers
                yield self.instruments.phase
                yield self.queue
                yield self.completion
                with Columns(id="writing"):
                    yield Static(">", id="prompt", markup=False)
                    yield self.composer
                    yield self.count
            with Stack(id="right"):
                yield self.instruments.panel
        yield self.keyline

    def place(self, place: Place) -> Screen[None] | Widget:
        """Whose actions the keys of a place run."""
        nodes: dict[Place, Widget] = {"composer": self.composer, "list": self.sessions}
        nodes |= {"message": self.transcript, "text": self.transcript, "queue": self.queue}
        return nodes.get(place, self)

    def keyed(self, text: str) -> str:
        """`text` with the key of an action in the place of its [id]."""
        return with_keys(text, self.keymap)

    def take_keys(self) -> None:
        """From now on the keys are those of the keymap."""
        for node in (self, *self.walk_children()):
            rebind(node, self.keymap)
        self.refresh_bindings()

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        self._palette = palette
        self.keyline.restyle(palette)
        self.completion.restyle(palette)
        self.queue.restyle(palette)

    def show_facts(self) -> None:
        """Bring what stands around the conversation up to date."""

    def say_keys(self) -> Mapping[str, str]:
        """By id of an action, another word in the last row."""
        return {}

    def watch_focused(self, old: Widget | None, new: Widget | None) -> None:
        """A pane that goes away leaves the focus to the composer: without it nothing would be heard that is typed."""
        if old is not None and not _is_shown(new):
            self.call_later(self._listen)

    def _listen(self) -> None:
        if not _is_shown(self.focused) and self.app.app_focus:  # a window in the background has no focus and gets its own back
            self.composer.focus()

    def action_help(self) -> None:
        """All keys and commands."""
        from localkv.tui.dialogs import Help

        self.app.push_screen(Help(self._palette))

    def action_palette(self) -> None:
        """Find an action by a few characters and do it."""
        from localkv.tui.palette import Palette as Actions

        def done(action: Action | None) -> None:
            if action is not None:
                self.call_later(self.place(action.place).run_action, action.act)

        self.app.push_screen(Actions(self._palette, self.instruments.glyphs), done)

    def show_filter(self) -> None:
        """Type words of a title."""
        self.open_side()
        self.filter.add_class("-open")
        self.filter.focus()

    def action_sidebar(self) -> None:
        """Show or hide the list."""
        if self.has_class("-narrow"):
            self.remove_class("panel-open")
            self.toggle_class("side-open")
            shown = self.has_class("side-open")
        else:
            self.toggle_class("side-closed")
            shown = not self.has_class("side-closed")
        (self.sessions if shown else self.composer).focus()

    def action_panel(self) -> None:
        """Show or hide the cache panel."""
        if self.has_class("-wide"):
            self.toggle_class("panel-closed")
        else:
            self.remove_class("side-open")
            self.toggle_class("panel-open")
        self.keyline.renew()

    def action_statistics(self) -> None:
        """What the cache did, over time, on the whole screen."""
        from localkv.tui.statistics import Statistics

        shown = self.instruments
        self.app.push_screen(Statistics(self._palette, shown.glyphs, shown.history, self.heart, shown.clock))

    async def action_settings(self) -> None:
        """Edit the settings."""
        await self.app.run_action("settings")

    def action_suspend(self) -> None:
        """Hand the terminal back to the shell until the person returns."""
        self.app.action_suspend_process()

    def action_latest(self) -> None:
        """Follow the newest text."""
        self.transcript.go_end()

    def action_next_pane(self) -> None:
        """Focus the next pane."""
        self.focus_next()

    def on_composer_paged(self, event: Composer.Paged) -> None:
        """Page keys in the composer scroll the conversation."""
        event.stop()
        self.transcript.scroll_relative(
            y=event.step * max(1, self.transcript.scrollable_content_region.height - 2), animate=False
        )

    def on_transcript_followed(self, event: Transcript.Followed) -> None:
        """The phase line says whether there is text below."""
        event.stop()
        self.show_facts()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        if event.input is self.filter:
            self.sessions.filter(event.value)
            self.show_facts()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open the first conversation that the filter left."""
        if event.input is self.filter:
            self.sessions.action_open()
            self.close_filter()

    def on_key(self, event: Key) -> None:
        """Arrow keys leave the filter for the list."""
        if self.focused is self.filter and event.key in {"down", "up"}:
            event.stop()
            self.sessions.focus()

    @property
    def has_overlay(self) -> bool:
        """Whether list or panel lie over the conversation; a wider window has room beside it for what was opened in a narrow one."""
        list_lies = self.has_class("side-open") and self.has_class("-narrow")
        return list_lies or (self.has_class("panel-open") and not self.has_class("-wide"))

    def open_side(self) -> None:
        """Show the list."""
        if self.has_class("-narrow"):
            self.remove_class("panel-open")
            self.add_class("side-open")
        else:
            self.remove_class("side-closed")

    def close_filter(self) -> None:
        """Show all conversations again."""
        self.filter.value = ""
        self.filter.remove_class("-open")

    def leave_filter(self) -> None:
        """Show all conversations again and go on in the list."""
        self.close_filter()
        self.sessions.focus()

    def leave_overlays(self) -> None:
        """Leave the conversation alone and go on writing."""
        self.close_overlays()
        self.composer.focus()

    def close_overlays(self) -> None:
        """Leave the conversation alone on narrow screens."""
        self.close_filter()
        self.remove_class("side-open", "panel-open")


def _is_shown(widget: Widget | None) -> bool:
    """Whether no pane around it is hidden: Textual gives the focus of a pane that goes away to its neighbour, hidden or not."""
    return widget is not None and all(node.display for node in widget.ancestors_with_self if isinstance(node, Widget))
