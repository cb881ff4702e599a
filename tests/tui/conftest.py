"""A world for the screen: a real store with a frozen clock, an engine and turns that do what the test says."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from localkv.chat.store import ConversationStore
from localkv.config import ChatSection, Config, ModelSection, SamplingSection
from localkv.tui.app import LocalKVApp
from localkv.tui.glyphs import DRAWN, Glyphs
from tests.tui.fakes import NOON, NUMBERS, FakeChat, FakeClient, snapshot

DEADLINE_SECONDS = 10.0


class Clock:
    """Wall time that only tests move."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """What a screen stands on."""

    home: object
    store: ConversationStore
    chat: FakeChat
    client: FakeClient
    clock: Clock

    def talk(self, title: str, *said: str, age: float = 60.0, state: str = "complete") -> str:
        """A stored conversation in which question and answer take turns; its id."""
        self.clock.now = NOON - age
        name = title or "untitled"
        conversation = self.store.create(name, model=ModelSection(), sampling=SamplingSection(), title=title).id
        leaf = None
        for index in range(0, len(said), 2):
            leaf = self.store.ask(conversation, leaf, said[index]).id
            if index + 1 < len(said):
                leaf = self.store.begin_answer(conversation, leaf).id
                last = index + 2 >= len(said)
                self.store.finish_answer(
                    leaf, text=said[index + 1], ids=b"", state=state if last else "complete", head=None, numbers=NUMBERS
                )
        self.clock.now = NOON
        return conversation

    def app(self, *, theme: str = "localkv-dark", glyphs: Glyphs = DRAWN, session: str | None = None, **chat) -> LocalKVApp:
        config = Config(chat=ChatSection(theme=theme, **chat))
        return LocalKVApp(
            self.home, config, self.store, self.chat, self.client,
            glyphs=glyphs, clock=self.clock, ticks=lambda: 0.0, session=session,
        )  # fmt: skip


@pytest.fixture
def world(home, monkeypatch):
    """A store without conversations, and an engine that is ready at once."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr("localkv.tui.stage.SETTLE_TICKS", 2)  # tests need not watch the panel settle
    clock = Clock()
    store = ConversationStore.open(home.database, home.backups, clock=clock)
    chat = FakeChat(store)
    yield World(home, store, chat, FakeClient(shown=snapshot()), clock)
    chat.finish_all()
    store.close()
    monkeypatch.undo()
    time.tzset()


async def until(pilot, true: Callable[[], object], what: str = "") -> None:
    """Let the screen work until something is true."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < deadline, f"this never came to be: {what}\n{text_of(pilot.app)}"
        await pilot.pause(0.01)
    await pilot.pause()


def play(app: LocalKVApp, scene, size: tuple[int, int] = (80, 24)) -> None:
    """Run `scene(pilot)` on `app`."""

    async def act() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(pilot, lambda: app.screen is app.chat_screen, "the chat screen")
            await scene(pilot)

    asyncio.run(act())


def text_of(app: LocalKVApp) -> str:
    """Everything on the screen, row by row."""
    size = app.size
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips(size))


def notices(app: LocalKVApp) -> str:
    """The notices on screen."""
    return "\n".join(notice.message for notice in app._notifications)


def rows_of(widget) -> list[str]:
    """What one line-API widget shows."""
    return [widget.render_line(y).text for y in range(widget.scrollable_content_region.height)]
