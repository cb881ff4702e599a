"""Search in the words of all messages: from what a person types to hits with a piece of their text.

Torch-free. Thread: that of the caller, who holds the database. Hits come newest first and not best first: to rank them all
would read every match, and people look for what they said lately. Words are found by their beginning, without accents and
capitals; in scripts that put no spaces between words a query is looked for letter by letter instead. What a fork or another
system prompt copied is one hit, at the place of the first of its copies.
"""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from localkv.chat import rows
from localkv.chat.query import SPOKEN, Part, Query, parse
from localkv.messages import Role

_OPEN, _CLOSE = "\x02", "\x03"
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese: a whole sentence is one word of the index."""
_AROUND = 40
"""Characters shown before and after a hit that was found letter by letter."""
_BEGINNING = 100
"""Characters shown of a message that was found by filters alone."""

_GONE = """
    WITH RECURSIVE gone (id, conversation) AS (
        SELECT messages.id, messages.conversation FROM hidden CROSS JOIN messages ON messages.id = hidden.message
        UNION
        SELECT messages.id, messages.conversation FROM gone JOIN messages
            ON messages.conversation = gone.conversation AND messages.parent = gone.id
    )
    SELECT id FROM gone
"""
"""What was taken away, with all below it. CROSS: SQLite would go through all messages and ask of each whether it is hidden."""
_BY_WORDS = """
    SELECT messages.seq, snippet(words, 0, char(2), char(3), '…', 12)
    FROM words JOIN messages ON messages.seq = words.rowid WHERE words MATCH ?
"""
_ONE_BY_ONE = """
    SELECT messages.seq, messages.text FROM messages WHERE messages.state != 'streaming'
"""
"""0.1 s for 100,000 messages."""
_COPIES = """
    WITH found (text, first) AS (
        SELECT messages.text, coalesce(copies.first, messages.id)
        FROM messages LEFT JOIN copies ON copies.message = messages.id WHERE messages.seq = ?
    )
    SELECT messages.seq, messages.id, messages.role, messages.created, conversations.id, conversations.name, conversations.title
    FROM found CROSS JOIN messages JOIN conversations ON conversations.id = messages.conversation
    WHERE messages.id IN (SELECT found.first UNION ALL SELECT message FROM copies WHERE copies.first = found.first)
        AND messages.text = found.text AND messages.state != 'streaming' AND conversations.trashed IS NULL
    ORDER BY conversations.updated DESC, messages.seq DESC
