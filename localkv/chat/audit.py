"""Whether the conversations are what they should be: the file, the tree of messages, ids, heads and settings.

Changes nothing, ever, so a chat may go on meanwhile: conversations are mended by restoring a backup. Thread: any one.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from localkv.chat import rows
from localkv.chat.migrations import MIGRATIONS
from localkv.errors import ConversationError
from localkv.kv.record import ID_BYTES

BUSY_SECONDS = 5.0
RESTORE = "run: localkv sessions restore --list"

_BROKEN_PATHS = """
    SELECT child.id FROM messages AS child LEFT JOIN messages AS above
        ON above.conversation = child.conversation AND above.id = child.parent
    WHERE child.parent IS NOT NULL AND (above.id IS NULL OR above.seq >= child.seq)
"""
"""A parent was written before its children: where that holds for all there is no circle."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that is not as it should be."""

    kind: str
    """database, schema, reference, settings, count, tree, ids or message."""
    what: str


@dataclass(slots=True)
class ChatAudit:
    """What was looked at and what was found."""

    conversations: int = 0
    messages: int = 0
    heads: set[tuple[str, str]] = field(default_factory=set)
    """(identity, name) of every record that a message names."""
    flaws: list[Flaw] = field(default_factory=list)


def audit_conversations(path: Path) -> ChatAudit:
    """Look at all of the database at `path`; one that is not there has no flaw."""
    audit = ChatAudit()
    if not path.exists():
        return audit
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)) as db:
            db.execute("PRAGMA query_only = 1")
            db.execute("BEGIN")  # one moment for all that follows
            audit.flaws += _flaws_of_file(db)
            if not audit.flaws:
                audit.flaws += [*_conversations(db, audit), *_messages(db, audit)]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        audit.flaws.append(Flaw("database", f"{path} cannot be read ({error}); {RESTORE}"))
    return audit


def _flaws_of_file(db: sqlite3.Connection) -> Iterator[Flaw]:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        yield Flaw("schema", f"the conversations were written by a newer localkv (schema {version}); install that one")
    elif version < len(MIGRATIONS):
        (objects,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if objects:
            yield Flaw("schema", f"the conversations have the older schema {version}; any chat brings them up to date")
    for (verdict,) in db.execute("PRAGMA integrity_check(10)"):
        if verdict != "ok":
            yield Flaw("database", f"the conversations are damaged: {verdict}; {RESTORE}")
    for table, *_ in db.execute("PRAGMA foreign_key_check"):
        yield Flaw("reference", f"a row of {table} refers to something that is not there; {RESTORE}")


def _conversations(db: sqlite3.Connection, audit: ChatAudit) -> Iterator[Flaw]:
    counted = dict(db.execute("SELECT conversation, sum(role != 'system') FROM messages GROUP BY conversation"))
    for row in db.execute(rows.SELECT_CONVERSATIONS):
        audit.conversations += 1
        try:
            known = rows.to_conversation(row)
        except ConversationError as error:
            yield Flaw("settings", str(error))
            continue
        found = counted.get(known.id, 0)
        if found != known.n_messages:
            yield Flaw("count", f'"{known.name}" counts {known.n_messages} messages and has {found}')


def _messages(db: sqlite3.Connection, audit: ChatAudit) -> Iterator[Flaw]:
    for (message,) in db.execute(_BROKEN_PATHS):
        yield Flaw("tree", f"the path to message {message} is broken; {RESTORE}")
    for row in db.execute(rows.SELECT_MESSAGES):
        audit.messages += 1
        try:
            message = rows.to_message(row)
        except ConversationError as error:
            yield Flaw("message", str(error))
            continue
        if len(message.ids) % ID_BYTES:
            yield Flaw("ids", f"message {message.id} has {len(message.ids)} bytes of ids, no multiple of {ID_BYTES}")
        if message.head is not None:
            audit.heads.add((message.head.identity, message.head.name))
