"""^g: the message that is being written, in the person's editor, from inside the chat.

The chat stands still meanwhile and the engine goes on. The file is the person's alone and lives as long as the editor. Thread:
the UI's.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from localkv.commands.editor import edit_file
from localkv.errors import LocalKVError, UnusableFile

if TYPE_CHECKING:
    from localkv.tui.writing import Writing


def edit_draft(screen: "Writing") -> None:
    """Let the person write the message elsewhere; what goes wrong is said, and the message stays as it was."""
    composer = screen.composer
    try:
        with screen.app.suspend():
            text = edited(composer.message)
    except SuspendNotSupported:
        screen.say("no editor can be opened here", "warning")
    except LocalKVError as error:
        screen.say(f"{error}; the message is as it was", "error")
    else:
        if text != composer.message:
            composer.load(text)
    composer.focus()


def edited(text: str) -> str:
    """`text` as the editor left it, without the line's end that editors add. Raises ConfigError, UnusableFile."""
    handle, name = tempfile.mkstemp(prefix="localkv-", suffix=".md")  # 0600
    file = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
            out.write(text)
        edit_file(file)
        return file.read_text(encoding="utf-8", errors="replace").removesuffix("\n")
    except OSError as error:
        raise UnusableFile(name, f"was not left there by the editor ({error.strerror or error}); try another one") from error
    finally:
        file.unlink(missing_ok=True)
