"""logs.db of the command line program `llm`: an SQLite database whose responses stand in conversations, one after the other.

Opened for reading only, and only its plain tables are asked: a view or a trigger in a file of strangers is never run. Thread:
any; holds one conversation at a time.
"""

import contextlib
import datetime as dt
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from localkv.chat.imports.incoming import Incoming, Node
from localkv.errors import ImportRefused

MAGIC = b"SQLite format 3\0"
_TABLES = {
    "conversations": {"id", "name"},
    "responses": {"id", "conversation_id", "prompt", "response", "system", "datetime_utc"},
}
_RESPONSES = """
    SELECT id, prompt, response, system, datetime_utc FROM responses WHERE conversation_id = ? ORDER BY datetime_utc, id
"""


def read_llm(file: Path) -> Iterator[tuple[Incoming, float]]:
    """Each conversation, with the part of the file that is done with it. Raises ImportRefused."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            _check(connection)
            (total,) = connection.execute("SELECT count(*) FROM conversations").fetchone()
            for n, (key, name) in enumerate(connection.execute("SELECT id, name FROM conversations ORDER BY rowid"), 1):
                yield _incoming(str(key), name, connection.execute(_RESPONSES, (key,)).fetchall()), min(1.0, n / max(1, total))
    except sqlite3.Error as error:
        raise ImportRefused(f"the database cannot be read ({error}); it may be damaged") from error


def _check(connection: sqlite3.Connection) -> None:
    for table, needed in _TABLES.items():
        row = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        columns = {each[1] for each in connection.execute(f"PRAGMA table_info({table})")} if row == ("table",) else set()
        if not needed <= columns:
            raise ImportRefused(f'it has no table "{table}" as `llm` makes it; give the logs.db that `llm logs path` names')


def _incoming(key: str, name: object, responses: list[tuple[object, ...]]) -> Incoming:
    nodes: list[Node] = []
    system = ""
    for response, prompt, answer, said, moment in responses:
        when = _seconds(moment)
        system = system or _text(said)
        before = nodes[-1].id if nodes else None
        nodes.append(Node(f"{response}?", before, "user", _text(prompt), when))
        nodes.append(Node(f"{response}!", nodes[-1].id, "assistant", _text(answer), when))
    return Incoming(
        "llm", key, _text(name), tuple(nodes), system=system, tags=("llm",), created=nodes[0].created if nodes else None
    )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _seconds(moment: object) -> float | None:
    try:
        found = dt.datetime.fromisoformat(_text(moment))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()
