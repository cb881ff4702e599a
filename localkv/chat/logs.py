"""Token logs: the ids along each path of a conversation, and how much of one belongs to others as well.

Reads the tree of messages and no text. Thread: that of the caller, who holds the connection.
"""

import sqlite3
from collections.abc import Iterable, Iterator

from localkv.kv.record import ID_BYTES

Step = tuple[str | None, bytes]
"""A message's parent and ids."""


def read_logs(connection: sqlite3.Connection, conversation: str | None = None) -> Iterator[tuple[str, bytes]]:
    """(conversation, ids) of every path from a root to a leaf; of one conversation, or of all."""
    query = "SELECT conversation, id, parent, ids FROM messages WHERE ?1 IS NULL OR conversation = ?1 ORDER BY conversation"
    current, steps = "", dict[str, Step]()
    for owner, message, parent, ids in connection.execute(query, (conversation,)):
        if owner != current:
            yield from ((current, log) for log in leaf_logs(steps))
            current, steps = owner, {}
        steps[message] = (parent, ids)
    yield from ((current, log) for log in leaf_logs(steps))


def leaf_logs(steps: dict[str, Step]) -> Iterator[bytes]:
    """The ids along every path to a leaf, up to the first message that was never tokenised."""
    parents = {parent for parent, _ in steps.values()}
    for leaf in steps:
        if leaf not in parents:
            yield _log_of(steps, leaf)


def _log_of(steps: dict[str, Step], leaf: str) -> bytes:
    parts: list[bytes] = []
    step: str | None = leaf
    while step in steps and len(parts) <= len(steps):
        step, ids = steps[step]
        parts.append(ids)
    known: list[bytes] = []
    for ids in reversed(parts):
        if not ids:
            break
        known.append(ids)
    return b"".join(known)


def shared_tokens(log: bytes, others: Iterable[bytes]) -> int:
    """How many tokens at the beginning of `log` some other log begins with, too."""
    best = 0
    for other in others:
        best = max(best, _common(log, other, best * ID_BYTES))
    return best


def _common(a: bytes, b: bytes, at_least: int) -> int:
    """The common prefix in tokens; 0 if it is not longer than `at_least` bytes. Halving: each comparison is one memcmp."""
    if a[:at_least] != b[:at_least]:
        return 0
    low, high = at_least, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low // ID_BYTES
