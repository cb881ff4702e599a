"""The promise, on the real starter model: come back after a restart, bit for bit; and what happens when the cache is bad."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from localkv.chat.store import ConversationStore
from localkv.config import Config, ModelSection, SamplingSection
from localkv.engine.sample import Sampler
from localkv.kv.record import Head
from localkv.messages import Delta
from localkv.paths import Home
from localkv.runtime import Runtime
from localkv.service.client import EngineClient
from localkv.service.turn_events import EngineRestarted, Finished
from localkv.service.turns import Chat
from tests.talk import ONE_THREAD, TEXT, Story, ids_of, open_runtime, prompt_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Told = tuple[Home, Story, list[str]]

LONG = TEXT * 35
"""Some 700 tokens: two full blocks and a tail."""


@pytest.fixture
def starter_home(home: Home, starter_model: Path, engine_lock: None) -> Home:
    """A home in which the starter model is there already."""
    (home.models_dir / "starter").symlink_to(starter_model, target_is_directory=True)
    return home


def say(*arguments: str, **environment: str) -> dict[str, Any]:
    """What `localkv say … --json` prints, run as its own process."""
    command = [sys.executable, "-m", "localkv", "say", *arguments, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_two_processes_equal_one(starter_home: Home) -> None:
    """After the engine ended, the next `say` restores all that was fed from SSD, exactly, and answers as if it had never ended."""
    options = ("--session", "a", "--temperature", "0", "--max-tokens", "16")
    first = say(LONG, *options, "--new")
    second = say("And what happened then?", *options)
    with open_runtime(starter_home, config=Config()) as runtime:
        story = Story()
        whole_first, whole_second = story.ask(runtime, LONG, 16), story.ask(runtime, "And what happened then?", 16)
    assert (first["answer_ids"], second["answer_ids"]) == (ids_of(whole_first), ids_of(whole_second))
    assert whole_second.numbers.restored.slot > 0
    fed = first["prompt_tokens"] + first["generated_tokens"] - 1
    assert second["restored_tokens"] == {"slot": 0, "vram": 0, "ram": 0, "ssd": fed}
    assert second["restored_tokens"]["ssd"] + second["prefilled_tokens"] == second["prompt_tokens"]
    assert (second["fallbacks"], second["exact"]) == ([], True)


def test_a_conversation_in_ram_continues_exactly(starter_home: Home) -> None:
    """Leaving for another conversation and coming back gives the same answer as never leaving, restored from RAM."""
    with open_runtime(starter_home) as runtime:
        stayed, left = Story("stayed"), Story("left")
        stayed.ask(runtime, LONG, 8)
        expected = ids_of(stayed.ask(runtime, "Go on.", 24))
    shutil.rmtree(starter_home.store)
    with open_runtime(starter_home) as runtime:
        left.ask(runtime, LONG, 8)
        Story("other").ask(runtime, "Something else.", 4)
        done = left.ask(runtime, "Go on.", 24)
    assert ids_of(done) == expected
    assert (done.numbers.restored.ram > 0, done.numbers.restored.slot, done.numbers.exact) == (True, 0, True)


def _flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


DAMAGES = {
    "deleted": (lambda file: file.unlink(), "missing_file"),
    "truncated": (lambda file: os.truncate(file, file.stat().st_size - 5000), "short_read"),
    "header byte": (lambda file: _flip(file, 300), "checksum"),
    "payload byte": (lambda file: _flip(file, file.stat().st_size // 2), "checksum"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, starter_model: Path, engine_lock: None) -> Told:
    """A conversation of two blocks and a tail on SSD, and the names of these three records; tests take copies."""
    base = tmp_path_factory.mktemp("told")
    home = Home(base / "config", base / "data", base / "cache", starter_model.parent)
    for folder in (home.config_dir, home.data_dir, home.cache_dir, home.logs):
        folder.mkdir(mode=0o700, parents=True)
    story = Story()
    with open_runtime(home) as runtime:
        story.ask(runtime, LONG, 16)
        assert not runtime.flush(60).problem
        opened = runtime.opened
        assert opened is not None
        assert story.head is not None
        return home, story, [*opened.live.names, story.head.name]


def _copy_home(told: Home, base: Path) -> Home:
    shutil.copytree(told.cache_dir, base / "cache", copy_function=shutil.copy2)
    return Home(base / "config", base / "data", base / "cache", told.models_dir)


def _file_of(home: Home, name: str) -> Path:
    return next(home.store.rglob(f"{name}.safetensors"))


class Drawn:
    """The logits of every draw, for comparison."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logits: list[torch.Tensor] = []
        draw = Sampler.draw

        def noting(sampler: Sampler, logits: torch.Tensor, ids: list[int], position: int) -> int:
            self.logits.append(logits.float().clone())
            return draw(sampler, logits, ids, position)

        monkeypatch.setattr(Sampler, "draw", noting)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_damage_is_noticed_and_costs_only_time(told: Told, tmp_path: Path, damage: str, which: int) -> None:
    """A bad record gives its named reason, everything before it is restored, and the answer is that of a start from there."""
    home, story = _copy_home(told[0], tmp_path), told[1].copy()
    spoil, reason = DAMAGES[damage]
    spoil(_file_of(home, told[2][which]))
    with open_runtime(home) as runtime:
        covered = story.head.tokens if story.head else 0
        done = story.ask(runtime, "And then?", 12)
        assert _reference(runtime, prompt_of(story.lines[:-1]), which * 256, 12) == ids_of(done)
    numbers = done.numbers
    assert numbers.restored.ssd == which * 256
    assert numbers.restored.total + numbers.prefilled_tokens == numbers.prompt_tokens
    assert [(lost.reason, lost.tokens) for lost in numbers.fallbacks] == [(reason, covered - which * 256)]
    assert numbers.exact is False
    assert numbers.inexact_because


