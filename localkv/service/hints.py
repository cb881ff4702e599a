"""What a face tells the engine ahead of time, and asks it about conversations that are not open.

Hints are made on a thread of their own, because they read the store: whoever gives one never waits. They have no reply,
start no engine and may be lost. The newest of each kind replaces the one before it; those that follow a person's hands are
sent when the hands have rested. Torch-free. Thread: any may call anything; while nothing was given, nothing wakes.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from localkv.chat.store import ConversationStore
from localkv.errors import LocalKVError
from localkv.kv.record import Head
from localkv.service.client import Resume
from localkv.service.protocol import AnyRequest, Look

REST_SECONDS = 0.25
"""So long hands must rest."""

HEADLESS = 8
"""So many messages without a record may end a conversation; of one with more, the next turn will see."""

Kind = Literal["look"]


class Engine(Protocol):
    """What hints need of `service.client.EngineClient`."""

    @property
    def alive(self) -> bool: ...

    @property
    def resumes(self) -> Mapping[str, Resume]: ...

    def next_request(self) -> int: ...

    def hint(self, request: AnyRequest) -> None: ...


class Hints:
    """The way of hints from a face to its engine."""

    def __init__(self, store: ConversationStore, engine: Engine, rest_seconds: float = REST_SECONDS) -> None:
        self._store = store
        self._engine = engine
        self._rest_seconds = rest_seconds
        self._changed = threading.Condition()
        self._waiting: dict[Kind, tuple[float, Callable[[], AnyRequest | None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        self._heads: dict[str, Head] = {}

    # ---- what a face says ----

    def look(self) -> None:
        """Ask how far away each conversation is; `resumes` has the answer soon."""
        self._give("look", 0.0, self._look)

    @property
    def resumes(self) -> dict[str, Resume]:
        """By id of conversation: what coming back to it will take, as of the last `look` that was answered."""
        known = self._engine.resumes
        return {conversation: known[head.name] for conversation, head in self._heads.items() if head.name in known}

    def close(self) -> None:
        """Give no more hints; when this returns, the store is not read any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    # ---- the thread ----

    def _give(self, kind: Kind, rest_seconds: float, make: Callable[[], AnyRequest | None]) -> None:
        if not self._engine.alive:
            return
        with self._changed:
            self._waiting[kind] = (time.monotonic() + rest_seconds, make)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="hints", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while (make := self._next()) is not None:
            with contextlib.suppress(LocalKVError):  # what a hint meets, what the person does next meets too, and says it
                request = make()
                if request is not None:
                    self._engine.hint(request)

    def _next(self) -> Callable[[], AnyRequest | None] | None:
        """The hint whose time has come; waits for one. None to end."""
        with self._changed:
            while not self._closed:
                if not self._waiting:
                    self._changed.wait()
                    continue
                kind, (due, make) = min(self._waiting.items(), key=lambda item: item[1][0])
                if (seconds := due - time.monotonic()) <= 0:
                    del self._waiting[kind]
                    return make
                self._changed.wait(seconds)
        return None

    # ---- requests ----

    def _look(self) -> AnyRequest | None:
        heads = {each.id: head for each in self._store.list() if (head := self._newest_head(each.leaf)) is not None}
        self._heads = heads
        return Look(request=0, heads=tuple(heads.values())) if heads else None

    def _newest_head(self, leaf: str | None) -> Head | None:
        for _ in range(HEADLESS):
            if leaf is None:
                return None
            message = self._store.message(leaf)
            if message.head is not None:
                return message.head
            leaf = message.parent
        return None
