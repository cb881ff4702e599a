"""The messages of a store: asked, answered, streamed, finished; and the paths through their tree.

Torch-free; knows no tokenizer. Thread: any one at a time, the database's lock sees to it. Messages are only added: an edit
or a new try is a sibling. Methods raise NotWritable when the database refuses and UnknownConversation for an id that is not
there.
"""

import builtins
import sqlite3
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from localkv.chat import rows
from localkv.chat.conversations import ConversationTable
from localkv.chat.looking import UP
from localkv.chat.tree import Message, State, title_from, well_formed
from localkv.errors import ConversationError
from localkv.kv.record import Head
from localkv.messages import Role


class MessageTable(ConversationTable):
    """What is said in each conversation, on all its branches."""

    def ask(self, conversation: str, parent: str | None, text: str) -> Message:
        """A new question below `parent`; the person now looks at it. `None`: at the start, below a system prompt if any.

        The first question gives an untitled conversation its title.
        """
        with self._database.writing() as connection:
            known = rows.conversation(connection, conversation)
            parent = _system_message(connection, conversation) if parent is None else parent
            message = self._new(conversation, parent, "user", well_formed(text), "complete")
            self._add(connection, message)
            if not known.title:
                connection.execute("UPDATE conversations SET title = ? WHERE id = ?", (title_from(text), conversation))
        return message

    def begin_answer(self, conversation: str, parent: str) -> Message:
        """A new, empty answer to `parent` in the state "streaming"; the person now looks at it."""
        with self._database.writing() as connection:
            rows.conversation(connection, conversation)
            message = self._new(conversation, parent, "assistant", "", "streaming")
            self._add(connection, message)
        return message

    def reopen_answer(self, message: str) -> Message:
        """An unfinished answer that is to be continued, in the state "streaming" again."""
        with self._database.writing() as connection:
            self._write_answer(
                connection, message, "UPDATE messages SET state = 'streaming', writer = ? WHERE id = ?", self._writer
            )
            return rows.message(connection, message)

    def checkpoint_answer(self, message: str, text: str, ids: bytes) -> None:
        """Keep what has been streamed so far. Each call waits for the disk: at most once a second."""
        with self._database.writing() as connection:
            self._write_answer(
                connection,
                message,
                "UPDATE messages SET text = ?, ids = ?, state = 'streaming', writer = ? WHERE id = ?",
                well_formed(text), ids, self._writer,
            )  # fmt: skip

    def finish_answer(
        self,
        message: str,
        *,
        text: str,
        ids: bytes,
        state: State,
        head: Head | None,
        numbers: Mapping[str, Any] | msgspec.Struct | None,
    ) -> Message:
        """The whole answer, its ids, how it ended, and where its history is cached."""
        with self._database.writing() as connection:
            self._write_answer(
                connection,
                message,
                "UPDATE messages SET text = ?, ids = ?, state = ?, head = ?, numbers = ?, writer = NULL WHERE id = ?",
                well_formed(text), ids, state, rows.to_json(head), rows.to_json(numbers),
            )  # fmt: skip
            found = rows.message(connection, message)
            connection.execute("UPDATE conversations SET updated = ? WHERE id = ?", (self._clock(), found.conversation))
        return found

    def set_ids(self, message: str, ids: bytes) -> None:
        """The ids of a question or a system prompt, once they are known."""
        with self._database.writing() as connection:
            if connection.execute("UPDATE messages SET ids = ? WHERE id = ?", (ids, message)).rowcount == 0:
                raise rows.no_message(message)

    def message(self, message: str) -> Message:
        """The message with this id."""
        with self._database.reading() as connection:
            return rows.message(connection, message)

    def path(self, conversation: str, leaf: str | None = None) -> builtins.list[Message]:
        """The messages from the root to `leaf`; by default to the one that the person looks at. Empty if there is none."""
        with self._database.reading() as connection:
            end = rows.conversation(connection, conversation).leaf if leaf is None else leaf
            found = connection.execute(
                UP + rows.SELECT_MESSAGES + "WHERE conversation = :conversation AND id IN up ORDER BY seq",
                {"conversation": conversation, "leaf": end},
            ).fetchall()
        if end is not None and not found:
            raise rows.no_message(end)
        return [rows.to_message(row) for row in found]

    def sizes(self) -> dict[str, int]:
        """Tokens of all messages of each conversation, on all branches. 60 ms for 100,000 messages."""
        with self._database.reading() as connection:
            found = connection.execute("SELECT conversation, sum(length(ids)) / 4 FROM messages GROUP BY conversation")
            return dict(found.fetchall())

    def children(self, message: str | None, conversation: str) -> builtins.list[Message]:
        """The messages right below `message`, oldest first; `None` gives the roots."""
        with self._database.reading() as connection:
            found = connection.execute(
                rows.SELECT_MESSAGES + "WHERE conversation = ? AND parent IS ? ORDER BY seq", (conversation, message)
            ).fetchall()
        return [rows.to_message(row) for row in found]

    # Steps inside a transaction

    def _new(self, conversation: str, parent: str | None, role: Role, text: str, state: State) -> Message:
        return Message(uuid.uuid4().hex, conversation, parent, role, text, b"", state, self._clock())

    def _write_answer(self, connection: sqlite3.Connection, message: str, statement: str, *values: object) -> None:
        role = connection.execute("SELECT role FROM messages WHERE id = ?", (message,)).fetchone()
        if role is None:
            raise rows.no_message(message)
        if role[0] != "assistant":
            raise ConversationError(f"message {message} is of role {role[0]} and cannot be written as an answer")
        connection.execute(statement, (*values, message))


def _system_message(connection: sqlite3.Connection, conversation: str) -> str | None:
    row = connection.execute(
        "SELECT messages.id FROM messages JOIN conversations ON conversations.id = messages.conversation"
        " WHERE conversation = ? AND parent IS NULL AND role = 'system' AND text = system ORDER BY seq DESC LIMIT 1",
        (conversation,),
    ).fetchone()
    return None if row is None else str(row[0])
