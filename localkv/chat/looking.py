"""What a conversation is looked at: the message that its path ends in, and what follows from that.

Steps inside a transaction that the caller holds. Thread: any. No other module writes the columns `leaf` and `system`, save for
a conversation that has just been made: what is looked at is never hidden, and its prompt is the one that its path begins with.
"""

import sqlite3

UP = """
    WITH RECURSIVE up (id) AS (
        VALUES (:leaf)
        UNION
        SELECT messages.parent FROM up JOIN messages
            ON messages.conversation = :conversation AND messages.id = up.id
    )
"""
"""The ids from the message :leaf up to its root."""

_SHOW = "DELETE FROM hidden WHERE +message IN up"
"""The sign keeps SQLite from asking the table for each message of the path: most often it is empty."""
_POINT = """
    UPDATE conversations SET leaf = :leaf, system = coalesce(
        (SELECT text FROM messages WHERE conversation = :conversation AND id IN up AND parent IS NULL AND role = 'system'), ''
    ) WHERE id = :conversation
"""


def look(connection: sqlite3.Connection, conversation: str, leaf: str | None) -> None:
    """Let the path of `conversation` end in `leaf`. What of it was taken away comes back: text that is written below something
    hidden would be erased with it.
    """
    places = {"conversation": conversation, "leaf": leaf}
    connection.execute(UP + _SHOW, places)
    connection.execute(UP + _POINT, places)
