"""`/erase`: a conversation is removed for good, after a question: its text at once, its cached state behind the screen.

Thread: the UI's; the engine is asked on a thread of its own, because it forgets between two turns.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from localkv.errors import LocalKVError
from localkv.service.caretaker import forget_through, logs_only_in
from localkv.service.protocol import TokenLog
from localkv.tui.clean import one_line
from localkv.tui.dialogs import Confirm
from localkv.tui.listing import UNTITLED

if TYPE_CHECKING:
    from localkv.tui.shelf import Shelf


def ask(screen: "Shelf", conversation: str) -> None:
    """Ask whether a conversation is to go for good, and let it."""
    if not conversation:
        screen.say("nothing was said in this conversation yet")
        return
    title = one_line(screen.desk.store.get(conversation).title) or UNTITLED

    def done(sure: bool | None) -> None:
        if sure:
            _erase(screen, conversation, title)

    screen.app.push_screen(Confirm(f'"{title}" and all its answers are removed for good.', "remove it", "keep it"), done)


def _erase(screen: "Shelf", key: str, title: str) -> None:
    desk = screen.desk
    try:
        logs = logs_only_in(desk.store, key)
        screen.take_out(key)
        desk.trashed = [each for each in desk.trashed if each != key]
        desk.store.erase(key)
        screen.sessions.drop(key)
    except LocalKVError as error:
        screen.say(str(error), "error")
        return
    screen.say(f'"{title}" is removed. Backups of the last days still have its text.')
    screen.stage.show_facts()
    threading.Thread(target=_forget, args=(screen, logs), name="forget", daemon=True).start()


def _forget(screen: "Shelf", logs: Sequence[TokenLog]) -> None:
    try:
        forget_through(screen.stage.client, logs)
    except LocalKVError as error:
        with contextlib.suppress(RuntimeError):  # the screen has ended meanwhile; `localkv gc` finds what is left
            screen.app.call_from_thread(screen.say, f"{error}; `localkv gc` removes what is left", "error")