"""
"""A message and its copies that still say the same, that of the conversation last used first."""


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
    also_in: tuple[str, ...] = ()
    """The names of other conversations that have a copy of it."""


class _Copy(NamedTuple):
    """A row of _COPIES."""

    seq: int
    message: str
    role: Role
    created: float
    conversation: str
    name: str
    title: str


def find(connection: sqlite3.Connection, text: str, limit: int) -> list[Hit]:
    """The newest messages outside the trash that `text` asks for; none if it has neither words nor filters.

    Raises SearchRefused for a filter that cannot be used.
    """
    query = parse(text)
    if query.empty:
        return []
    within = _conversations(connection, query) if query.narrows else None
    gone = {str(key) for (key,) in connection.execute(_GONE)}

    def copies_of(seq: int) -> list[_Copy]:
        found = map(_Copy._make, connection.execute(_COPIES, (seq,)))
        return [each for each in found if each.message not in gone and (within is None or each.conversation in within)]

    show = _shown_as(query)
    with closing(connection.execute(*_scan(query, within))) as scan:
        return [_to_hit(copies, show(piece)) for copies, piece in islice(_once_each(scan, copies_of), limit)]


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


def _conversations(connection: sqlite3.Connection, query: Query) -> set[str]:
    """Those that the filters admit. All are read, as the list of conversations does."""
    found = connection.execute(
        "SELECT id, name, title, tags, json_extract(model, '$.name') FROM conversations WHERE trashed IS NULL"
    )
    return {
        str(key)
        for key, name, title, tags, model in found
        if query.admits(
            title=title or name,
            model=str(model),
            tags=rows.to_texts(tags, f"the tags of conversation {name}") if query.tags else (),
        )
    }


def _scan(query: Query, within: Collection[str] | None) -> tuple[str, list[object]]:
    """The statement, and its values, that gives (seq, piece of text) of all that is found, newest first: copies and what was
    taken away are among it.

    The plus keeps SQLite from going by conversation: it would read and sort all before the first row comes.
    """
    conditions: list[str] = []
    values: list[object] = []

    def demand(condition: str, *wanted: object) -> None:
        conditions.append(f" AND {condition}")
        values.extend(wanted)

    by_words = bool(query.parts) and not _has_unspaced(query)
    if by_words:
        values.append(" ".join(_expression(part) for part in query.parts))
    else:
        for part in query.parts:
            demand("instr(messages.text, ?)", part.text)
    roles = query.roles or SPOKEN
    demand(f"messages.role IN ({', '.join('?' * len(roles))})", *roles)
    if query.after is not None:
        demand("messages.created >= ?", _beginning_of(query.after))
    if query.before is not None:
        demand("messages.created < ?", _beginning_of(query.before))
    if within is None:
        demand("(SELECT trashed FROM conversations WHERE id = messages.conversation) IS NULL")
    else:
        demand("+messages.conversation IN (SELECT value FROM json_each(?))", rows.to_json(sorted(within)))
    order = " ORDER BY words.rowid DESC" if by_words else " ORDER BY messages.seq DESC"
    return (_BY_WORDS if by_words else _ONE_BY_ONE) + "".join(conditions) + order, values


def _once_each(scan: Iterable[tuple[int, str]], copies_of: Callable[[int], list[_Copy]]) -> Iterator[tuple[list[_Copy], str]]:
    """Each message with all its copies, the best to open first. It comes where the first of them was written.

    A fork would bring what was said long ago to the top otherwise, and its age would look wrong there.
    """
    known: dict[int, list[_Copy]] = {}
    passed: set[int] = set()
    for seq, piece in scan:
        if seq in passed:
            continue
        copies = known.pop(seq, None) or copies_of(seq)
        first = min((each.seq for each in copies), default=None)
        if first == seq:
            yield copies, piece
        elif first is not None:  # a message that was taken away may be the only one
            known[first] = copies
            passed.update(each.seq for each in copies if each.seq != first)


def _beginning_of(day: date) -> float:
    """Where the person is. Days that no clock of this machine knows are those at the ends of time."""
    try:
        return datetime.combine(day, time()).astimezone().timestamp()
    except (OverflowError, ValueError, OSError):
        return datetime.combine(day, time(), UTC).timestamp()


def _has_unspaced(query: Query) -> bool:
    return any(_UNSPACED.search(part.text) for part in query.parts)


def _expression(part: Part) -> str:
    """`part` as FTS5 understands it: what was quoted as it stands, other words by their beginning."""
    return '"{}"{}'.format(part.text.replace('"', '""'), "" if part.whole else "*")


def _shown_as(query: Query) -> Callable[[str], str]:
    """How the piece of text that `_scan` gives is cut and marked."""
    if not query.parts:
        return _beginning
    return partial(_around, part=query.parts[0].text) if _has_unspaced(query) else str


def _beginning(text: str) -> str:
    return text if len(text) <= _BEGINNING else text[:_BEGINNING] + "…"


def _around(text: str, part: str) -> str:
    at = text.index(part)
    start, end = max(0, at - _AROUND), at + len(part) + _AROUND
    before, after = ("…" if start else "") + text[start:at], text[at + len(part) : end] + ("…" if end < len(text) else "")
    return f"{before}{_OPEN}{part}{_CLOSE}{after}"


def _to_hit(copies: list[_Copy], piece: str) -> Hit:
    best, snippet, marks = copies[0], *marked(piece)
    others = dict.fromkeys(each.name for each in copies if each.conversation != best.conversation)
    return Hit(best.message, best.conversation, best.name, best.title, best.role, best.created, snippet, marks, tuple(others))
