"""What a face tells the engine ahead of time, and asks it about conversations that are not open.

Hints are made on a thread of their own, because they read the store: whoever gives one never waits. They have no reply,
start no engine and may be lost. The newest of each kind replaces the one before it; what is typed is told when the hands have
rested. Torch-free. Thread: any may call anything; while nothing was given, nothing wakes.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from localkv.chat.store import ConversationStore
from localkv.chat.tree import Message, well_formed
from localkv.config import ModelSection
from localkv.errors import LocalKVError
from localkv.kv.record import Head
from localkv.service.client import Resume
from localkv.service.protocol import AnyRequest, Line, Look, Typing, Want, Warm, Why

REST_SECONDS = 0.25
"""So long hands must rest."""

HEADLESS = 8
"""So many messages without a record may end a conversation; of one with more, the next turn will see."""

LIKELY = 8
"""Conversations that are thought of while nobody does anything: those that were spoken in last, pinned ones first."""

Kind = Literal["look", "open", "rest", "typing", "likely"]


@dataclass(frozen=True, slots=True)
class Draft:
    """What is typed, and where. `conversation` is empty for one that is not stored yet, which will begin with `system`."""

    conversation: str
    model: ModelSection
    system: str
    text: str


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

    def look(self, conversations: Sequence[str]) -> None:
        """Ask how far away these conversations are, such as those in view; `resumes` has the answer soon."""
        self._give("look", 0.0, lambda: self._look(conversations))

    def open(self, conversation: str) -> None:
        """A conversation was opened: it comes into the slot."""
        self.drop("typing")
        self._give("open", 0.0, lambda: self._warm(conversation, "open"))

    def rest(self, conversation: str) -> None:
        """The cursor rests on this conversation: it comes into RAM."""
        self._give("rest", 0.0, lambda: self._warm(conversation, "rest"))

    def type(self, draft: Draft) -> None:
        """So much is typed; if the hands rest, it is read."""
        self._give("typing", self._rest_seconds, lambda: self._typing(draft))

    def think(self, model: ModelSection, opened: str) -> None:
        """Nobody does anything: the conversations that are likely next, of this model and without the open one, come into RAM."""
        self._give("likely", 0.0, lambda: self._likely(model, opened))

    def drop(self, kind: Kind) -> None:
        """Nothing of this kind that has not been said by now is to be said."""
        with self._changed:
            self._waiting.pop(kind, None)

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

    def _look(self, conversations: Sequence[str]) -> AnyRequest | None:
        leaves = {key: self._store.get(key).leaf for key in conversations}
        heads = {key: head for key, leaf in leaves.items() if (head := self._newest_head(leaf)) is not None}
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

    def _warm(self, conversation: str, why: Why) -> AnyRequest | None:
        want = self._want(conversation)
        if want is None:
            return None
        return Warm(request=0, model=self._store.get(conversation).model, wants=(want,), why=why)

    def _likely(self, model: ModelSection, opened: str) -> AnyRequest | None:
        listed = [each for each in self._store.list() if each.archived is None and each.model == model and each.id != opened]
        first = sorted(listed, key=lambda each: not each.pinned)[:LIKELY]
        wants = tuple(want for each in first if (want := self._want(each.id)) is not None)
        return Warm(request=0, model=model, wants=wants, why="likely") if wants else None

    def _want(self, conversation: str) -> Want | None:
        """The conversation as it would be asked for; None if it has no record yet."""
        path = self._store.path(conversation)
        head = newest_head(path)
        if head is None:
            return None
        known = itertools.takewhile(lambda message: message.ids, path)
        return Want(conversation=conversation, ids=b"".join(message.ids for message in known), head=head)

    def _typing(self, draft: Draft) -> AnyRequest | None:
        path = self._store.path(draft.conversation) if draft.conversation else []
        lines = [Line(role=message.role, text=message.text, ids=message.ids) for message in path]
        if draft.system and not draft.conversation:
            lines = [Line(role="system", text=well_formed(draft.system))]
        return Typing(
            request=0, conversation=draft.conversation, model=draft.model, lines=tuple(lines), text=well_formed(draft.text),
            head=newest_head(path),
        )  # fmt: skip


def newest_head(path: Sequence[Message]) -> Head | None:
    """The newest record that a message on `path` names."""
    return next((message.head for message in reversed(path) if message.head is not None), None)
