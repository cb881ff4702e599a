"""`/erase`: a conversation is removed for good, after a question: its text at once, its bytes and cached state behind the screen.

Thread: the UI's. The index of words is merged on a thread of the store. What other conversations share of the cached state is read,
and the engine asked, on one more: it forgets between two turns.
"""

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from localkv.errors import LocalKVError
from localkv.service.caretaker import forget_through, own_logs, shared_by_others
from localkv.tui.clean import one_line
from localkv.tui.dialogs import Confirm
from localkv.tui.listing import UNTITLED

if TYPE_CHECKING:
    from localkv.tui.shelf import Shelf


def ask(screen: "Shelf", conversations: Sequence[str]) -> None:
    """Ask whether conversations are to go for good, and let them."""
    keys = [key for key in conversations if key]
    if not keys:
        screen.say("nothing was said in this conversation yet")
        return
    title = one_line(screen.desk.store.get(keys[0]).title) or UNTITLED
    what = f'"{title}"' if len(keys) == 1 else f"{len(keys)} conversations"
    verbs = ("is", "its", "it") if len(keys) == 1 else ("are", "their", "them")

    def done(sure: bool | None) -> None:
        if sure:
            _erase(screen, keys, f"{what} {verbs[0]} removed")

    question = f"{what} and all {verbs[1]} answers are removed for good."
    screen.app.push_screen(Confirm(question, f"remove {verbs[2]}", f"keep {verbs[2]}"), done)


def _erase(screen: "Shelf", keys: Sequence[str], sentence: str) -> None:
    desk = screen.desk
    try:
        own = own_logs(desk.store, *keys)
        for key in keys:
            screen.take_out(key)
        desk.store.erase_soon(*keys, tell=lambda problem: _tell(screen, problem))
        for key in keys:
            screen.stage.runs.drop(key)
            screen.sessions.drop(key)
    except LocalKVError as error:
        screen.say(str(error), "error")
        return
    screen.say(f"{sentence}. Backups of the last days still have the text.")
    screen.stage.show_facts()
    threading.Thread(target=_forget, args=(screen, own, keys), name="forget", daemon=True).start()


def _forget(screen: "Shelf", own: Sequence[bytes], keys: Sequence[str]) -> None:
    try:
        forget_through(screen.stage.client, shared_by_others(screen.desk.store, own, keys))
    except LocalKVError as error:
        _tell(screen, f"{error}; `localkv gc` removes what is left")


def _tell(screen: "Shelf", problem: str) -> None:
    with contextlib.suppress(
        RuntimeError
    ):  # the screen has ended meanwhile; `localkv gc` and the next start find what is left
        screen.app.call_from_thread(screen.say, problem, "error")
