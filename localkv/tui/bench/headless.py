"""The real screen without a terminal, for the bench: opened, driven, waited for. Thread: main, inside an event loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from localkv.chat.store import ConversationStore
from localkv.config import Config
from localkv.errors import EngineUnavailable
from localkv.paths import Home
from localkv.service.client import Resume
from localkv.service.protocol import AnyReply, AnyRequest, Flushed, Snapshot
from localkv.tui.app import LocalKVApp
from localkv.tui.ports import Chat, Client
from localkv.tui.screen import ChatScreen

SIZE = (120, 36)
PATIENCE_SECONDS = 300.0
REST_SECONDS = 0.1
_POLL_SECONDS = 0.01


class NoEngine:
    """A Client without an engine: the screen says "off" and everything else works."""

    latest_snapshot: Snapshot | None = None
    alive = False
    resumes: dict[str, Resume]

    def __init__(self) -> None:
        self.resumes = {}

    def connect(self) -> None:
        """Always raises EngineUnavailable."""
        raise EngineUnavailable("this bench has no engine")

    def next_request(self) -> int:
        return 1

    def send(self, request: AnyRequest) -> None:
        """Nobody gets it."""

    def hint(self, request: AnyRequest) -> None:
        """Nobody gets it."""

    def replies(self, request_id: int, timeout: float | None = None) -> Iterator[AnyReply]:
        """None ever come."""
        del request_id, timeout
        return iter(())

    def leave(self, timeout: float) -> Flushed | None:
        """There is nothing to save."""
        del timeout
        return None


@asynccontextmanager
async def screen_of(
    home: Home, config: Config, store: ConversationStore, chat: Chat, client: Client, session: str
) -> AsyncIterator[ChatScreen]:
    """The chat screen with a conversation open, until the block ends."""
    app = LocalKVApp(home, config, store, chat, client, session=session)
    async with app.run_test(size=SIZE):
        await until(lambda: app.screen is app.chat_screen, "the chat screen")
        yield app.chat_screen


async def until(true: Callable[[], object], what: str, every: float = _POLL_SECONDS) -> None:
    """Let the screen work until something is true, asked `every` so many seconds. Raises EngineUnavailable if it takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise EngineUnavailable(f"the bench waited {PATIENCE_SECONDS:.0f} s for {what}, which never came")
        await asyncio.sleep(every)


async def frame(screen: ChatScreen, do: Callable[[], None]) -> float:
    """Seconds from doing something on a screen at rest to the end of the first frame after it."""
    await asyncio.sleep(REST_SECONDS)  # else what was done before is drawn in the same frame, and paid for here
    painted = asyncio.Event()
    times: list[float] = []

    def mark() -> None:
        times.append(time.perf_counter())
        painted.set()

    began = time.perf_counter()
    screen.call_after_refresh(mark)  # before `do`: what that puts off until after the frame comes after this
    do()
    await painted.wait()
    return times[0] - began


def rss_bytes() -> int:
    """What this process has in memory now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
