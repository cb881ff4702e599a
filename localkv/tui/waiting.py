"""Messages that wait until the model is free, of all conversations: added, taken back, given out in order.

They are stored with their conversation before anything else happens, so that they outlive the face; one is forgotten only
once it is durable as a question. Knows no widgets. Thread: the UI's. Refusals of the store are LocalKVErrors for the caller.
"""

import heapq

from localkv.commands.waiting import Texts, with_one, without
from localkv.errors import ConversationError
from localkv.tui.desk import Desk


class Waiting:
    """The queues of a desk's conversations."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._given: dict[str, str] = {}
        """By conversation: the message that was given out and is not known to be durable yet; it is still stored."""
        self._asked: set[str] = set()
        """Conversations in which what was given out is durable as a question, and the store does not know it yet."""
        self._forgotten: dict[str, list[tuple[float, str]]] = {}
        """By conversation: what was forgotten since the program began, and when."""

    def of(self, conversation: str) -> Texts:
        """The messages that wait in this conversation."""
        if not conversation:
            return ()
        return self._without_given(conversation, self._desk.store.get(conversation).queue)

    @property
    def shown(self) -> Texts:
        """The messages that wait in the open conversation, as it was last read."""
        opened = self._desk.opened
        return self._without_given(opened.id, opened.queue) if opened is not None else ()

    def add(self, text: str, behind: int | None = None) -> None:
        """Let `text` wait in the open conversation, with `behind` messages behind it or at the end.

        Counted from the end: those before it may be given out meanwhile.
        """
        conversation = self._desk.ensure().id
        queue = self.of(conversation)
        self._store(conversation, with_one(queue, text, max(0, len(queue) - (behind or 0))))

    def place(self, text: str, index: int) -> int:
        """Where the message `text` waits in the open conversation: at `index`, if it still does.

        Raises ConversationError if it waits no longer: it was asked or taken back after it was pointed at.
        """
        queue = self.of(self._desk.key)
        if text in queue[index : index + 1]:
            return index
        if text not in queue:
            raise ConversationError("this message waits no longer; nothing was changed")
        return queue.index(text)

    def take(self, index: int) -> str:
        """Take the message at `index` of the open conversation back."""
        queue = self.of(self._desk.key)
        self._store(self._desk.key, without(queue, index))
        return queue[index]

    def forget(self, index: int) -> None:
        """Let the message at `index` of the open conversation wait no longer; `past` keeps it in reach."""
        forgotten = (self._desk.clock(), self.take(index))
        self._forgotten.setdefault(self._desk.key, []).append(forgotten)

    @property
    def past(self) -> list[str]:
        """What was asked in the open conversation and what was forgotten there, oldest first, for recalling it."""
        asked = [(message.created, message.text) for message in self._desk.messages if message.role == "user"]
        both = heapq.merge(asked, self._forgotten.get(self._desk.key, []), key=lambda each: each[0])
        return [text for _, text in both]

    def give(self, conversation: str) -> str | None:
        """The next message of this conversation, to be asked now; None if none waits."""
        queue = self.of(conversation)
        if conversation in self._asked:
            self._store(conversation, queue)
        if not queue or conversation in self._given:
            return None
        self._given[conversation] = queue[0]
        return queue[0]

    def asked(self, conversation: str) -> None:
        """What was given out is durable as a question; it is never given out again, also if the store refuses to forget it now."""
        if conversation in self._given:
            self._asked.add(conversation)
            self._store(conversation, self.of(conversation))

    def ended(self, conversation: str) -> None:
        """The turn is over and nothing of it is unsaved: what was given out and became no question waits again."""
        if conversation not in self._asked:
            self._given.pop(conversation, None)

    def _without_given(self, conversation: str, queue: Texts) -> Texts:
        return queue[1:] if queue and queue[0] == self._given.get(conversation) else queue

    def _store(self, conversation: str, queue: Texts) -> None:
        given = None if conversation in self._asked else self._given.get(conversation)
        self._desk.store.set_queue(conversation, queue if given is None else (given, *queue))
        if given is None:
            self._given.pop(conversation, None)
            self._asked.discard(conversation)
        self._desk.reread(conversation)
