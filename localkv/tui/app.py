"""The full-screen face: themes, one screen, and how it begins and ends.

`run` is what the command line calls. Nothing here imports torch; the engine is another process, started after the first
frame. Thread: the UI's.
"""

import asyncio
import contextlib
import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from textual.app import App
from textual.events import Event, InputEvent, Paste
from textual.filter import LineFilter
from textual.timer import Timer

from localkv.chat.store import ConversationStore
from localkv.commands.ends import ENDINGS, exit_within, leave_dead_terminal
from localkv.commands.introduction import Introduction, introduce
from localkv.commands.keymap import DEFAULT_KEYMAP, resolve
from localkv.commands.order import place_of
from localkv.commands.output import ProgressLine, shown_on
from localkv.config import Config
from localkv.errors import LocalKVError
from localkv.paths import Home, resource_dir
from localkv.tui.clipboard import find_tool
from localkv.tui.desk import Desk
from localkv.tui.glyphs import Glyphs, choose_glyphs
from localkv.tui.guard import Guard
from localkv.tui.layout import CSS
from localkv.tui.listening import Listener
from localkv.tui.ports import Chat, Client
from localkv.tui.screen import ChatScreen
from localkv.tui.theme import choose_theme, palette, read_themes, textual_theme
from localkv.tui.typeahead import Typed

TERMINAL_SECONDS = 3.0
"""How long putting the terminal in order may take once all is saved."""


REDRAW_SECONDS = 0.1
"""How long after the last change of the window's size everything is drawn once more."""


class LocalKVApp(App[None], inherit_bindings=False):
    """The chat in a terminal."""

    TITLE = "localkv"
    CSS = CSS
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        home: Home,
        config: Config,
        store: ConversationStore,
        chat: Chat,
        client: Client,
        *,
        glyphs: Glyphs | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        session: str | None = None,
        private: bool = False,
        typed: Typed = Typed(),  # noqa: B008  frozen
    ) -> None:
        """`clock` is wall time, `ticks` measures rates; `session` is opened, or begun if it is new; new ones may be `private`.

        `typed` was typed before and is typed again once somebody listens.
        """
        super().__init__()
        self.animation_level = "none"
        self._guard = Guard()
        self._redrawing: Timer | None = None
        self.endings: tuple[int, ...] = ()
        """Signals that end the chat in order."""
        self.ended_by = 0
        self._typed = typed
        self._held: list[Event] | None = []
        themes, self._problems = read_themes([resource_dir("themes"), home.user_themes])
        theme, problem = choose_theme(themes, config.chat.theme)
        self._problems += [problem] if problem else []
        self.themes = themes
        self.config_file = home.config_file
        self.introduction: Callable[[], Introduction] | None = None
        """Finds what is told the first time; None at all other times."""
        for each in themes.values():
            self.register_theme(textual_theme(each))
        self.theme = theme.name
        keymap = resolve(config.keys) if config.keys else DEFAULT_KEYMAP
        self._problems += keymap.notes
        desk = Desk(store, config, clock, private=private)
        if session:
            desk.open_named(session)
        self.chat_screen = ChatScreen(
            desk, chat, client, palette(theme), glyphs or choose_glyphs(os.environ, sys.stdout.encoding or ""), ticks,
            panel=config.chat.panel, keymap=keymap,
        )  # fmt: skip
        self.chat_screen.bell = config.chat.bell

    def get_default_screen(self) -> ChatScreen:
        """The chat: no other screen is made before it."""
        return self.chat_screen

    def on_mount(self) -> None:
        """Say what is wrong with themes; from now on signals are obeyed."""
        for number in self.endings:
            asyncio.get_running_loop().add_signal_handler(number, self._end, number)
        if self._typed.settings is not None and getattr(self._driver, "attrs_before", None):
            self._driver.attrs_before = self._typed.settings  # type: ignore[union-attr]  # what an editor finds meanwhile
        self.theme_changed_signal.subscribe(self, self._repaint)
        self.app_resume_signal.subscribe(self, self._draw_again)
        if self.introduction is not None:
            self.run_worker(self._introduce, thread=True, exit_on_error=False)
        for problem in self._problems:
            self.notify(problem, severity="warning", markup=False, timeout=15)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every row goes through before it is drawn."""
        return [self._guard, *super().get_line_filters()]

    def on_resize(self) -> None:
        """A window that was made smaller and as large as before has lost what stood in it; Textual draws what it believes to differ."""
        if self._redrawing is not None:
            self._redrawing.stop()
        self._redrawing = self.set_timer(REDRAW_SECONDS, self.refresh)

    async def on_event(self, event: Event) -> None:
        """Input waits until somebody listens: Textual would give it to the list, or to nobody."""
        if self._held is not None and isinstance(event, InputEvent | Paste):
            self._held.append(event)
        else:
            await super().on_event(event)

    async def on_chat_screen_listening(self, event: ChatScreen.Listening) -> None:
        """What was typed until now goes to the composer, in the order of typing."""
        event.stop()
        held, self._held = self._held, None
        listener, keys = Listener(), self._typed.keys
        before = [each for each in (*listener.feed(keys), *listener.end()) if isinstance(each, Event)] if keys else []
        for typed in (*before, *(held or [])):
            typed.set_sender(self)
            await super().on_event(typed)

    def _end(self, number: int) -> None:
        """The window was closed or the session ends: keep what came, let the engine save, go."""
        self.ended_by = number
        leave_dead_terminal()
        self.chat_screen.end()

    def exit(self, *arguments: Any, **options: Any) -> None:
        """End the app; after a signal within seconds, because the terminal may be gone."""
        if self.ended_by:
            exit_within(TERMINAL_SECONDS, 128 + self.ended_by)
        super().exit(*arguments, **options)

    def tell(self, problem: str) -> None:
        """Show what went wrong elsewhere. Any thread; not heard once the app has ended."""
        if not self.is_running:
            self._problems.append(problem)
            return
        with contextlib.suppress(RuntimeError):
            self.call_from_thread(self.notify, problem, severity="error", markup=False, timeout=30)

    def _introduce(self) -> None:
        """On a thread of its own: asking for a card takes up to a second."""
        if self.introduction is None:
            return
        try:
            first = self.introduction()
        except LocalKVError as error:
            self.tell(str(error))
            return
        with contextlib.suppress(RuntimeError):  # the app has ended
            self.call_from_thread(self.chat_screen.introduce, first)

    def _draw_again(self, app: object) -> None:
        """The terminal was somebody else's meanwhile: nothing of what is believed to be on it is there."""
        del app
        self.refresh(layout=True)

    def _repaint(self, theme: object) -> None:
        del theme
        if self.theme in self.themes and self.chat_screen.is_mounted:
            self.chat_screen.restyle(palette(self.themes[self.theme]))

    def action_settings(self) -> None:
        """Hand the terminal to the person's editor; afterwards theme and keys are those of the file."""
        from localkv.tui.settings import edit_settings

        edit_settings(self)

    async def action_quit(self) -> None:
        """The screen leaves; it may ask and save first."""
        self.chat_screen.action_quit()


