"""What the screen tells the engine ahead of time: what is opened, written and likely. Knows no widgets.

Hints may be lost; none is given of a conversation whose answer is under way or not stored yet, because it would be outdated when the
engine comes to it. Thread: the UI's.
"""

from collections.abc import Callable, Sequence

from localkv.service.hints import Draft, Hints
from localkv.tui.desk import Desk
from localkv.tui.ports import Chat
from localkv.tui.runs import Runs


class Foresight:
    """Hints for the open conversation. `written` gives the message in the composer, `seen` the conversations in view."""

    def __init__(
        self, hints: Hints, desk: Desk, runs: Runs, chat: Chat, written: Callable[[], str], seen: Callable[[], Sequence[str]]
    ) -> None:
        self._hints = hints
        self._desk = desk
        self._runs = runs
        self._chat = chat
        self._written = written
        self._seen = seen
        self._has_news = False
        self._has_looked = False

    def opened(self) -> None:
        """Another conversation is open, or the engine is ready for it: the engine may bring it, and read what is written in it."""
        if self._desk.key and not self._runs.busy(self._desk.key):
            self._hints.open(self._desk.key)
        self.typed()
        self.news()

    def typed(self) -> None:
        """What is written has changed: the engine may read it, if it is a message and may be sent."""
        key, message = self._desk.key, self._written()
        is_message = bool(message.strip()) and not message.lstrip().startswith("/")
        if not is_message or self._runs.busy(key) or key in self._chat.unsaved:
            self.sent()
        else:
            self._hints.type(Draft(key, self._desk.model, self._desk.system, message))

    def sent(self) -> None:
        """What was written goes its own way."""
        self._hints.drop("typing")

    def news(self) -> None:
        """Records have come or moved; `rest` will ask how far away conversations are now."""
        self._has_news = True

    def looked_around(self) -> None:
        """Other conversations may be in view; `rest` will ask about them."""
        self._has_looked = True

    def rest(self) -> bool:
        """Nothing moves any more: ask, once after each change, and let the engine think of what may be next; whether it was asked."""
        news, looked = self._has_news, self._has_looked
        self._has_news = self._has_looked = False
        if news or looked:
            self._hints.look(self._seen())
        if news:
            self._hints.think(self._desk.model, self._desk.key)
        return news or looked
