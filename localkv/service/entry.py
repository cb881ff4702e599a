"""One turn as it should stand in the database, and how much of that stands there already.

Torch-free; knows no engine. `save` may fail at any step when the database refuses writes, and may be called again at any
time: what was written stays written, the rest is tried again. Threads: any; one lock per entry. Invariant: the question is
durable before its answer is begun, and nothing is ever taken back.
"""

import threading
from collections.abc import Mapping
from typing import Any

from localkv.chat.store import ConversationStore
from localkv.chat.tree import Message, State
from localkv.kv.record import Head


class Entry:
    """A question and its answer, a new answer to an old question, or an old answer that goes on."""

    def __init__(
        self,
        store: ConversationStore,
        conversation: str,
        *,
        after: "Entry | str | None",
        question: str | None = None,
        resumed: Message | None = None,
    ) -> None:
        """`after` is the message this hangs on, or an entry that may not be saved yet.

        `question` None: `after` is the question. `resumed`: an answer that is written on.
        """
        self.conversation = conversation
        self.question = question
        self.question_id: str | None = None
        self.question_ids = b""
        self.answer_id: str | None = None if resumed is None else resumed.id
        self.text = "" if resumed is None else resumed.text
        self.ids = b"" if resumed is None else resumed.ids
        self.state: State = "streaming"
        self.head: Head | None = None if resumed is None else resumed.head
        self.after = after
        self.resumes = resumed is not None
        self._store = store
        self._must_reopen = self.resumes
        self._numbers: Mapping[str, Any] | None = None if resumed is None else resumed.numbers
        self._other_ids: dict[str, bytes] = {}
        self._lock = threading.RLock()
        self._unsaved = True

    @property
    def thought_before(self) -> tuple[int, float]:
        """Tokens and seconds of thoughts that an answer had before it went on."""
        numbers = self._numbers or {}
        return numbers.get("thought_tokens", 0), numbers.get("thought_seconds", 0.0)

    @property
    def saved(self) -> bool:
        """Whether the database has all of this entry."""
        return not self._unsaved

    def append(self, text: str, ids: bytes) -> None:
        """More of the answer has arrived."""
        with self._lock:
            self.text += text
            self.ids += ids
            self._unsaved = True

    def finish(self, state: State, *, head: Head | None = None, numbers: Mapping[str, Any] | None = None) -> None:
        """The answer is over: as it stands, it ended in `state`. What is None stays as it was before it went on."""
        with self._lock:
            self.state = state
            self.head = head or self.head
            self._numbers = numbers or self._numbers
            self._unsaved = True

    def replace(self, text: str, ids: bytes) -> None:
        """The answer is exactly this, whatever was appended."""
        with self._lock:
            self.text, self.ids = text, ids
            self._unsaved = True

    def set_question_ids(self, ids: bytes) -> None:
        """The ids of this entry's question are known, or have changed."""
        with self._lock:
            self.question_ids = ids
            self._unsaved = True
            if self.question_id is not None:
                self._other_ids[self.question_id] = ids

    def set_ids(self, message: str, ids: bytes) -> None:
        """The ids of an older message are known, or have changed."""
        with self._lock:
            self._other_ids[message] = ids
            self._unsaved = True

    def save(self) -> None:
        """Bring the database up to this entry; durable when it returns. Raises NotWritable: call it again later."""
        with self._lock:
            if not self._unsaved:
                return
            parent = self._save_question(self._save_before())
            while self._other_ids:
                message, ids = next(iter(self._other_ids.items()))
                self._store.set_ids(message, ids)
                del self._other_ids[message]
            self._save_answer(parent)
            self._unsaved = False

    def _save_before(self) -> str | None:
        """What this hangs on has an id once it is saved."""
        if not isinstance(self.after, Entry):
            return self.after
        self.after.save()
        return self.after.answer_id

    def _save_question(self, parent: str | None) -> str | None:
        if self.question is None:
            return parent
        if self.question_id is None:
            self.question_id = self._store.ask(self.conversation, parent, self.question).id
            if self.question_ids:
                self._other_ids[self.question_id] = self.question_ids
        return self.question_id

    def _save_answer(self, question: str | None) -> None:
        if self.answer_id is None:
            assert question is not None, "an answer hangs on a question"
            self.answer_id = self._store.begin_answer(self.conversation, question).id
        elif self._must_reopen:
            self._store.reopen_answer(self.answer_id)
            self._must_reopen = False
        if self.state != "streaming":
            self._store.finish_answer(
                self.answer_id, text=self.text, ids=self.ids, state=self.state, head=self.head, numbers=self._numbers
            )
        elif self.text or self.ids:
            self._store.checkpoint_answer(self.answer_id, self.text, self.ids)
