"""The conversations of a store without their messages: made, listed, named, settled, put away, removed.

Torch-free. Thread: any one at a time, the database's lock sees to it. Methods raise NotWritable when the database refuses
and UnknownConversation for an id that is not there; nothing is half done.
"""

import builtins
import difflib
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Sequence

from localkv.chat import rows
from localkv.chat.database import Database
from localkv.chat.erasures import Erasures, note
from localkv.chat.looking import look
from localkv.chat.tree import Conversation, Message, title_from, well_formed
from localkv.chat.visible import visible
from localkv.chat.writers import this_process
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationExists, UnknownConversation, UnusableName

MAX_NAME = 100
MAX_TAG = 30


class ConversationTable:
    """What a store knows of each conversation as a whole."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._erasures = Erasures(database)
        self._clock = clock
        self._writer = this_process()

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
            refuse_taken(connection, name)
            connection.execute(
                "INSERT INTO conversations (id, name, title, model, sampling, created, updated, system, private)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (key, name, title_from(title), rows.to_json(model), rows.to_json(sampling), now, now, system, private),
            )
            if system:
                first = Message(uuid.uuid4().hex, key, None, "system", system, b"", "complete", now)
                self._add(connection, first)
            return rows.conversation(connection, key)

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
            return rows.conversation(connection, conversation)

    def rename(self, conversation: str, title: str | None = None, name: str | None = None) -> None:
        """Another title, another name, or both. Raises ConversationExists and UnusableName."""
        if name is not None:
            check_name(name)
        with self._database.writing() as connection:
            known = rows.conversation(connection, conversation)
            if name is not None and name != known.name:
                refuse_taken(connection, name)
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
            rows.conversation(connection, conversation)
            if leaf is not None:
                rows.require(connection, conversation, leaf)
            look(connection, conversation, leaf)

    def set_tags(self, conversation: str, tags: Iterable[str]) -> None:
        """Remember the words by which the person sorts it. Raises UnusableName."""
        chosen = sorted({check_tag(tag) for tag in tags})
        self._change(conversation, "UPDATE conversations SET tags = ? WHERE id = ?", rows.to_json(chosen))

    def set_archived(self, conversation: str, archived: bool) -> None:
        """Put it away, or take it back into the list."""
        when = self._clock() if archived else None
        self._change(conversation, "UPDATE conversations SET archived = ? WHERE id = ?", when)

    def set_queue(self, conversation: str, queue: Sequence[str]) -> None:
        """Remember the messages that wait to be sent."""
        texts = [well_formed(text) for text in queue]
        self._change(conversation, "UPDATE conversations SET queue = ? WHERE id = ?", rows.to_json(texts))

    def trash(self, conversation: str) -> None:
        """Take it out of the list; `untrash` brings it back as it was."""
        self._change(conversation, "UPDATE conversations SET trashed = ? WHERE id = ?", self._clock())

    def untrash(self, conversation: str) -> None:
        """Bring it back from the trash."""
        self._change(conversation, "UPDATE conversations SET trashed = ? WHERE id = ?", None)

    def erase(self, *conversations: str) -> str:
        """Remove them with all their messages, for good, from the file, its index and its log. Backups may still have them.

        A sentence: they are removed, and this keeps their bytes in the file until the next start.
        """
        self._remove(conversations)
        return self.try_erasures()

    def erase_soon(self, *conversations: str, tell: Callable[[str], None]) -> None:
        """As `erase`, but the bytes go in a thread, or at the next start; `tell` gets what went wrong, on that thread."""
        self._remove(conversations)
        self.begin_erasures(tell)

    def begin_erasures(self, tell: Callable[[str], None]) -> None:
        """Go on, in a thread, with erasing what an earlier process could not; `close` waits for it a few seconds."""
        self._erasures.begin(tell)

    def try_erasures(self) -> str:
        """Why bytes of what was erased are still in the file, after another try; empty if they are gone."""
        return self._erasures.attempt()

    def complete_erasures(self) -> bool:
        """Whether the bytes of all that was erased are gone from the file, its index and its log now."""
        return self._erasures.complete()

    def _remove(self, conversations: Iterable[str]) -> None:
        with self._database.writing() as connection:
            for conversation in conversations:
                if connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,)).rowcount == 0:
                    raise rows.no_conversation(conversation)
            note(connection)

    def _add(self, connection: sqlite3.Connection, message: Message) -> None:
        if message.parent is not None:
            rows.require(connection, message.conversation, message.parent)
        rows.insert_message(connection, message, self._writer if message.state == "streaming" else None)
        connection.execute(
            "UPDATE conversations SET updated = ?, n_messages = n_messages + ? WHERE id = ?",
            (message.created, message.role != "system", message.conversation),
        )
        look(connection, message.conversation, message.id)

    def _change(self, conversation: str, statement: str, *values: object) -> None:
        with self._database.writing() as connection:
            if connection.execute(statement, (*values, conversation)).rowcount == 0:
                raise rows.no_conversation(conversation)


def check_name(name: str) -> None:
    """Return if `name` can name a conversation; else raise UnusableName."""
    if not name.strip() or name != name.strip() or len(name) > MAX_NAME or visible(name) != name or set(name) & {"\n", "\t"}:
        raise UnusableName(
            f'"{visible(name)[:MAX_NAME]}" cannot be the name of a conversation; write 1 to {MAX_NAME} characters '
            "on one line, without spaces at the ends and without control characters"
        )


def check_tag(tag: str) -> str:
    """`tag` in small letters, if it can be one; else raise UnusableName."""
    tag = tag.strip().removeprefix("#").casefold()
    if not tag or len(tag) > MAX_TAG or visible(tag) != tag or tag.split() != [tag] or "," in tag:
        raise UnusableName(
            f'"{visible(tag)[:MAX_TAG]}" cannot be a tag; write 1 to {MAX_TAG} characters without spaces, commas and '
            "control characters"
        )
    return tag


def refuse_taken(connection: sqlite3.Connection, name: str) -> None:
    """Return if no conversation is called `name`; else raise ConversationExists."""
    row = connection.execute("SELECT trashed FROM conversations WHERE name = ?", (name,)).fetchone()
    if row is not None:
        where = "" if row[0] is None else " (it is in the trash)"
        raise ConversationExists(f'a conversation called "{name}" exists already{where}; take another name')


def _nearest(connection: sqlite3.Connection, name: str) -> str:
    names = [row[0] for row in connection.execute("SELECT name FROM conversations ORDER BY updated DESC")]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
    return "; there are none yet" if not near else "; the nearest names are: " + ", ".join(f'"{each}"' for each in near)
