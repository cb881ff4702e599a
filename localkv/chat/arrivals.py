"""Conversations from elsewhere, written into the database: what is there already stays as it is.

Steps inside a transaction that the caller holds. Thread: any. Names that are taken get a number; messages that are there are
not written again, so that the same file can be taken in any number of times.
"""

import sqlite3

from localkv.chat import rows
from localkv.chat.conversations import MAX_NAME, check_name
from localkv.chat.imports.incoming import Arrival
from localkv.chat.looking import look
from localkv.chat.tree import Conversation
from localkv.chat.visible import one_line
from localkv.errors import ImportRefused, UnusableName


def take_in(connection: sqlite3.Connection, arrival: Arrival, taken: set[str]) -> int:
    """Write what is not there yet; how many messages that were. `taken` are all names, and grows. Raises ImportRefused."""
    wanted = arrival.conversation
    known = connection.execute("SELECT 1 FROM conversations WHERE id = ?", (wanted.id,)).fetchone()
    there = _messages_there(connection, arrival)
    fresh = [message for message in arrival.messages if message.id not in there]
    if known is None:
        _insert(connection, wanted, free_name(wanted, taken))
    elif not fresh:
        return 0
    for message in fresh:
        rows.insert_message(connection, message)
    connection.executemany(
        "INSERT OR IGNORE INTO hidden (message, since) VALUES (?, ?)",
        [(each, wanted.updated) for each in arrival.hidden if each not in there],
    )
    connection.execute(
        "UPDATE conversations SET updated = max(updated, :updated), n_messages ="
        " (SELECT count(*) FROM messages WHERE conversation = :id AND role != 'system') WHERE id = :id",
        {"updated": wanted.updated, "id": wanted.id},
    )
    look(connection, wanted.id, wanted.leaf)
    return len(fresh)


def free_name(wanted: Conversation, taken: set[str]) -> str:
    """The name it had, else one after its title, with a number where that is taken; it is taken from now on."""
    base = wanted.name or one_line(wanted.title)
    base = " ".join(base.split())[: MAX_NAME - 8].strip()
    try:
        check_name(base)
    except UnusableName:
        base = "imported"
    name, n = base, 1
    while name in taken:
        n += 1
        name = f"{base}-{n}"
    taken.add(name)
    return name


def _messages_there(connection: sqlite3.Connection, arrival: Arrival) -> set[str]:
    there = set()
    for message in arrival.messages:
        row = connection.execute("SELECT conversation FROM messages WHERE id = ?", (message.id,)).fetchone()
        if row is not None:
            if row[0] != arrival.conversation.id:
                raise ImportRefused(f"its message {message.id} is in another conversation already")
            there.add(message.id)
    return there


def _insert(connection: sqlite3.Connection, wanted: Conversation, name: str) -> None:
    connection.execute(
        "INSERT INTO conversations (id, name, title, model, sampling, created, updated, system, pinned, draft, private, tags,"
        " archived, queue) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            wanted.id, name, wanted.title, rows.to_json(wanted.model), rows.to_json(wanted.sampling), wanted.created,
            wanted.updated, wanted.system, wanted.pinned, wanted.draft, wanted.private, rows.to_json(wanted.tags),
            wanted.archived, rows.to_json(wanted.queue),
        ),
    )  # fmt: skip