def run(
    home: Home,
    config: Config,
    *,
    model: str | None = None,
    session: str | None = None,
    theme: str | None = None,
    private: bool = False,
    typed: Typed = Typed(),  # noqa: B008  frozen
    file: Path | None = None,
) -> int:
    """The chat until the person leaves; the exit code. Raises LocalKVError for what keeps it from starting."""
    from localkv.service.client import EngineClient
    from localkv.service.turns import Chat as Turns

    home.prepare()
    config = chosen(config, model, theme)
    bar = ProgressLine(sys.stderr)
    store = ConversationStore.open(home.database, home.backups, progress=shown_on(bar))
    bar.end()
    try:
        store.recover()
        client = EngineClient(home, config)
        if not (session or private or model):
            session = where_they_were(store)
        app = LocalKVApp(home, config, store, Turns(store, client), client, session=session, private=private, typed=typed)
        app.config_file = file or home.config_file
        if not app.config_file.exists() and not store.list(include_trashed=True):
            app.introduction = lambda: introduce(config, home)
        app.chat_screen.copy_tool = find_tool(os.environ, sys.platform, shutil.which)
        backup = store.begin_daily_backup(app.tell)
        store.begin_erasures(app.tell)
        app.endings = (*ENDINGS, signal.SIGINT) if os.name != "nt" else ()
        if os.name != "nt":
            from localkv.tui.terminal import RestingDriver  # needs termios

            app.driver_class = RestingDriver
        gc.freeze()  # a full collection, 16 ms for the 50,000 objects of libraries, no longer falls between two frames
        app.run(mouse=config.chat.mouse)
        client.close()
        backup.join()
        if farewell := app.chat_screen.stage.engine.farewell:
            print(farewell, file=sys.stderr)
        return 128 + app.ended_by if app.ended_by else app.return_code or 0
    finally:
        store.close()


def where_they_were(store: ConversationStore) -> str | None:
    """The name of the conversation in the list that was used last: the chat goes on there."""
    return next((conversation.name for conversation in store.list() if place_of(conversation) == "list"), None)


def chosen(config: Config, model: str | None, theme: str | None) -> Config:
    """`config` with what the command line says instead."""
    if model is not None:
        trusted = config.model.trust_remote_code and model == config.model.name  # code is trusted of one model, not of any
        section = msgspec.structs.replace(config.model, name=model, trust_remote_code=trusted)
        config = msgspec.structs.replace(config, model=section)
    if theme is not None:
        config = msgspec.structs.replace(config, chat=msgspec.structs.replace(config.chat, theme=theme))
    return config
