"""What the screen needs from the service, so that tests can stand in for it."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from localkv.service.client import Resume
from localkv.service.protocol import AnyReply, AnyRequest, Flushed, Snapshot
from localkv.service.turn_events import TurnEvent


class Turn(Protocol):
    """One question and its answer on their way."""

    def run(self) -> Iterator[TurnEvent]: ...

    def cancel(self) -> None: ...


class Chat(Protocol):
    """Makes turns, and knows what the database does not have."""

    @property
    def unsaved(self) -> tuple[str, ...]: ...

    def retry_unsaved(self) -> str: ...

    def ask(self, conversation_id: str, text: str) -> Turn: ...

    def edit(self, conversation_id: str, message_id: str, text: str) -> Turn: ...

    def regenerate(self, conversation_id: str) -> Turn: ...

    def continue_answer(self, conversation_id: str) -> Turn: ...


class Client(Protocol):
    """The engine."""

    @property
    def latest_snapshot(self) -> Snapshot | None: ...

    @property
    def alive(self) -> bool: ...

    @property
    def resumes(self) -> Mapping[str, Resume]: ...

    def connect(self) -> None: ...

    def next_request(self) -> int: ...

    def send(self, request: AnyRequest) -> None: ...

    def hint(self, request: AnyRequest) -> None: ...

    def replies(self, request_id: int, timeout: float | None = None) -> Iterator[AnyReply]: ...

    def leave(self, timeout: float) -> Flushed | None: ...
