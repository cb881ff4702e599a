"""The conversations of one person: every question and answer, with their token ids, durable when a call returns.

Torch-free; knows no tokenizer and no engine. Thread: any one at a time, a lock sees to it; several processes may have the
same database open. Messages are only added: an edit or a new try is a sibling, and `erase` is the only way to lose text.
All methods raise NotWritable when the database refuses (it stays usable, the call may be repeated) and UnknownConversation
for an id that is not there.
"""

import builtins
import difflib
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from localkv.chat import rows
from localkv.chat.backups import begin_daily_backup
from localkv.chat.database import BUSY_SECONDS, Database
from localkv.chat.logs import read_logs
from localkv.chat.migrations import MIGRATIONS, Migration
from localkv.chat.tree import Conversation, Message, Role, State, title_from, well_formed
from localkv.chat.visible import visible
from localkv.chat.writers import is_elsewhere, this_process
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError, ConversationExists, UnknownConversation, UnusableName
from localkv.kv.record import Head

MAX_NAME = 100

_UP = """
    WITH RECURSIVE up (id) AS (
        VALUES (:leaf)
        UNION
        SELECT messages.parent FROM up JOIN messages
            ON messages.conversation = :conversation AND messages.id = up.id
    )
"""
_BELOW = """
    WITH RECURSIVE below (seq, id, conversation) AS (
        SELECT seq, id, conversation FROM messages WHERE id = ?
        UNION
        SELECT messages.seq, messages.id, messages.conversation FROM below JOIN messages
            ON messages.conversation = below.conversation AND messages.parent = below.id
    )
    SELECT id FROM below ORDER BY seq DESC LIMIT 1
"""


