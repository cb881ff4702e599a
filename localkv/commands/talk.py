"""What faces without a screen share: the store, the engine's client and their turns, from opening to a durable end.

Knows no output but stderr. Thread: main; Ctrl+C is caught on it and acts from another thread, because a signal handler
must not take locks that the interrupted code may hold.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation
from localkv.commands.output import ProgressLine, say_to, shown_on
from localkv.commands.setup import Setup
from localkv.config import Config, ModelSection, SamplingSection, convert_config
from localkv.errors import NotWritable, UnknownConversation
from localkv.models.reference import absolute_name
from localkv.service.client import EngineClient
from localkv.service.turns import Chat, Turn

LEAVE_SECONDS = 30.0
"""Longer than the engine's own bound for saving what is not on SSD yet."""


@dataclass(frozen=True, slots=True)
class Talk:
    """All that turns need."""

    setup: Setup
    config: Config
    store: ConversationStore
    client: EngineClient
    chat: Chat

    def find(self, name: str) -> Conversation:
        """The conversation of this name, if it is not in the trash. Raises UnknownConversation."""
        conversation = self.store.by_name(name)
        if conversation.trashed is not None:
            raise UnknownConversation(
                f'the conversation "{name}" is in the trash; choose another name, or bring it back first'
            )
        return conversation

    def free_name(self) -> str:
        """A name for a conversation that got none: the time, to the second."""
        base = time.strftime("%Y-%m-%d-%H%M%S")
        taken = {conversation.name for conversation in self.store.list(include_trashed=True)}
        return next(name for n in range(len(taken) + 1) if (name := f"{base}-{n}" if n else base) not in taken)


@contextlib.contextmanager
def open_talk(setup: Setup, errors: TextIO | None = None) -> Iterator[Talk]:
    """A Talk; at the end the engine is left so that what it cached is on SSD. Raises LocalKVError."""
    errors = errors or sys.stderr
    config = setup.load()
    setup.home.prepare()
    bar = ProgressLine(errors)
    store = ConversationStore.open(setup.home.database, setup.home.backups, progress=shown_on(bar))
    bar.end()
    backup = store.begin_daily_backup(lambda problem: say_to(errors, f"[localkv] {problem}"))
    try:
        store.begin_erasures(lambda problem: say_to(errors, f"[localkv] {problem}"))
        try:
            store.recover()
        except NotWritable as error:
            say_to(errors, f"[localkv] {error}")
        client = EngineClient(setup.home, config)
        try:
            yield Talk(setup, config, store, client, Chat(store, client))
        finally:
            leave(client, errors)
    finally:
        backup.join()
        store.close()


def leave(client: EngineClient, errors: TextIO, patience: float = 1.0) -> None:
    """Let the engine save and end if nobody else needs it; tells on `errors` if that takes longer than `patience` or fails."""
    if not client.alive:
        return
    notice = threading.Timer(patience, say_to, (errors, "[cache] saving …"))
    notice.daemon = True
    notice.start()
    try:
        flushed = client.leave(LEAVE_SECONDS)
    finally:
        notice.cancel()
        client.close()
    if flushed is None:
        say_to(errors, "[cache] the engine did not confirm that everything is saved; what is missing will be computed again")
    elif flushed.problem:
        say_to(errors, f"[cache] not everything is saved: {flushed.problem}; it will be computed again")


class Interrupt:
    """Ctrl+C during a turn: the first stops the answer and keeps it, the second stops waiting for that."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.happened = False

    def __call__(self, _number: int, _frame: object) -> None:
        """The signal handler."""
        if self.happened:
            raise KeyboardInterrupt
        self.happened = True
        threading.Thread(target=self._turn.cancel, name="cancel", daemon=True).start()


@contextlib.contextmanager
def interruptible(turn: Turn) -> Iterator[Interrupt]:
    """While the block runs, Ctrl+C stops `turn`. Only on the main thread."""
    interrupt = Interrupt(turn)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def changed_sampling(base: SamplingSection, changes: dict[str, Any], source: str) -> SamplingSection:
    """`base` with `changes`, checked. Raises ConfigError that names `source`, key and value."""
    return convert_config({"sampling": {**msgspec.to_builtins(base), **changes}}, source).sampling


def changed_model(base: ModelSection, changes: dict[str, Any], source: str) -> ModelSection:
    """`base` with `changes`, checked; a path becomes absolute. Code that a model brings is trusted for that model alone.

    Raises ConfigError.
    """
    model = convert_config({"model": {**msgspec.to_builtins(base), **changes}}, source).model
    name = absolute_name(model.name)
    trusted = model.trust_remote_code and (name == absolute_name(base.name) or "trust_remote_code" in changes)
    return msgspec.structs.replace(model, name=name, trust_remote_code=trusted)
