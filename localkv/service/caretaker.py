"""Changes to the whole store from a face: done here if no engine runs, else asked of the engine.

Torch-free. The lock of the store decides: whoever holds it is the only writer. Thread: any; blocks.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence

import msgspec
from filelock import FileLock, Timeout

from localkv.chat.logs import shared_tokens
from localkv.chat.store import ConversationStore
from localkv.config import Config
from localkv.errors import EngineUnavailable, PathError
from localkv.events import EventLog
from localkv.paths import Home
from localkv.service.answers import Asking, answer_to, running_engine
from localkv.service.protocol import MAX_FRAME_BYTES, Forget, Forgotten, TokenLog, Unload, Unloaded
from localkv.tiers.upkeep import Freed, forget_on_disk

ANSWER_SECONDS = 600.0
"""The engine forgets between two turns, so an answer that is being written is waited for."""

_FRAME_SHARE = MAX_FRAME_BYTES // 4


@contextlib.contextmanager
def alone(home: Home) -> Iterator[bool]:
    """Whether no engine runs; if so none can start inside the block. Raises PathError."""
    lock = FileLock(home.engine_lock, timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    except OSError as error:
        raise PathError(f"cannot lock {home.engine_lock}: {error.strerror}; check the cache directory") from error
    try:
        yield True
    finally:
        lock.release()


def logs_only_in(store: ConversationStore, *conversations: str) -> list[TokenLog]:
    """What to forget of conversations: their token logs, and how much of each is in others, too."""
    return shared_by_others(store, own_logs(store, *conversations), conversations)


def own_logs(store: ConversationStore, *conversations: str) -> list[bytes]:
    """The token logs of conversations, which are gone when they are erased. Quick: reads nothing of the others."""
    return [log for conversation in conversations for _, log in store.token_logs(conversation) if log]


def shared_by_others(store: ConversationStore, own: Sequence[bytes], conversations: Collection[str]) -> list[TokenLog]:
    """The logs of these conversations, erased or not, with how much of each is in others, too. Reads all of them."""
    others = [log for owner, log in store.token_logs() if owner not in conversations]
    return [TokenLog(ids=log, shared=shared_tokens(log, others)) for log in own]


def logs_lost(before: Sequence[tuple[str, bytes]], after: Sequence[tuple[str, bytes]]) -> list[TokenLog]:
    """What to forget once paths are gone: their token logs, and how much of each is in what is left, too."""
    left = [log for _, log in after if log]
    return [TokenLog(ids=log, shared=shared_tokens(log, left)) for _, log in before if log and log not in left]


def forget(home: Home, config: Config, logs: Sequence[TokenLog], names: Sequence[tuple[str, str]] = ()) -> Freed:
    """Remove records from the cache, whoever owns it now. Raises StoreError, EngineError."""
    freed = Freed()
    for request in _portions(logs, names):
        with alone(home) as nobody:
            if nobody:
                freed += forget_on_disk(home.store, EventLog(home.event_log), request)
                continue
        freed += _forget_running(home, config, request)
    return freed


def _portions(logs: Sequence[TokenLog], names: Sequence[tuple[str, str]]) -> Iterator[Forget]:
    """Requests that fit into frames."""
    batch: list[TokenLog] = []
    for log in logs:
        if batch and sum(len(each.ids) for each in batch) + len(log.ids) > _FRAME_SHARE:
            yield Forget(request=0, logs=tuple(batch))
            batch = []
        batch.append(log)
    yield Forget(request=0, logs=tuple(batch), names=tuple(names))


def forget_through(client: Asking, logs: Sequence[TokenLog]) -> Freed:
    """Have the engine of `client` remove records; it is started if none runs. Raises EngineError."""
    client.connect()
    freed = Freed()
    for request in _portions(logs, ()):
        freed += _forget_part(client, request)
    return freed


def unload_through(client: Asking) -> Unloaded:
    """Have the engine of `client` let go of its model, after what is under way. Raises EngineError."""
    client.connect()
    return answer_to(client, Unload(request=client.next_request()), Unloaded, refused="the model could not be unloaded: ")


def _forget_running(home: Home, config: Config, request: Forget) -> Freed:
    """Have the engine that runs remove records; none is started."""
    with running_engine(home, config) as client:
        if client is None:
            raise EngineUnavailable("the engine ended just now; run the command again")
        return _forget_part(client, request)


def _forget_part(client: Asking, portion: Forget) -> Freed:
    request = msgspec.structs.replace(portion, request=client.next_request())
    refused = "the engine could not remove the cached state: "
    forgotten = answer_to(client, request, Forgotten, ANSWER_SECONDS, refused=refused)
    return Freed(forgotten.records, forgotten.n_bytes)
