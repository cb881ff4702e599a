"""A question to the engine and the one reply that answers it, for those who wait for it.

Torch-free. Thread: any; blocks.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol, TypeVar

from localkv.config import Config
from localkv.errors import EngineError
from localkv.paths import Home
from localkv.service.client import EngineClient
from localkv.service.protocol import AnyReply, AnyRequest, Failed, Progress, Reply

R = TypeVar("R", bound=Reply)


class Asking(Protocol):
    """What a question needs of a client."""

    def connect(self) -> None: ...

    def next_request(self) -> int: ...

    def send(self, request: AnyRequest) -> None: ...

    def replies(self, request_id: int, timeout: float | None = None) -> Iterator[AnyReply]: ...


class _NoEngineError(Exception):
    """Raised in place of starting an engine."""


def answer_to(
    client: Asking,
    request: AnyRequest,
    wanted: type[R],
    seconds: float | None = None,
    *,
    refused: str = "",
    progress: Callable[[Progress], None] | None = None,
) -> R:
    """The reply that answers `request`; what comes before it goes to `progress`.

    Raises EngineError with the engine's own words, after `refused`, if it could not; EngineUnavailable if it says nothing for `seconds`.
    """
    client.send(request)
    for reply in client.replies(request.request, seconds):
        if isinstance(reply, wanted):
            return reply
        if isinstance(reply, Failed):
            raise EngineError(f"{refused}{reply.message}")
        if isinstance(reply, Progress) and progress is not None:
            progress(reply)
    raise EngineError(f"the engine did not answer {type(request).__name__}; see localkv logs --engine")


@contextlib.contextmanager
def running_engine(home: Home, config: Config) -> Iterator[EngineClient | None]:
    """A client of the engine that runs; None if none does: none is started. Raises EngineUnavailable if one runs and does not answer."""
    client = EngineClient(home, config, spawn=_refuse)
    try:
        client.connect()
    except _NoEngineError:
        yield None
        return
    try:
        yield client
    finally:
        client.close()


def _refuse() -> NoReturn:
    raise _NoEngineError
