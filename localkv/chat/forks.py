"""The branches of conversations: versions of a message, which of them is looked at, branches taken away, forks.

Torch-free. Thread: any one at a time, the database's lock sees to it. A fork has copies of the messages it shares, with
their token ids and the names of their records: the ids decide what is reused from the cache, so that a fork computes nothing
again. A branch that was taken away is hidden and not deleted: it comes back whole, and its cached state stays.
"""

import builtins
import sqlite3
import uuid

from localkv.chat import rows
from localkv.chat.conversations import MAX_NAME, check_name, refuse_taken
from localkv.chat.erasures import note
from localkv.chat.looking import look
from localkv.chat.messages import MessageTable
from localkv.chat.tree import Branch, Conversation, Message, copied, title_from, well_formed
from localkv.chat.visible import visible
from localkv.errors import ConversationError, UnknownConversation
from localkv.kv.record import Head

_BELOW = """
    WITH RECURSIVE below (seq, id, conversation) AS (
        SELECT seq, id, conversation FROM messages WHERE id = ?
        UNION
        SELECT messages.seq, messages.id, messages.conversation FROM below JOIN messages
            ON messages.conversation = below.conversation AND messages.parent = below.id
        WHERE messages.id NOT IN (SELECT message FROM hidden)
    )
    SELECT id FROM below ORDER BY seq DESC
"""
_VERSIONS = """
    SELECT parent, id FROM messages
    WHERE conversation = ?1 AND id NOT IN (SELECT message FROM hidden) AND (parent IS NULL OR parent IN
        (SELECT parent FROM messages WHERE conversation = ?1 GROUP BY parent HAVING count(*) > 1))
    ORDER BY seq
"""
"""The inner query reads the index by parent alone: 2,000 messages take less than a millisecond."""
_LEAVES = """
    WITH RECURSIVE shown (seq, id, created, depth) AS (
        SELECT seq, id, created, role != 'system' FROM messages
            WHERE conversation = ?1 AND parent IS NULL AND id NOT IN (SELECT message FROM hidden)
        UNION ALL
        SELECT messages.seq, messages.id, messages.created, shown.depth + 1 FROM shown JOIN messages
            ON messages.conversation = ?1 AND messages.parent = shown.id
        WHERE messages.id NOT IN (SELECT message FROM hidden)
    )
    SELECT id, depth, created FROM shown AS leaf WHERE NOT EXISTS (
        SELECT 1 FROM messages WHERE conversation = ?1 AND parent = leaf.id AND id NOT IN (SELECT message FROM hidden)
    ) ORDER BY seq DESC
"""
_LOOKED_AT = """
    SELECT id, leaf FROM conversations
    WHERE id IN (SELECT messages.conversation FROM hidden JOIN messages ON messages.id = hidden.message)
"""
_TAKEN = """
    WITH RECURSIVE taken (seq, id, conversation) AS (
        SELECT seq, id, conversation FROM messages WHERE id IN (SELECT message FROM hidden)
        UNION
        SELECT messages.seq, messages.id, messages.conversation FROM taken JOIN messages
            ON messages.conversation = taken.conversation AND messages.parent = taken.id
    )
    SELECT id, conversation FROM taken ORDER BY seq DESC
"""


