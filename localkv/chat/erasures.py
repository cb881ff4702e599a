"""What was erased and whose bytes are not gone yet: the index of words is merged, and the log emptied, while others go on.

A row of the table `erasures` is written by the transaction that erases, and removed when no file has the words any more: a
process that is killed in between leaves it, and the next start goes on. Thread: the work has one of its own and a connection of
its own, so that readers never wait for it, and writers for one step only. A step is 11 ms, all of them 0.7 s, with 100,000
messages; in one piece they held a writer up for 0.4 s.
"""

import sqlite3
import threading
import time
from collections.abc import Callable

from localkv.chat.database import Database, truncated
from localkv.errors import ConversationError, NotWritable

STILL_READ = (
    "what was erased cannot leave the files of the conversations yet, because another program reads them; the next start of "
    "localkv goes on with it"
)
LEAVE_SECONDS = 5.0
"""How long the end of a chat waits for it."""
_STEP_PAGES = 64
"""Pages of 4 kB that one step writes."""
_TRIES = 20
_PAUSE_SECONDS = 0.05


def note(connection: sqlite3.Connection) -> None:
    """Remember that words have been erased. The caller holds the transaction that erases them."""
    connection.execute("INSERT INTO erasures DEFAULT VALUES")


class Erasures:
    """The erasures of one database that are not complete."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._again = False
        self._leaving = threading.Event()

    def begin(self, tell: Callable[[str], None]) -> None:
        """Complete them in a thread, if there are any; `tell` gets what went wrong, on that thread."""
        with self._database.reading() as connection:
            if not _newest(connection):
                return
        with self._lock:
            self._again = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, args=(tell,), name="erasures", daemon=True)
                self._thread.start()

    def complete(self) -> bool:
        """Return when no file has erased words any more; False if another program's reading forbids that for now.

        Raises NotWritable and ConversationError as the database does; the work is then taken up again later.
        """
        with self._database.reading() as connection:
            if not _newest(connection):
                return True
        with self._database.beside() as connection:
            while newest := _newest(connection):
                self._merge(connection)
                if not self._emptied(connection):
                    return False
                connection.execute("DELETE FROM erasures WHERE n <= ?", (newest,))
        return True

    def attempt(self) -> str:
        """Why erased words are still in a file, after another try; empty if they are gone. Whoever erased has done so all the same."""
        try:
            return "" if self.complete() else STILL_READ
        except NotWritable as error:
            return f"{error}; what was erased leaves the file at the next start"
        except ConversationError as error:
            return str(error)

    def leave(self) -> None:
        """Wait for the thread, if there is one, for a few seconds: what it has not done then is left to the next start."""
        self._leaving.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(LEAVE_SECONDS)

    def _work(self, tell: Callable[[str], None]) -> None:
        while self._is_wanted():
            if problem := self.attempt():
                tell(problem)

    def _is_wanted(self) -> bool:
        """Whether there may be more to do; if not, the next `begin` needs a new thread."""
        with self._lock:
            wanted, self._again = self._again, False
            if not wanted:
                self._thread = None
            return wanted

    def _merge(self, connection: sqlite3.Connection) -> None:
        """Write the index anew in steps, without what was deleted: the first one begins it, the others go on.

        Each is a transaction. Between two of them as much time passes as one takes, unless somebody waits for the end.
        """
        pages, changed = -_STEP_PAGES, 2
        while changed > 1:  # a step with nothing to do changes one row
            before, began = connection.total_changes, time.monotonic()
            connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
            pages, changed = _STEP_PAGES, connection.total_changes - before
            self._leaving.wait(time.monotonic() - began)

    def _emptied(self, connection: sqlite3.Connection) -> bool:
        """Whether the log is in the file and empty. Tried often and never for long: who waits in it holds up writers."""
        for _ in range(_TRIES):
            if truncated(connection):
                return True
            self._leaving.wait(_PAUSE_SECONDS)
        return False


def _newest(connection: sqlite3.Connection) -> int:
    """The number of the newest erasure that is not complete; 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(n), 0) FROM erasures").fetchone()[0])
