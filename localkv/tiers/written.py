"""How many bytes were written to the store, by day: a table of the catalogue, changed in the commits that make the bytes durable.

Knows SQL and no files. Days are local time, because "today" is a person's. One row a day: ten years are 3,650 rows.
"""

import sqlite3
import time

_TABLE = "CREATE TABLE IF NOT EXISTS written (day TEXT PRIMARY KEY, n_bytes INTEGER NOT NULL) WITHOUT ROWID"
"""Made with the first bytes that are counted: what an earlier version wrote stays usable, also on a full disk."""

_MORE = "INSERT INTO written VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET n_bytes = n_bytes + excluded.n_bytes"


def today(now: float) -> str:
    """The day of `now`, seconds since the epoch."""
    return time.strftime("%Y-%m-%d", time.localtime(now))


def count(db: sqlite3.Connection, now: float, n_bytes: int) -> None:
    """Add `n_bytes` to the day of `now`; part of the caller's transaction."""
    db.execute(_TABLE)
    db.execute(_MORE, (today(now), n_bytes))


def sums(db: sqlite3.Connection, day: str) -> tuple[object, object]:
    """(bytes of `day`, bytes of all days)."""
    if not db.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'written'").fetchone()[0]:
        return 0, 0
    query = "SELECT COALESCE(SUM(n_bytes * (day = ?)), 0), COALESCE(SUM(n_bytes), 0) FROM written"
    of_day, of_all = db.execute(query, (day,)).fetchone()
    return of_day, of_all
