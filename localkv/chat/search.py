"""Search in the words of all messages: from what a person types to hits with a piece of their text.

Torch-free. Thread: that of the caller, who holds the database. Hits come newest first and not best first: to rank them all
would read every match, and people look for what they said lately. Words are found by their beginning, without accents and
capitals; in scripts that put no spaces between words a query is looked for letter by letter instead.
"""

import re
import sqlite3

import msgspec

from localkv.chat import rows
from localkv.chat.tree import Role, well_formed

_OPEN, _CLOSE = "\x02", "\x03"
_PARTS = re.compile(r'"([^"]*)"?|(\S+)')
_WORD = re.compile(r"\w")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese: a whole sentence is one word of the index."""
_AROUND = 40
"""Characters shown before and after a hit that was found letter by letter."""

_GONE = """
    WITH RECURSIVE gone (id, conversation) AS (
        SELECT messages.id, messages.conversation FROM hidden JOIN messages ON messages.id = hidden.message
        UNION
        SELECT messages.id, messages.conversation FROM gone JOIN messages
            ON messages.conversation = gone.conversation AND messages.parent = gone.id
    )
"""
"""What was taken away, with all below it."""
_WORDS = """
    SELECT messages.id, conversations.id, conversations.name, conversations.title, messages.role, messages.created,
        snippet(words, 0, char(2), char(3), '…', 12)
    FROM words JOIN messages ON messages.seq = words.rowid JOIN conversations ON conversations.id = messages.conversation
    WHERE words MATCH ? AND conversations.trashed IS NULL AND messages.id NOT IN (SELECT id FROM gone)
    ORDER BY words.rowid DESC LIMIT ?
"""
_LETTERS = """
    SELECT messages.id, conversations.id, conversations.name, conversations.title, messages.role, messages.created,
        messages.text
    FROM messages JOIN conversations ON conversations.id = messages.conversation
    WHERE messages.seq IN (SELECT seq FROM spoken) AND conversations.trashed IS NULL
        AND messages.id NOT IN (SELECT id FROM gone)
"""


class Hit(msgspec.Struct, frozen=True):
    """A message that was found."""

    message: str
    conversation: str
    name: str
    title: str
    role: Role
    created: float
    snippet: str
    """The text around the first match, on one line."""
    marks: tuple[tuple[int, int], ...]
    """Where in `snippet` the words are."""


def find(connection: sqlite3.Connection, text: str, limit: int) -> list[Hit]:
    """The newest messages outside the trash with all the words of `text`; none for a text without words."""
    text = well_formed(text).replace("\0", " ")
    parts = _parts(text)
    if not parts:
        return []
    if _UNSPACED.search(text):
        found = _by_letters(connection, [part for part, _ in parts], limit)
    else:
        found = connection.execute(_GONE + _WORDS, (match_expression(text), limit)).fetchall()
    return [_to_hit(row) for row in found]


def match_expression(text: str) -> str:
    """`text` as FTS5 understands it: quoted parts as they stand, other words by their beginning. Empty without words."""
    return " ".join('"{}"{}'.format(part.replace('"', '""'), "" if whole else "*") for part, whole in _parts(text))


def forget_words(connection: sqlite3.Connection) -> None:
    """Make the bytes of deleted words go from the index: until it is merged it keeps them. 0.4 s with 100,000 messages."""
    connection.execute("INSERT INTO words (words) VALUES ('optimize')")


def marked(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text without the marks that snippet() puts around words, on one line, and where they were."""
    plain: list[str] = []
    marks: list[tuple[int, int]] = []
    at, start = 0, -1
    for character in text:
        if character == _OPEN:
            start = at
        elif character == _CLOSE:
            marks += [(start, at)] if 0 <= start < at else []
            start = -1
        else:
            plain.append(" " if character.isspace() else character)
            at += 1
    return "".join(plain), tuple(marks)


def _parts(text: str) -> list[tuple[str, bool]]:
    """What is looked for, and whether it was quoted. What has no letter or digit is not in the index and is left out."""
    found = [(quoted or word.strip('"'), bool(quoted)) for quoted, word in _PARTS.findall(text)]
    return [(part, whole) for part, whole in found if _WORD.search(part)]


def _by_letters(connection: sqlite3.Connection, parts: list[str], limit: int) -> list[rows.Row]:
    """As `_WORDS`, by reading all messages: 0.1 s for 100,000 of them."""
    where = "AND instr(messages.text, ?) " * len(parts)
    found = connection.execute(_GONE + _LETTERS + where + "ORDER BY messages.seq DESC LIMIT ?", (*parts, limit)).fetchall()
    return [(*row[:-1], _around(row[-1], parts[0])) for row in found]


def _around(text: str, part: str) -> str:
    at = text.index(part)
    start, end = max(0, at - _AROUND), at + len(part) + _AROUND
    before, after = ("…" if start else "") + text[start:at], text[at + len(part) : end] + ("…" if end < len(text) else "")
    return f"{before}{_OPEN}{part}{_CLOSE}{after}"


def _to_hit(row: rows.Row) -> Hit:
    message, conversation, name, title, role, created, piece = row
    snippet, marks = marked(piece)
    return Hit(message, conversation, name, title, role, created, snippet, marks)
