"""The conversations of one person: every question and answer, with their token ids, durable when a call returns.

Torch-free; knows no tokenizer and no engine. Thread: any one at a time, a lock sees to it; several processes may have the
same database open. Messages are only added: an edit or a new try is a sibling, and `erase` is the only way to lose text.
All methods raise NotWritable when the database refuses (it stays usable, the call may be repeated) and UnknownConversation
for an id that is not there.
"""

import builtins
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from localkv.chat import rows
from localkv.chat.arrivals import take_in
from localkv.chat.backups import begin_daily_backup
from localkv.chat.conversations import check_name
from localkv.chat.database import BUSY_SECONDS, Database
from localkv.chat.imports.incoming import Arrival
from localkv.chat.logs import read_logs
from localkv.chat.migrations import MIGRATIONS, Migration, Progress, silent
from localkv.chat.prompts import PromptTable
from localkv.chat.search import Hit, find
from localkv.chat.tree import Message
from localkv.chat.writers import is_elsewhere
from localkv.errors import ImportRefused

__all__ = ["ConversationStore", "check_name"]


class ConversationStore(PromptTable):
    """All conversations of one database."""

    @classmethod
    def open(
        cls,
        path: Path,
        backups: Path,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        busy_seconds: float = BUSY_SECONDS,
        clock: Callable[[], float] = time.time,
        progress: Progress = silent,
    ) -> "ConversationStore":
        """The store in the file `path`, made if missing; before its schema changes it is backed up into `backups`.

        `progress` hears of long changes. Raises SchemaTooNew, NotWritable, and ConversationError for a damaged file, naming the backups.
        """
        return cls(Database.open(path, backups, migrations, busy_seconds, progress), clock)

    def begin_daily_backup(self, tell: Callable[[str], None]) -> threading.Thread:
        """Back up in a thread, at most once a day; `tell` gets what went wrong, on that thread. Join it before `close`."""
        return begin_daily_backup(self._database.path, self._database.backups, len(MIGRATIONS), tell)

    def close(self) -> None:
        """Release the file. May be called twice."""
        self._erasures.leave()
        self._database.close()

    def token_logs(self, conversation: str | None = None) -> builtins.list[tuple[str, bytes]]:
        """(conversation, ids) of every path from a root to a leaf; of this conversation, or of all, the trash included.

        All of them take 0.6 s with 100,000 messages: they are read while others go on.
        """
        with self._database.beside() if conversation is None else self._database.reading() as connection:
            return [*read_logs(connection, conversation)]

    def search(self, text: str, limit: int = 50) -> builtins.list[Hit]:
        """What `text` asks for (`chat/query`), the newest first, outside the trash, each once, however often it was copied.

        Raises SearchRefused. On a connection of its own: nobody waits for a search that has to read everything.
        """
        with self._database.beside() as connection:
            return find(connection, text, limit)

    def messages(self, conversation: str) -> builtins.list[Message]:
        """All messages of a conversation, on all branches, in the order of writing; those taken away are among them."""
        with self._database.reading() as connection:
            found = connection.execute(
                rows.SELECT_MESSAGES + "WHERE conversation = ? ORDER BY seq", (conversation,)
            ).fetchall()
        return [rows.to_message(row) for row in found]

    def taken_away(self, conversation: str) -> builtins.list[str]:
        """The ids of the messages that were taken away, with all below them."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT message FROM hidden JOIN messages ON id = message WHERE conversation = ?", (conversation,)
            ).fetchall()
        return [str(row[0]) for row in found]

    def take_in(self, arrivals: Sequence[Arrival]) -> builtins.list[int | ImportRefused]:
        """Conversations from elsewhere, in one transaction: of each, how many messages were new, or why it was refused."""
        results: builtins.list[int | ImportRefused] = []
        with self._database.writing() as connection:
            taken = {str(row[0]) for row in connection.execute("SELECT name FROM conversations")}
            for arrival in arrivals:
                try:
                    results.append(take_in(connection, arrival, taken))
                except ImportRefused as error:
                    results.append(error)
        return results

    def recover(self) -> int:
        """Mark answers that a crash left "streaming" as "cut", keeping their text and ids; returns how many.

        Answers that another living process streams are left alone.
        """
        with self._database.reading() as connection:
            streaming = connection.execute("SELECT id, writer FROM messages WHERE state = 'streaming'").fetchall()
        orphans = [row for row in streaming if not is_elsewhere(row[1])]
        if not orphans:
            return 0
        with self._database.writing() as connection:
            return connection.executemany(
                "UPDATE messages SET state = 'cut', writer = NULL WHERE id = ? AND writer IS ? AND state = 'streaming'",
                orphans,
            ).rowcount