class ConversationStore:
    """All conversations of one database."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._writer = this_process()

    @classmethod
    def open(
        cls,
        path: Path,
        backups: Path,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        busy_seconds: float = BUSY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> "ConversationStore":
        """The store in the file `path`, made if missing; before its schema changes it is backed up into `backups`.

        Raises SchemaTooNew, NotWritable, and ConversationError for a damaged file, naming the backups.
        """
        return cls(Database.open(path, backups, migrations, busy_seconds), clock)

    def begin_daily_backup(self, tell: Callable[[str], None]) -> threading.Thread:
        """Back up in a thread, at most once a day; `tell` gets what went wrong, on that thread. Join it before `close`."""
        return begin_daily_backup(self._database.path, self._database.backups, len(MIGRATIONS), tell)

    def close(self) -> None:
        """Release the file. May be called twice."""
        self._database.close()

    # Conversations

    def create(
        self,
        name: str,
        *,
        model: ModelSection,
        sampling: SamplingSection,
        system: str = "",
        title: str = "",
        private: bool = False,
    ) -> Conversation:
        """A new conversation; a system prompt becomes the message at its root. `private`: its cached state stays off the disk.

        Raises ConversationExists and UnusableName.
        """
        check_name(name)
        now = self._clock()
        key = uuid.uuid4().hex
        system = well_formed(system)
        with self._database.writing() as connection:
            _refuse_taken(connection, name)
            connection.execute(
                "INSERT INTO conversations (id, name, title, model, sampling, created, updated, system, private)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (key, name, title_from(title), rows.to_json(model), rows.to_json(sampling), now, now, system, private),
            )
            if system:
                self._add(connection, self._new(key, None, "system", system, "complete"))
            return _conversation(connection, key)

    def list(self, include_trashed: bool = False) -> builtins.list[Conversation]:
        """All conversations, the one that was last spoken in first. Reads no messages."""
        with self._database.reading() as connection:
            found = connection.execute(
                rows.SELECT_CONVERSATIONS + "WHERE trashed IS NULL OR ? ORDER BY updated DESC, rowid DESC", (include_trashed,)
            ).fetchall()
        return [rows.to_conversation(row) for row in found]

    def by_name(self, name: str) -> Conversation:
        """The conversation called `name`, in the trash or not. Raises UnknownConversation, which says the nearest names."""
        with self._database.reading() as connection:
            row = connection.execute(rows.SELECT_CONVERSATIONS + "WHERE name = ?", (well_formed(name),)).fetchone()
            if row is None:
                raise UnknownConversation(f'no conversation is called "{visible(name)}"' + _nearest(connection, name))
        return rows.to_conversation(row)

    def get(self, conversation: str) -> Conversation:
        """The conversation with this id."""
        with self._database.reading() as connection:
            return _conversation(connection, conversation)

    def rename(self, conversation: str, title: str | None = None, name: str | None = None) -> None:
        """Another title, another name, or both. Raises ConversationExists and UnusableName."""
        if name is not None:
            check_name(name)
        with self._database.writing() as connection:
            known = _conversation(connection, conversation)
            if name is not None and name != known.name:
                _refuse_taken(connection, name)
            connection.execute(
                "UPDATE conversations SET title = ?, name = ? WHERE id = ?",
                (known.title if title is None else title_from(title), known.name if name is None else name, conversation),
            )

    def set_sampling(self, conversation: str, sampling: SamplingSection) -> None:
        """Remember how tokens are drawn in this conversation."""
        self._change(conversation, "UPDATE conversations SET sampling = ? WHERE id = ?", rows.to_json(sampling))

    def set_model(self, conversation: str, model: ModelSection) -> None:
        """Remember which model answers in this conversation."""
        self._change(conversation, "UPDATE conversations SET model = ? WHERE id = ?", rows.to_json(model))

    def set_pinned(self, conversation: str, pinned: bool) -> None:
        """Remember whether it stays on top of the list."""
        self._change(conversation, "UPDATE conversations SET pinned = ? WHERE id = ?", pinned)

    def set_draft(self, conversation: str, draft: str) -> None:
        """Remember what is typed and not sent."""
        self._change(conversation, "UPDATE conversations SET draft = ? WHERE id = ?", well_formed(draft))

    def set_leaf(self, conversation: str, leaf: str | None) -> None:
        """Look at the path that ends in the message `leaf`."""
        with self._database.writing() as connection:
            _conversation(connection, conversation)
            if leaf is not None:
                _require(connection, conversation, leaf)
            connection.execute("UPDATE conversations SET leaf = ? WHERE id = ?", (leaf, conversation))

    def trash(self, conversation: str) -> None:
        """Take it out of the list; `untrash` brings it back as it was."""
        self._change(conversation, "UPDATE conversations SET trashed = ? WHERE id = ?", self._clock())

    def untrash(self, conversation: str) -> None:
        """Bring it back from the trash."""
        self._change(conversation, "UPDATE conversations SET trashed = ? WHERE id = ?", None)

    def erase(self, conversation: str) -> None:
        """Remove it with all its messages, for good, from the file and its log. Backups may still have it."""
        self._change(conversation, "DELETE FROM conversations WHERE id = ?")
        self._database.truncate_log()

    # Messages

    def ask(self, conversation: str, parent: str | None, text: str) -> Message:
        """A new question below `parent`; the person now looks at it. `None`: at the start, below a system prompt if any.

        The first question gives an untitled conversation its title.
        """
        with self._database.writing() as connection:
            known = _conversation(connection, conversation)
            parent = _system_message(connection, conversation) if parent is None else parent
            message = self._new(conversation, parent, "user", well_formed(text), "complete")
            self._add(connection, message)
            if not known.title:
                connection.execute("UPDATE conversations SET title = ? WHERE id = ?", (title_from(text), conversation))
        return message

    def begin_answer(self, conversation: str, parent: str) -> Message:
        """A new, empty answer to `parent` in the state "streaming"; the person now looks at it."""
        with self._database.writing() as connection:
            _conversation(connection, conversation)
            message = self._new(conversation, parent, "assistant", "", "streaming")
            self._add(connection, message)
        return message

    def reopen_answer(self, message: str) -> Message:
        """An unfinished answer that is to be continued, in the state "streaming" again."""
        with self._database.writing() as connection:
            self._write_answer(
                connection, message, "UPDATE messages SET state = 'streaming', writer = ? WHERE id = ?", self._writer
            )
            return _message(connection, message)

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
            found = _message(connection, message)
            connection.execute("UPDATE conversations SET updated = ? WHERE id = ?", (self._clock(), found.conversation))
        return found

    def set_ids(self, message: str, ids: bytes) -> None:
        """The ids of a question or a system prompt, once they are known."""
        with self._database.writing() as connection:
            if connection.execute("UPDATE messages SET ids = ? WHERE id = ?", (ids, message)).rowcount == 0:
                raise _no_message(message)

    def message(self, message: str) -> Message:
        """The message with this id."""
        with self._database.reading() as connection:
            return _message(connection, message)

    def path(self, conversation: str, leaf: str | None = None) -> builtins.list[Message]:
        """The messages from the root to `leaf`; by default to the one that the person looks at. Empty if there is none."""
        with self._database.reading() as connection:
            end = _conversation(connection, conversation).leaf if leaf is None else leaf
            found = connection.execute(
                _UP + rows.SELECT_MESSAGES + "WHERE conversation = :conversation AND id IN up ORDER BY seq",
                {"conversation": conversation, "leaf": end},
            ).fetchall()
        if end is not None and not found:
            raise _no_message(end)
        return [rows.to_message(row) for row in found]

    def children(self, message: str | None, conversation: str) -> builtins.list[Message]:
        """The messages right below `message`, oldest first; `None` gives the roots."""
        with self._database.reading() as connection:
            found = connection.execute(
                rows.SELECT_MESSAGES + "WHERE conversation = ? AND parent IS ? ORDER BY seq", (conversation, message)
            ).fetchall()
        return [rows.to_message(row) for row in found]

    def siblings(self, message: str) -> builtins.list[Message]:
        """All alternatives to `message`, itself among them, oldest first."""
        known = self.message(message)
        return self.children(known.parent, known.conversation)

    def newest_leaf(self, message: str) -> str:
        """The end of the branch below `message` that was written last; itself if nothing is below."""
        with self._database.reading() as connection:
            row = connection.execute(_BELOW, (message,)).fetchone()
        if row is None:
            raise _no_message(message)
        return str(row[0])

    def token_logs(self, conversation: str | None = None) -> builtins.list[tuple[str, bytes]]:
        """(conversation, ids) of every path from a root to a leaf; of this conversation, or of all, the trash included."""
        with self._database.reading() as connection:
            return [*read_logs(connection, conversation)]

    def recover(self) -> int:
        """Mark answers that a crash left "streaming" as "cut", keeping their text and ids; returns how many.

        Answers that another living process streams are left alone.
        """
        with self._database.reading() as connection:
            streaming = connection.execute("SELECT id, writer FROM messages WHERE state = 'streaming'").fetchall()
        orphans = [row for row in streaming if not is_elsewhere(row[1])]
        if not orphans:
            return 0
        with self._database.writing() as connection:
            return connection.executemany(
                "UPDATE messages SET state = 'cut', writer = NULL WHERE id = ? AND writer IS ? AND state = 'streaming'",
                orphans,
            ).rowcount

    # Steps inside a transaction

    def _change(self, conversation: str, statement: str, *values: object) -> None:
        with self._database.writing() as connection:
            if connection.execute(statement, (*values, conversation)).rowcount == 0:
                raise _no_conversation(conversation)

    def _new(self, conversation: str, parent: str | None, role: Role, text: str, state: State) -> Message:
        return Message(uuid.uuid4().hex, conversation, parent, role, text, b"", state, self._clock())

    def _add(self, connection: sqlite3.Connection, message: Message) -> None:
        if message.parent is not None:
            _require(connection, message.conversation, message.parent)
        rows.insert_message(connection, message, self._writer if message.state == "streaming" else None)
        connection.execute(
            "UPDATE conversations SET leaf = ?, updated = ?, n_messages = n_messages + ? WHERE id = ?",
            (message.id, message.created, message.role != "system", message.conversation),
        )

    def _write_answer(self, connection: sqlite3.Connection, message: str, statement: str, *values: object) -> None:
        role = connection.execute("SELECT role FROM messages WHERE id = ?", (message,)).fetchone()
        if role is None:
            raise _no_message(message)
        if role[0] != "assistant":
            raise ConversationError(f"message {message} is of role {role[0]} and cannot be written as an answer")
        connection.execute(statement, (*values, message))


def check_name(name: str) -> None:
    """Return if `name` can name a conversation; else raise UnusableName."""
    if not name.strip() or name != name.strip() or len(name) > MAX_NAME or visible(name) != name or set(name) & {"\n", "\t"}:
        raise UnusableName(
            f'"{visible(name)[:MAX_NAME]}" cannot be the name of a conversation; write 1 to {MAX_NAME} characters '
            "on one line, without spaces at the ends and without control characters"
        )


def _conversation(connection: sqlite3.Connection, key: str) -> Conversation:
    row = connection.execute(rows.SELECT_CONVERSATIONS + "WHERE id = ?", (key,)).fetchone()
    if row is None:
        raise _no_conversation(key)
    return rows.to_conversation(row)


def _message(connection: sqlite3.Connection, key: str) -> Message:
    row = connection.execute(rows.SELECT_MESSAGES + "WHERE id = ?", (key,)).fetchone()
    if row is None:
        raise _no_message(key)
    return rows.to_message(row)


def _require(connection: sqlite3.Connection, conversation: str, message: str) -> None:
    found = connection.execute("SELECT 1 FROM messages WHERE conversation = ? AND id = ?", (conversation, message)).fetchone()
    if found is None:
        raise UnknownConversation(f"message {message} is not in conversation {conversation}")


def _system_message(connection: sqlite3.Connection, conversation: str) -> str | None:
    row = connection.execute(
        "SELECT id FROM messages WHERE conversation = ? AND parent IS NULL AND role = 'system'", (conversation,)
    ).fetchone()
    return None if row is None else str(row[0])


def _refuse_taken(connection: sqlite3.Connection, name: str) -> None:
    row = connection.execute("SELECT trashed FROM conversations WHERE name = ?", (name,)).fetchone()
    if row is not None:
        where = "" if row[0] is None else " (it is in the trash)"
        raise ConversationExists(f'a conversation called "{name}" exists already{where}; take another name')


def _nearest(connection: sqlite3.Connection, name: str) -> str:
    names = [row[0] for row in connection.execute("SELECT name FROM conversations ORDER BY updated DESC")]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
    return "; there are none yet" if not near else "; the nearest names are: " + ", ".join(f'"{each}"' for each in near)


def _no_conversation(key: str) -> UnknownConversation:
    return UnknownConversation(f"there is no conversation with the id {key}; it may have been erased elsewhere")


def _no_message(key: str) -> UnknownConversation:
    return UnknownConversation(f"there is no message with the id {key}; its conversation may have been erased elsewhere")
