"""`/unload`: the engine lets go of its model, behind the screen; what came of it is said when it has.

Thread: the UI's; the engine is asked on a thread of its own, because it finishes the turn under way before.
"""

import contextlib
import threading
from typing import TYPE_CHECKING

from localkv.commands.unload import sentence
from localkv.errors import LocalKVError
from localkv.service.caretaker import unload_through

if TYPE_CHECKING:
    from localkv.tui.screen import ChatScreen


def unload(screen: "ChatScreen") -> None:
    """Have the model let go of."""
    screen.say("saving, and letting the model go")
    threading.Thread(target=_ask, args=(screen,), name="unload", daemon=True).start()


def _ask(screen: "ChatScreen") -> None:
    try:
        said, severity = sentence(unload_through(screen.stage.client)), "information"
    except LocalKVError as error:
        said, severity = str(error), "error"
    with contextlib.suppress(RuntimeError):  # the screen has ended meanwhile
        screen.app.call_from_thread(screen.say, said, severity)
