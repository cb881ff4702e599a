"""The system prompt of a conversation that has begun: another one is another branch from the start.

What was said is said again below it, with the same words and answers, so that nothing of the old branch is lost and both can be
looked at. Answers keep their token ids, which were sampled; questions are tokenised anew, because a template may write the
system prompt into the first of them. Torch-free. Thread: any one at a time, the database's lock sees to it.
"""

import sqlite3
import uuid
from collections.abc import Sequence

import msgspec

from localkv.chat import rows
from localkv.chat.forks import ForkTable
from localkv.chat.looking import look
from localkv.chat.tree import Conversation, Message, copied, well_formed


class PromptTable(ForkTable):
    """The system prompts of conversations."""

    def set_system(self, conversation: str, system: str) -> Conversation:
        """Look at the same words below the system prompt `system`; empty for none. The path as it was stays a branch."""
        system = well_formed(system)
        with self._database.writing() as connection:
            path = self.path(conversation)
            if system != (path[0].text if path and path[0].role == "system" else ""):
                _say_again(connection, conversation, system, path, self._clock())
            else:
                look(connection, conversation, path[-1].id if path else None)
            return rows.conversation(connection, conversation)


def _say_again(connection: sqlite3.Connection, conversation: str, system: str, path: Sequence[Message], now: float) -> None:
    prompt = Message(uuid.uuid4().hex, conversation, None, "system", system, b"", "complete", now) if system else None
    if prompt is not None:
        rows.insert_message(connection, prompt)
    leaf = prompt.id if prompt is not None else None
    before = [message for message in path if message.role != "system"]
    said = copied(before, conversation, leaf)
    for copy in said:
        ids = copy.ids if copy.role == "assistant" else b""
        rows.insert_message(connection, msgspec.structs.replace(copy, ids=ids, head=None))
        leaf = copy.id
    rows.note_copies(connection, [(copy.id, message.id) for copy, message in zip(said, before, strict=True)])
    connection.execute("UPDATE conversations SET n_messages = n_messages + ? WHERE id = ?", (len(said), conversation))
    look(connection, conversation, leaf)
