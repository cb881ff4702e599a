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
from localkv.chat.tree import Conversation, Message, well_formed


class PromptTable(ForkTable):
    """The system prompts of conversations."""

    def set_system(self, conversation: str, system: str) -> Conversation:
        """Look at the same words below the system prompt `system`; empty for none. The path as it was stays a branch."""
        system = well_formed(system)
        with self._database.writing() as connection:
            path = self.path(conversation)
            if system != rows.conversation(connection, conversation).system or system != _prompt_of(path):
                _say_again(connection, conversation, system, path, self._clock())
            return rows.conversation(connection, conversation)

    def look_at(self, message: str) -> str:
        """As before; the system prompt is that of the branch."""
        leaf = super().look_at(message)
        conversation = self.message(leaf).conversation
        self._change(
            conversation, "UPDATE conversations SET system = ? WHERE id = ?", _prompt_of(self.path(conversation, leaf))
        )
        return leaf


def _say_again(connection: sqlite3.Connection, conversation: str, system: str, path: Sequence[Message], now: float) -> None:
    said = [message for message in path if message.role != "system"]
    copies: list[Message] = []
    if system:
        copies.append(Message(uuid.uuid4().hex, conversation, None, "system", system, b"", "complete", now))
    for message in said:
        copies.append(
            msgspec.structs.replace(
                message,
                id=uuid.uuid4().hex,
                parent=copies[-1].id if copies else None,
                ids=message.ids if message.role == "assistant" else b"",
                state="stopped" if message.state == "streaming" else message.state,
                head=None,
            )
        )
    for copy in copies:
        rows.insert_message(connection, copy)
    connection.execute(
        "UPDATE conversations SET system = ?, leaf = ?, n_messages = n_messages + ? WHERE id = ?",
        (system, copies[-1].id if copies else None, len(said), conversation),
    )


def _prompt_of(path: Sequence[Message]) -> str:
    return path[0].text if path and path[0].role == "system" else ""
