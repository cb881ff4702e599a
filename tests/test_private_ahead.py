"""Work ahead in a private conversation: what is typed, opened or preloaded in it never reaches the disk, whatever happens next."""

import base64
import threading
from pathlib import Path

import msgspec
import pytest
from safetensors import safe_open

from localkv.commands.bench.player import CONFIG
from localkv.errors import OutOfMemory, StoreError
from localkv.kv.record import Head, unpack_ids
from localkv.messages import Done, Forget, Line, Submit, Typing, Want, Warm
from localkv.runtime import Runtime
from tests.engine.tiny_engine import make, runtime_of, tiny_sampling
from tests.test_ahead import away, work

pytestmark = pytest.mark.slow

SMALL = msgspec.structs.replace(CONFIG, engine=msgspec.structs.replace(CONFIG.engine, slot_tokens=128))
SECRET = "swordfish at night "
"""Short, so that no block is without it."""


@pytest.fixture(scope="module", params=["llama", "gemma3_text", "falcon_h1"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(request.param, tmp_path_factory.mktemp(request.param) / "model")


class Secret:
    """A private conversation as a face keeps it."""

    def __init__(self, runtime: Runtime, name: str = "secret") -> None:
        self.runtime = runtime
        self.name = name
        self.lines: tuple[Line, ...] = ()
        self.head: Head | None = None

    def ask(self, text: str, hear=lambda reply: None) -> Done:
        """A private turn."""
        assert self.runtime.opened is not None
        asked, replies = (*self.lines, Line(role="user", text=text)), []
        submit = Submit(
            request=1, conversation=self.name, model=self.runtime.opened.loaded.section, lines=asked, private=True,
            sampling=tiny_sampling(8), head=self.head,
        )  # fmt: skip

        def emit(reply) -> None:
            replies.append(reply)
            hear(reply)

        self.runtime.turn(submit, emit, threading.Event())
        done, started = replies[-1], next(reply for reply in replies if type(reply).__name__ == "Started")
        known = [msgspec.structs.replace(line, ids=ids) for line, ids in zip(asked, started.line_ids, strict=True)]
        self.lines, self.head = (*known, Line(role="assistant", text=done.text, ids=done.ids)), done.head
        return done

    def type(self, text: str) -> None:
        """So much is typed, and the engine reads it."""
        section = self.runtime.opened.loaded.section
        self.runtime.hint(
            Typing(request=0, conversation=self.name, model=section, lines=self.lines, text=text, head=self.head)
        )
        work(self.runtime)

    def warm(self, why: str) -> None:
        """It is pointed at, or opened."""
        want = Want(conversation=self.name, ids=b"".join(line.ids for line in self.lines), head=self.head)
        self.runtime.hint(Warm(request=0, model=self.runtime.opened.loaded.section, wants=(want,), why=why))
        work(self.runtime)


def assert_silent(runtime: Runtime) -> None:
    """No record on disk, once all is saved, has a word of the secret, and what was said beside it is there."""
    assert not runtime.flush(30).problem
    texts = []
    for path in runtime._home.store.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            ids = base64.b64decode(file.metadata()["ids"])
        texts.append(runtime.opened.loaded.tokenizer.decode(unpack_ids(ids)))
    assert any("something else" in text for text in texts)
    assert not [text for text in texts if "sword" in text]


def test_what_is_done_ahead_stays_in_memory(folder, tmp_path):
    """Typed, edited, opened, pointed at, sent, typed again, with other conversations in between: nothing of it is written."""
    with runtime_of(folder, tmp_path) as runtime:
        secret = Secret(runtime)
        for text in (SECRET * 6, SECRET * 9):
            secret.type(text)
            away(runtime)
            secret.type(text)
            secret.ask(text)
            secret.type("and then? " + SECRET * 5)
            secret.type("no " + SECRET * 3)
            away(runtime)
            for why in ("rest", "open"):
                secret.warm(why)
            secret.type(SECRET * 8)
            secret.warm("open")
            away(runtime)
            assert_silent(runtime)
        assert secret.ask("what was it?").numbers.restored.total > 100, "RAM has kept it"


def test_what_is_typed_in_a_second_private_conversation_stays_in_memory(folder, tmp_path):
    """It begins like the first one, whose state comes into the slot when enough is typed: what was typed until then gets no record."""
    with runtime_of(folder, tmp_path) as runtime:
        Secret(runtime).ask(SECRET * 15)
        away(runtime)
        second = Secret(runtime, "secret 2")
        for n in (2, 4, 15):
            second.type(SECRET * n)
        away(runtime)
        assert_silent(runtime)
        runtime.opened.keeper.check()


def test_growing_for_a_private_question_writes_nothing(folder, tmp_path):
    """What was typed is in the slot when Enter is pressed, and the slot must be emptied first because it is too small for the answer."""
    with runtime_of(folder, tmp_path, SMALL) as runtime:
        secret = Secret(runtime)
        secret.ask("hello")
        secret.type(SECRET * 12)
        before = runtime.opened.room_tokens
        secret.ask(SECRET * 12)
        assert runtime.opened.room_tokens > before
        away(runtime)
        assert_silent(runtime)


@pytest.mark.parametrize("after", ["Progress", "Started", "Delta"])
def test_a_private_turn_that_fails_leaves_nothing_behind(folder, tmp_path, after):
    """Memory runs out in the middle of it: what the slot holds then is not saved with the next conversation that comes."""
    with runtime_of(folder, tmp_path) as runtime:
        secret = Secret(runtime)

        def fail(reply) -> None:
            if type(reply).__name__ == after:
                raise OutOfMemory(1, 1)

        with pytest.raises(OutOfMemory):
            secret.ask(SECRET * 12, fail)
        secret.warm("open")
        away(runtime)
        assert_silent(runtime)
        secret.type(SECRET * 12)
        with pytest.raises(OutOfMemory):
            secret.ask(SECRET * 12, fail)
        away(runtime)
        assert_silent(runtime)


def test_forgetting_that_fails_leaves_nothing_unsent_behind(folder, tmp_path, monkeypatch):
    """The disk refuses to forget another conversation while something is typed: it is not taken for a message that was sent."""
    with runtime_of(folder, tmp_path) as runtime:
        secret = Secret(runtime)
        secret.ask("hello")
        secret.type(SECRET * 12)

        def refuse(*_: object) -> None:
            raise StoreError("the disk failed")

        monkeypatch.setattr(runtime.opened.keeper, "forget", refuse)
        with pytest.raises(StoreError):
            runtime.forget(Forget(request=0))
        away(runtime)
        assert_silent(runtime)