def _reference(runtime: Runtime, prompt: list[int], resume_at: int, n: int) -> list[int]:
    """Greedy ids of the same model that computes the prompt itself: all of it is prompt-built up to `resume_at`."""
    from localkv.engine.live import Live
    from localkv.engine.prefill import chunks
    from localkv.engine.slot import Slot

    opened = runtime.opened
    assert opened is not None
    layout = opened.loaded.layout
    assert layout is not None
    live = Live(opened.loaded.model, Slot(layout, 2048, opened.loaded.device), layout, opened.loaded.device)
    live.reset()
    for first, last in (*chunks(0, resume_at, 256), *chunks(resume_at, len(prompt), 256)):
        logits = live.feed(prompt[first:last])
    ids = []
    while len(ids) < n:
        ids.append(int(logits.argmax()))
        if ids[-1] in opened.tokens.stop_ids:
            break
        logits = live.feed(ids[-1:])
    return ids


def test_recomputed_state_is_close_to_one_shot(
    home: Home, starter_model: Path, engine_lock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, next-token logits after losing a block are within 1e-4 of a one-shot prefill by transformers itself."""
    (home.models_dir / "starter").symlink_to(starter_model, target_is_directory=True)
    model, story = ModelSection(dtype="float32"), Story()
    with open_runtime(home, model) as runtime:
        story.ask(runtime, LONG, 8, model)
        runtime.flush(60)
        opened = runtime.opened
        assert opened is not None
        _file_of(home, opened.live.names[1]).unlink()
        opened.keeper.shed()
        Story("other").ask(runtime, "Away.", 2, model)
        drawn = Drawn(monkeypatch)
        done = story.ask(runtime, "And then?", 1, model)
        prompt = torch.tensor([prompt_of(story.lines[:-1])])
        with torch.inference_mode():
            expected = opened.loaded.model(prompt, logits_to_keep=1).logits[0, -1].float()
    assert done.numbers.fallbacks[0].reason == "missing_file"
    assert torch.allclose(drawn.logits[0], expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


def test_other_weights_under_the_same_stat_are_noticed(
    home: Home, starter_model: Path, tmp_path: Path, engine_lock: None
) -> None:
    """Weights replaced by `cp -p` with others of the same size and times: identity_changed, nothing restored, the answer is theirs."""
    from safetensors.torch import load_file, save_file

    folder, other = tmp_path / "model", tmp_path / "other.safetensors"
    shutil.copytree(starter_model, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.3.mlp.down_proj.weight"] *= 0.5
    save_file(weights, other, metadata={"format": "pt"})
    stamp = (folder / "model.safetensors").stat()
    os.utime(other, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    model, story = ModelSection(name=str(folder)), Story()
    with open_runtime(home, model) as runtime:
        story.ask(runtime, LONG, 8, model)
        runtime.flush(60)
    subprocess.run(["cp", "-p", other, folder / "model.safetensors"], check=True)
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp.st_mtime_ns
    uncached = story.copy()
    uncached.head = None
    with open_runtime(home, model) as runtime:
        done = story.ask(runtime, "And then?", 12, model)
    shutil.rmtree(home.store)
    with open_runtime(home, model) as runtime:
        expected = uncached.ask(runtime, "And then?", 12, model)
    assert done.numbers.restored.total == 0
    assert [lost.reason for lost in done.numbers.fallbacks] == ["identity_changed"]
    assert (done.numbers.exact, ids_of(done)) == (False, ids_of(expected))


@pytest.fixture
def chat(starter_home: Home) -> Iterator[tuple[Chat, ConversationStore, EngineClient]]:
    """A face's parts over a real engine process."""
    store = ConversationStore.open(starter_home.database, starter_home.backups)
    client = EngineClient(starter_home, ONE_THREAD)
    yield Chat(store, client), store, client
    client.leave(30)
    store.close()


def test_killing_the_engine_mid_answer_costs_nothing_that_was_shown(
    chat: tuple[Chat, ConversationStore, EngineClient],
) -> None:
    """After kill -9 in the middle of an answer its text is stored, another engine is up, and the answer can be continued."""
    talk, store, client = chat
    sampling = SamplingSection(temperature=0, max_tokens=120)
    conversation = store.create("c", model=ModelSection(), sampling=sampling, system="")
    turn, shown, events = talk.ask(conversation.id, "Tell me a long story about a lighthouse keeper."), "", []
    for event in turn.run():
        events.append(event)
        if isinstance(event, Delta):
            shown += event.text
            if len(shown) > 40 and client.engine_pid:
                os.kill(client.engine_pid, signal.SIGKILL)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.state == "cut"
    assert shown
    assert store.path(conversation.id)[-1].text.startswith(shown)
    assert any(isinstance(event, EngineRestarted) for event in events)
    *_, ended = talk.continue_answer(conversation.id).run()
    assert isinstance(ended, Finished)
    assert ended.text.startswith(shown)
    assert len(ended.text) > len(shown)
    assert ended.numbers is not None
    assert ended.numbers.generated_tokens > 0


def test_the_head_of_a_conversation_is_stored_with_it(chat: tuple[Chat, ConversationStore, EngineClient]) -> None:
    """The finished answer names the record its history ends in, so that another process can find it."""
    talk, store, _ = chat
    conversation = store.create(
        "c", model=ModelSection(), sampling=SamplingSection(temperature=0, max_tokens=4), system="Be brief."
    )
    list(talk.ask(conversation.id, "Hello").run())
    system, question, answer = store.path(conversation.id)
    assert isinstance(answer.head, Head)
    assert answer.head.tokens == (len(system.ids) + len(question.ids) + len(answer.ids)) // 4 - 1