class ForkTable(MessageTable):
    """The branches of each conversation."""

    def versions(self, conversation: str) -> dict[str, tuple[int, int]]:
        """Of each message that has alternatives: which one it is in the order of writing, from 1, and of how many."""
        with self._database.reading() as connection:
            found = connection.execute(_VERSIONS, (conversation,)).fetchall()
        families: dict[str | None, list[str]] = {}
        for parent, message in found:
            families.setdefault(parent, []).append(message)
        return {
            message: (n, len(family))
            for family in families.values()
            if len(family) > 1
            for n, message in enumerate(family, start=1)
        }

    def shown_versions(self, message: str) -> builtins.list[str]:
        """The ids of all alternatives to `message` that were not taken away, itself among them, oldest first."""
        with self._database.reading() as connection:
            known = rows.message(connection, message)
            return _shown_children(connection, known.conversation, known.parent)

    def find_message(self, conversation: str, beginning: str) -> str:
        """The id of the one message of a conversation whose id begins so. Raises UnknownConversation, ConversationError."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT id FROM messages WHERE conversation = ? AND substr(id, 1, ?) = ? LIMIT 2",
                (conversation, len(beginning), well_formed(beginning)),
            ).fetchall()
        if not beginning or not found:
            raise UnknownConversation(f'no message of this conversation has an id that begins with "{visible(beginning)}"')
        if len(found) > 1:
            raise ConversationError(f'several ids begin with "{visible(beginning)}"; write more of it')
        return str(found[0][0])

    def free_name(self, wanted: str) -> str:
        """`wanted`, with a number if a conversation has that name already."""
        wanted = wanted[:MAX_NAME].rstrip()
        taken = {each.name for each in self.list(include_trashed=True)}
        numbered = (f"{wanted[: MAX_NAME - len(str(n)) - 1]}-{n}" for n in range(2, len(taken) + 3))
        return wanted if wanted not in taken else next(name for name in numbered if name not in taken)

    def branches(self, conversation: str) -> builtins.list[Branch]:
        """All paths from the start to an end, the one last written first; branches that were taken away are left out."""
        with self._database.reading() as connection:
            leaf = rows.conversation(connection, conversation).leaf
            found = connection.execute(_LEAVES, (conversation,)).fetchall()
            return [
                Branch(key, rows.message(connection, key).text, depth, created, shown=key == leaf)
                for key, depth, created in found
            ]

    def branch_top(self, leaf: str) -> str:
        """The first message that only the branch ending in `leaf` has. Raises ConversationError if there is no other branch."""
        conversation = self.message(leaf).conversation
        places = self.versions(conversation)
        own = [message.id for message in self.path(conversation, leaf) if message.id in places]
        if not own:
            raise ConversationError("this is the only branch; trash the conversation instead")
        return own[-1]

    def beside(self, leaf: str) -> builtins.list[str]:
        """The first messages of all other branches than the one ending in `leaf`."""
        conversation = self.message(leaf).conversation
        places = self.versions(conversation)
        path = [message.id for message in self.path(conversation, leaf) if message.id in places]
        return [other for message in path for other in self.shown_versions(message) if other != message]

    def look_at(self, message: str) -> str:
        """Look at `message` and what was last written below it; the id of the message that this path ends in.

        It is brought back if it was taken away.
        """
        with self._database.writing() as connection:
            return _look_at(connection, rows.message(connection, message))

    def take_away(self, message: str) -> int:
        """Hide `message` and everything below it; how many messages that are. If it was looked at, what is beside or
        above it now is. `bring_back` undoes it.
        """
        with self._database.writing() as connection:
            known = rows.message(connection, message)
            if known.role == "system":
                raise ConversationError("the system prompt cannot be taken away; trash the conversation instead")
            gone = connection.execute(_BELOW, (message,)).fetchall()
            connection.execute("INSERT OR IGNORE INTO hidden (message, since) VALUES (?, ?)", (message, self._clock()))
            if any(each.id == message for each in self.path(known.conversation)):
                _look_beside(connection, known)
        return len(gone)

    def bring_back(self, message: str) -> str:
        """Show a message that was taken away again, with what is above it, and look at it; the id of the message that this path
        ends in.
        """
        with self._database.writing() as connection:
            connection.execute("DELETE FROM hidden WHERE message = ?", (message,))
            return _look_at(connection, rows.message(connection, message))

    def is_forked(self, head: Head) -> bool:
        """Whether conversations part where this record ends: one that goes on must leave it to the others."""
        with self._database.reading() as connection:
            return connection.execute("SELECT 1 FROM forked_heads WHERE name = ?", (head.name,)).fetchone() is not None

    def erase_taken(self) -> int:
        """Remove what was taken away for good, from the file, its index and its log; how many messages that were.

        What a conversation is looked at stays, whatever else the file says of it. Backups may still have them.
        """
        with self._database.writing() as connection:
            for owner, leaf in connection.execute(_LOOKED_AT).fetchall():
                look(connection, owner, leaf)
            gone = connection.execute(_TAKEN).fetchall()
            connection.executemany("DELETE FROM messages WHERE id = ?", [(key,) for key, _ in gone])
            connection.executemany(
                "UPDATE conversations SET n_messages = n_messages - 1 WHERE id = ?", [(owner,) for _, owner in gone]
            )
            if gone:
                note(connection)
        self.try_erasures()
        return len(gone)

    def fork(self, message: str, name: str, title: str = "") -> Conversation:
        """A new conversation called `name` that shares everything up to `message`, settings and tags too.

        Raises ConversationExists and UnusableName.
        """
        check_name(name)
        with self._database.writing() as connection:
            refuse_taken(connection, name)
            source = rows.conversation(connection, rows.message(connection, message).conversation)
            now = self._clock()
            key = uuid.uuid4().hex
            connection.execute(
                "INSERT INTO conversations (id, name, title, model, sampling, created, updated, system, private, tags)"
                " SELECT ?, ?, ?, model, sampling, ?, ?, system, private, tags FROM conversations WHERE id = ?",
                (key, name, title_from(title or source.title), now, now, source.id),
            )
            shared = self.path(source.id, message)
            copies = copied(shared, key)
            for copy in copies:
                rows.insert_message(connection, copy)
            rows.note_copies(connection, [(copy.id, each.id) for copy, each in zip(copies, shared, strict=True)])
            heads = [copy.head.name for copy in copies if copy.head is not None]
            connection.executemany("INSERT OR IGNORE INTO forked_heads (name) VALUES (?)", [(name,) for name in heads[-1:]])
            n_messages = sum(copy.role != "system" for copy in copies)
            connection.execute("UPDATE conversations SET n_messages = ? WHERE id = ?", (n_messages, key))
            look(connection, key, copies[-1].id)
            return rows.conversation(connection, key)


def _shown_children(connection: sqlite3.Connection, conversation: str, parent: str | None) -> list[str]:
    found = connection.execute(
        "SELECT id FROM messages WHERE conversation = ? AND parent IS ? AND id NOT IN (SELECT message FROM hidden) ORDER BY seq",
        (conversation, parent),
    ).fetchall()
    return [str(key) for (key,) in found]


def _look_at(connection: sqlite3.Connection, message: Message) -> str:
    (leaf,) = connection.execute(_BELOW, (message.id,)).fetchone()
    look(connection, message.conversation, leaf)
    return str(leaf)


def _look_beside(connection: sqlite3.Connection, gone: Message) -> None:
    """Look at the newest alternative to a message that is hidden now; without any, at the message above it."""
    beside = _shown_children(connection, gone.conversation, gone.parent)
    if beside:
        _look_at(connection, rows.message(connection, beside[-1]))
    else:
        look(connection, gone.conversation, gone.parent)
