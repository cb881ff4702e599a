"""The person's own editor: which program it is, and opening a file in it.

Torch-free; knows no screen: who calls it hands the terminal over before. Thread: the caller's, which waits until the editor
has ended.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from localkv.errors import ConfigError

USUAL = ("nano", "vim", "vi", "notepad.exe")


def find_editor(environ: Mapping[str, str], exists: Callable[[str], object]) -> list[str]:
    """The command of $VISUAL, else of $EDITOR, else of an editor that is usually there. Raises ConfigError."""
    for name in ("VISUAL", "EDITOR"):
        try:
            command = shlex.split(environ.get(name, ""))
        except ValueError as error:
            raise ConfigError(f'{name} = "{environ[name]}" is not a command ({error}); set it to your editor') from error
        if command:
            return command
    found = next((name for name in USUAL if exists(name)), None)
    if found is None:
        raise ConfigError("there is no editor: set EDITOR to one, such as EDITOR=nano")
    return [found]


def edit_file(file: Path) -> None:
    """Open `file` and wait until the editor has ended. Raises ConfigError."""
    command = find_editor(os.environ, shutil.which)
    try:
        editor = subprocess.Popen([*command, str(file)])
    except OSError as error:
        raise ConfigError(f"the editor {command[0]} cannot be started ({error.strerror or error}); set EDITOR") from error
    with _deaf_to_keys():
        code = editor.wait()
    if code:
        raise ConfigError(f"the editor {command[0]} ended with code {code}; what it left in {file} was not looked at")


@contextlib.contextmanager
def _deaf_to_keys() -> Iterator[None]:
    """Ctrl+C in an editor is the editor's, as a shell has it: the terminal sends it to this program, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)
