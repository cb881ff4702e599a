"""Answers that the database refused: offered to it again every few seconds, on a thread of their own, until it takes them.

No widgets. Thread: the UI's, but for the offering itself.
"""

from collections.abc import Callable

from localkv.tui.feed import Feed
from localkv.tui.ports import Chat

RETRY_SECONDS = 5.0
"""How often an answer that the database refused is offered again."""


class Refused:
    """What the database did not take. `later` calls something after some seconds, `wake` is called when an offer begins."""

    def __init__(self, chat: Chat, later: Callable[[float, Callable[[], None]], object], wake: Callable[[], None]) -> None:
        self._chat = chat
        self._later = later
        self._wake = wake
        self._offer: Feed | None = None

    @property
    def moving(self) -> bool:
        """Whether an offer is on its way."""
        return self._offer is not None

    def offer_soon(self) -> None:
        """Offer it again in a while."""
        self._later(RETRY_SECONDS, self._begin)

    def drain(self) -> bool:
        """Whether an offer has ended since the last call; the next one follows if something is left."""
        if self._offer is None or not self._offer.drain()[1]:
            return False
        self._offer = None
        if self._chat.unsaved:
            self.offer_soon()
        return True

    def _begin(self) -> None:
        if self._offer is None and self._chat.unsaved:
            self._offer = Feed("save again", lambda: iter([self._chat.retry_unsaved()]))
            self._offer.begin()
            self._wake()
