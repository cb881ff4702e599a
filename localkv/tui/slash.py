"""Commands written as messages, done on the chat screen. Names and help are commands.actions'; here is what each does.

A command that is not listed here does what its key does.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from localkv.commands.registry import Call
from localkv.errors import ConfigError, UnknownConversation
from localkv.tui import filing
from localkv.tui.theme import choose_theme

if TYPE_CHECKING:
    from localkv.tui.app import LocalKVApp
    from localkv.tui.screen import ChatScreen


def perform(screen: "ChatScreen", call: Call) -> None:
    """Do what `call` says. Raises LocalKVError."""
    actions: dict[str, Callable[[str], None]] = {
        "new": screen.begin_named,
        "open": screen.open_like,
        "list": screen.filter_list,
        "rename": screen.rename_open,
        "delete": lambda _: screen.delete_open(),
        "undo": lambda _: screen.undo_delete(),
        "erase": lambda _: filing.erase(screen, screen.desk.key),
        "pin": lambda _: filing.pin(screen, screen.desk.key),
        "tag": lambda words: filing.tag(screen, screen.desk.key, words),
        "archive": lambda _: filing.archive(screen, screen.desk.key),
        "trash": lambda name: filing.show_trash(screen, name),
        "search": screen.action_search,
        "system": lambda text: _system(screen, text),
        "set": lambda text: _set(screen, text),
        "model": lambda text: _model(screen, text),
        "export": lambda path: _export(screen, path),
        "theme": lambda text: _theme(screen, text),
        "queue": screen.order_queue,
        "attach": screen.attach,
        "unload": lambda _: _unload(screen),
        "find": screen.action_find_text,
        "fold": lambda _: _on_message(screen, "fold", ""),
        **{name: partial(_on_message, screen, name) for name in ("copy", "edit", "fork", "branch", "prune")},
    }
    action = actions.get(call.command.slash)
    if action is not None:
        action(call.argument)
    else:
        screen.call_later(screen.run_action, call.command.run)


def _on_message(screen: "ChatScreen", name: str, argument: str) -> None:
    """A command about the message under the cursor; without a cursor, about the one that is meant most often."""
    from localkv.tui.orders import give

    give(screen.acts, screen.transcript, name, argument)


def _unload(screen: "ChatScreen") -> None:
    from localkv.tui.unloading import unload

    unload(screen)


def _set(screen: "ChatScreen", text: str) -> None:
    from localkv.tui.settling import settle_sampling  # dialogs are not needed for the first frame

    settle_sampling(screen, text)


def _system(screen: "ChatScreen", text: str) -> None:
    from localkv.tui.settling import settle_system

    settle_system(screen, text)


def _model(screen: "ChatScreen", name: str) -> None:
    if name:
        from localkv.commands.talk import changed_model

        screen.desk.set_model(changed_model(screen.desk.model, {"name": name}, "/model"))
        screen.stage.prepare()
        screen.say(f"model: {screen.desk.model.name}")
        return
    screen.say(f'model: {screen.desk.model.name}; a space after "/model" shows those on this machine')


def _theme(screen: "ChatScreen", name: str) -> None:
    app = cast("LocalKVApp", screen.app)
    if name:
        theme, problem = choose_theme(app.themes, name)
        if problem:
            raise ConfigError(f"/theme {name}: there is no such theme; there are {', '.join(sorted(app.themes))}")
        app.theme = theme.name
        screen.say(f'theme: {theme.name}; chat.theme = "{theme.name}" in the settings keeps it')
        return
    screen.say(f"theme: {app.theme}; there are {', '.join(sorted(app.themes))}")


def _export(screen: "ChatScreen", path: str) -> None:
    from localkv.commands.exporting import export_open

    desk = screen.desk
    if not desk.key:
        raise UnknownConversation("nothing was said in this conversation yet, so there is nothing to export")
    screen.say(f"written: {export_open(desk.store, desk.store.get(desk.key), path)}", seconds=10.0)
