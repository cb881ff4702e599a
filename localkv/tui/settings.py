"""/config: the settings in the person's editor, from inside the chat.

The chat stands still meanwhile and the engine goes on. Theme and keys are taken over at once, the rest at the next start.
Thread: the UI's.
"""

from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from localkv.commands.config import begin_file
from localkv.commands.editor import edit_file
from localkv.commands.keymap import resolve
from localkv.config import load_config
from localkv.errors import LocalKVError
from localkv.tui.theme import choose_theme

if TYPE_CHECKING:
    from localkv.tui.app import LocalKVApp


def edit_settings(app: "LocalKVApp") -> None:
    """Let the person edit the settings; what is wrong with them is said and changes nothing."""
    screen = app.chat_screen
    file = app.config_file
    try:
        begin_file(file)
        with app.suspend():
            edit_file(file)
        take_over(app)
    except SuspendNotSupported:
        screen.say(f"no editor can be opened here; edit {file}", "warning")
    except LocalKVError as error:
        screen.say(f"{error}; nothing was changed in this chat", "error")


def take_over(app: "LocalKVApp") -> None:
    """Theme and keys of the file from now on. Raises ConfigError."""
    screen = app.chat_screen
    config = load_config(app.config_file)
    keymap = resolve(config.keys, str(app.config_file))
    theme, problem = choose_theme(app.themes, config.chat.theme)
    screen.keymap = screen.welcome.keymap = keymap
    screen.take_keys()
    screen.stage.show_again()
    app.theme = theme.name
    for note in filter(None, (problem, *keymap.notes)):
        screen.say(note, "warning")
    screen.say("theme and keys are those of the settings; the rest is from the next start on")
