"""Settings of the open conversation: `/set` and `/system`, written as a line or chosen in a dialog.

Thread: the UI's. Refusals are LocalKVErrors for the caller to show; what a dialog's answer meets is shown here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from localkv.commands.price import Price, price_of
from localkv.commands.sampling import changed_setting, describe
from localkv.config import SamplingSection
from localkv.errors import ConversationError, LocalKVError
from localkv.tui.prompting import SystemPrompt
from localkv.tui.sampling import Sampling

if TYPE_CHECKING:
    from localkv.tui.screen import ChatScreen

Answer = TypeVar("Answer")


def settle_sampling(screen: "ChatScreen", text: str) -> None:
    """Do what "/set `text`" says; with nothing to say, ask in a dialog. Raises LocalKVError."""
    if text:
        key, _, value = text.partition(" ")
        _keep_sampling(screen, changed_setting(screen.desk.sampling, key, value))
        return

    def done(answer: SamplingSection | None) -> None:
        if answer is not None:
            _keep_sampling(screen, answer)

    screen.app.push_screen(Sampling(screen.desk.sampling), _guarded(screen, done))


def settle_system(screen: "ChatScreen", text: str) -> None:
    """Ask for another system prompt, beginning with `text` or the present one; the price is said. Raises LocalKVError."""
    desk = screen.desk
    if screen.stage.runs.of(desk.key) is not None:
        stops = screen.keyed("[cancel] stops it")
        raise ConversationError(f"an answer is still being written or saved; {stops}, then the system prompt can change")
    price = price_of(desk.store.path(desk.key)) if desk.key else Price(0, None)

    def done(answer: str | None) -> None:
        if answer is not None and answer != desk.system:
            desk.set_system(answer)
            screen.stage.show_again()

    screen.app.push_screen(SystemPrompt(text or desk.system, price), _guarded(screen, done))


def _keep_sampling(screen: "ChatScreen", sampling: SamplingSection) -> None:
    screen.desk.set_sampling(sampling)
    screen.say(describe(sampling))


def _guarded(screen: "ChatScreen", done: Callable[[Answer | None], None]) -> Callable[[Answer | None], None]:
    """`done`, with a failure that localkv names shown as a notice."""

    def told(answer: Answer | None) -> None:
        try:
            done(answer)
        except LocalKVError as error:
            screen.say(str(error), "error")

    return told
