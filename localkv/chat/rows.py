"""Rows of conversations.db as structs, and back; one row by its id.

Begins no transaction. Thread: any. A row that cannot be understood is a ConversationError that names it. Settings that a newer
localkv stored and this one lacks are left out; a wrong value is an error.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from localkv.chat.tree import Conversation, Message
from localkv.config import ModelSection, SamplingSection, Section
from localkv.errors import ConversationError, UnknownConversation
from localkv.kv.record import Head

SELECT_CONVERSATIONS = """
    SELECT id, name, title, model, sampling, system, created, updated, leaf, pinned, trashed, draft, n_messages,
        private, tags, archived, queue
    FROM conversations
"""
SELECT_MESSAGES = """
    SELECT id, conversation, parent, role, text, ids, state, created, head, numbers
    FROM messages
"""

Row = tuple[Any, ...]
AnySection = TypeVar("AnySection", bound=Section)


def to_conversation(row: Row) -> Conversation:
    """The conversation that a row of SELECT_CONVERSATIONS holds."""
    key, name, title, model, sampling, system, created, updated, leaf, pinned, trashed, draft, n_messages, private, *late = row
    tags, archived, queue = late
    return Conversation(
        id=key,
        name=name,
        title=title,
        model=_to_section(model, ModelSection, f"the model of conversation {name}"),
        sampling=_to_section(sampling, SamplingSection, f"the sampling of conversation {name}"),
        system=system,
        created=created,
        updated=updated,
        leaf=leaf,
        pinned=bool(pinned),
        trashed=trashed,
        draft=draft,
        n_messages=n_messages,
        private=bool(private),
        tags=to_texts(tags, f"the tags of conversation {name}"),
        archived=archived,
        queue=to_texts(queue, f"the waiting messages of conversation {name}"),
    )


def to_message(row: Row) -> Message:
    """The message that a row of SELECT_MESSAGES holds."""
    key, conversation, parent, role, text, ids, state, created, head, numbers = row
    try:
        return Message(
            id=key,
            conversation=conversation,
            parent=parent,
            role=role,
            text=text,
            ids=ids,
            state=state,
            created=created,
            head=None if head is None else msgspec.json.decode(head, type=Head),
            numbers=None if numbers is None else msgspec.json.decode(numbers, type=dict[str, Any]),
        )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConversationError(f"the stored message {key} cannot be read ({error}); restore a backup") from error


def to_texts(stored: str, what: str) -> tuple[str, ...]:
    """The list of texts that a column holds; `what` names it where it cannot be read."""
    try:
        return msgspec.json.decode(stored, type=tuple[str, ...])
    except msgspec.MsgspecError as error:
        raise ConversationError(f"{what} are stored as {stored!r}, which cannot be used ({error})") from error


def to_json(value: object) -> str | None:
    """`value` as it is stored; None stays None."""
    return None if value is None else msgspec.json.encode(value).decode()


def insert_message(connection: sqlite3.Connection, message: Message, writer: str | None = None) -> None:
    """Add `message` as the newest row. The caller holds the transaction."""
    connection.execute(
        "INSERT INTO messages (id, conversation, parent, role, state, created, writer, head, numbers, text, ids)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            message.id, message.conversation, message.parent, message.role, message.state, message.created, writer,
            to_json(message.head), to_json(message.numbers), message.text, message.ids,
        ),
    )  # fmt: skip


def note_copies(connection: sqlite3.Connection, copies: Iterable[tuple[str, str]]) -> None:
    """Remember (copy, what it was copied from): search shows what they say once. The caller holds the transaction."""
    connection.executemany(
        "INSERT INTO copies (message, first) SELECT ?1, coalesce((SELECT first FROM copies WHERE message = ?2), ?2)", copies
    )


def conversation(connection: sqlite3.Connection, key: str) -> Conversation:
    """The conversation with this id. Raises UnknownConversation."""
    row = connection.execute(SELECT_CONVERSATIONS + "WHERE id = ?", (key,)).fetchone()
    if row is None:
        raise no_conversation(key)
    return to_conversation(row)


def message(connection: sqlite3.Connection, key: str) -> Message:
    """The message with this id. Raises UnknownConversation."""
    row = connection.execute(SELECT_MESSAGES + "WHERE id = ?", (key,)).fetchone()
    if row is None:
        raise no_message(key)
    return to_message(row)


def require(connection: sqlite3.Connection, conversation: str, message: str) -> None:
    """Return if this message is in that conversation; else raise UnknownConversation."""
    found = connection.execute("SELECT 1 FROM messages WHERE conversation = ? AND id = ?", (conversation, message)).fetchone()
    if found is None:
        raise UnknownConversation(f"message {message} is not in conversation {conversation}")


def no_conversation(key: str) -> UnknownConversation:
    """What to raise where no conversation has this id."""
    return UnknownConversation(f"there is no conversation with the id {key}; it may have been erased elsewhere")


def no_message(key: str) -> UnknownConversation:
    """What to raise where no message has this id."""
    return UnknownConversation(f"there is no message with the id {key}; its conversation may have been erased elsewhere")


def _to_section(stored: str, kind: type[AnySection], what: str) -> AnySection:
    try:
        raw = msgspec.json.decode(stored, type=dict[str, Any])
        return msgspec.convert({key: value for key, value in raw.items() if key in kind.__struct_fields__}, kind)
    except msgspec.MsgspecError as error:
        raise ConversationError(f"{what} is stored as {stored!r}, which cannot be used ({error})") from error
