"""The exactness matrix: for one architecture and dtype, ways in which a conversation can lose or leave its state, one per column.

Each cell runs the product's own turn (Runtime, Keeper, Store, HostPool) on a tiny model in a scratch home, and the same
conversation once more in another runtime with a home of its own, where it never leaves the slot. A cell is

    "exact"           the turn says so, and its logits are those of the run that never left, bit for bit
    "close D"         the turn says that it is not exact and why; D is the distance of its first logits from a one-shot prefill
    "FAILED why"      anything else: above all a turn that says exact and is not

Distance: largest |difference| over largest |logit|. Logits are seen by a forward hook on the model, so the product is as it is.
Imports torch. Thread: main.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from localkv.config import Config, EngineSection, MemorySection, ModelSection, SamplingSection
from localkv.engine.selftest import TOLERANCE
from localkv.events import EventLog
from localkv.kv.record import Head, pack_ids, unpack_ids
from localkv.messages import AnyReply, Done, Line, Progress, Submit
from localkv.opened import Opened
from localkv.paths import Home
from localkv.runtime import Runtime

COLUMNS = (
    "never left", "slot -> RAM -> slot", "SSD, new process", "prompt-built block lost", "decode-built block lost",
    "checkpoint lost", "rollback", "branch", "paused in prefill", "paused in decode",
)  # fmt: skip

BLOCK_TOKENS = 16
PROMPT_TOKENS = 150
"""Nine blocks and a rest; almost five windows. The state of prefill is kept every eighth block: at 128."""
ANSWER_TOKENS = 40
"""Two blocks of these are built by decoding alone."""
QUESTION_TOKENS = 21
REPLY_TOKENS = 6
PAUSE_TOKENS = 10
WHOLE_PROMPT_TOKENS = 160
"""A prompt that ends at a block edge: all its blocks are built by the prefill of one turn."""
LAST_PROMPT_BLOCK = WHOLE_PROMPT_TOKENS // BLOCK_TOKENS - 1
LAST_DECODED_BLOCK = (PROMPT_TOKENS + ANSWER_TOKENS - 1) // BLOCK_TOKENS - 1

CONFIG = Config(
    engine=EngineSection(device="cpu", threads=1, block_tokens=BLOCK_TOKENS),
    memory=MemorySection(ram_pool="64 MiB", ssd_store="1 GiB", ssd_free_floor="0 B"),
)


@dataclass(frozen=True, slots=True)
class Heard:
    """A turn as it was seen: what it said of itself, and the logits that each of its tokens was drawn from."""

    done: Done
    logits: tuple[torch.Tensor, ...]

    @property
    def ids(self) -> list[int]:
        return unpack_ids(self.done.ids)


@dataclass
class Talk:
    """A conversation as a face keeps it."""

    name: str
    lines: list[Line] = field(default_factory=list)
    head: Head | None = None

    def question(self, ids: Sequence[int]) -> "Talk":
        """This conversation with one more question."""
        return Talk(self.name, [*self.lines, Line(role="user", text="", ids=pack_ids(ids))], self.head)

    def answered(self, heard: Heard) -> "Talk":
        """This conversation with that answer."""
        lines = self.lines[:-1] if self.lines[-1].role == "assistant" else self.lines
        answer = Line(role="assistant", text=heard.done.text, ids=heard.done.ids)
        return Talk(self.name, [*lines, answer], heard.done.head)

    @property
    def ids(self) -> list[int]:
        return [token for line in self.lines for token in unpack_ids(line.ids)]


class Player:
    """A runtime with one model open, whose logits can be seen."""

    def __init__(self, home: Home, section: ModelSection) -> None:
        self.section = section
        self.home = home
        self.runtime = Runtime(home, CONFIG, EventLog(None), "matrix")
        self.runtime.prepare(section, lambda *_: None)
        self._seen: list[torch.Tensor] = []
        self.opened.loaded.model.register_forward_hook(self._see)

    @property
    def opened(self) -> Opened:
        opened = self.runtime.opened
        assert opened is not None
        return opened

    def _see(self, _module: Any, _given: Any, out: Any) -> None:
        self._seen.append(out.logits[0, -1].clone())

    def ask(self, talk: Talk, n_tokens: int, stop_when: Callable[[AnyReply], bool] = lambda _: False) -> Heard:
        """The answer to the last line of `talk`, drawn at temperature 1; cancelled at the first reply that `stop_when` names."""
        self._seen.clear()
        replies: list[AnyReply] = []
        cancelled = threading.Event()

        def emit(reply: AnyReply) -> None:
            replies.append(reply)
            if stop_when(reply):
                cancelled.set()

        submit = Submit(
            request=1, conversation=talk.name, model=self.section, lines=tuple(talk.lines), head=talk.head,
            sampling=SamplingSection(temperature=1.0, top_p=1.0, max_tokens=n_tokens),
        )  # fmt: skip
        self.runtime.turn(submit, emit, cancelled)
        done = replies[-1]
        assert isinstance(done, Done)
        drawn = done.numbers.generated_tokens
        return Heard(done, tuple(self._seen[len(self._seen) - drawn :]))

    def one_shot(self, ids: Sequence[int]) -> torch.Tensor:
        """The logits after `ids`, through transformers' own cache in one forward."""
        loaded = self.opened.loaded
        with torch.inference_mode():
            cache = DynamicCache(config=loaded.text_config)
            out = loaded.model(torch.tensor([list(ids)]), cache=cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def leave(self) -> None:
        """Another conversation takes the slot."""
        self.ask(Talk("other").question(token_ids(BLOCK_TOKENS + 3, 999)), 1)

    def to_ssd_only(self) -> None:
        """Everything is saved, and leaves slot and RAM."""
        self.leave()
        self.runtime.flush(60.0)
        keeper = self.opened.keeper
        assert keeper is not None
        keeper.shed()

    def lose(self, name: str) -> None:
        """The file of the record `name` disappears from the disk."""
        for file in self.home.store.rglob(f"{name}.safetensors"):
            file.unlink()

    def close(self) -> None:
        """Let go of the model."""
        self.runtime.close()


@contextmanager
def playing(home: Home, section: ModelSection) -> Iterator[Player]:
    """A Player; closed at the end."""
    player = Player(home, section)
    try:
        yield player
    finally:
        player.close()


def token_ids(n: int, seed: int) -> list[int]:
    """`n` ordinary ids of a tiny model."""
    return random.Random(seed).choices(range(3, 500), k=n)


@dataclass(frozen=True, slots=True)
class Pair:
    """The runtime that is put to the test, the one where nothing ever leaves, and the seed of a cell's conversation."""

    trial: Player
    still: Player
    seed: int

    def opening(self, prompt_tokens: int = PROMPT_TOKENS) -> Talk:
        """The conversation at its first question."""
        return Talk(f"talk {self.seed}").question(token_ids(prompt_tokens, self.seed))

    def begun(self, player: Player, prompt_tokens: int = PROMPT_TOKENS, n_tokens: int = ANSWER_TOKENS) -> Talk:
        """The conversation after its first answer."""
        talk = self.opening(prompt_tokens)
        return talk.answered(player.ask(talk, n_tokens))

    def next_question(self, talk: Talk, salt: int = 1) -> Talk:
        """`talk` at its next question."""
        return talk.question(token_ids(QUESTION_TOKENS, self.seed + 1000 * salt))

    def go_on(self, player: Player, talk: Talk, salt: int = 1) -> Heard:
        """The next question and its answer."""
        return player.ask(self.next_question(talk, salt), REPLY_TOKENS)


def never_left(pair: Pair) -> str:
    """Two turns in the slot; run to run the same, and near to what transformers' own cache gives."""
    found, expected = (pair.go_on(player, pair.begun(player)) for player in (pair.trial, pair.still))
    if found.done.numbers.restored.slot == 0:
        return "FAILED it left"
    talk = pair.next_question(pair.begun(pair.still))
    far = distance(found.logits[0], pair.still.one_shot(talk.ids))
    if far > TOLERANCE[found.logits[0].dtype]:
        return f"FAILED {far:.2g} from transformers' own cache"
    return judge_exact(found, expected)


def by_ram(pair: Pair) -> str:
    """Another conversation took the slot in between."""
    talk = pair.begun(pair.trial)
    pair.trial.leave()
    found = pair.go_on(pair.trial, talk)
    if found.done.numbers.restored.ram != _covered(talk):
        return f"FAILED not from RAM: {found.done.numbers.restored}"
    return judge_exact(found, pair.go_on(pair.still, pair.begun(pair.still)))


def prompt_block_lost(pair: Pair) -> str:
    """A block of a state that prefill alone has built is gone: the same bits again, but not called exact.

    The answer of one token was never fed, so nothing but the prompt is in that state.
    """
    talk = pair.begun(pair.trial, WHOLE_PROMPT_TOKENS, 1)
    expected = pair.go_on(pair.still, pair.begun(pair.still, WHOLE_PROMPT_TOKENS, 1))
    return _without_block(pair, talk, LAST_PROMPT_BLOCK, expected, same_bits=True)


def decoded_block_lost(pair: Pair) -> str:
    """A block that decoding has built is gone: prefill builds another one, close to it."""
    talk = pair.begun(pair.trial)
    expected = pair.go_on(pair.still, pair.begun(pair.still))
    return _without_block(pair, talk, LAST_DECODED_BLOCK, expected, same_bits=False)


def _without_block(pair: Pair, talk: Talk, index: int, expected: Heard, *, same_bits: bool) -> str:
    name = pair.trial.opened.live.names[index]
    pair.trial.to_ssd_only()
    pair.trial.lose(name)
    found = pair.go_on(pair.trial, talk)
    layout = pair.trial.opened.loaded.layout
    if layout is not None and not layout.block_bytes:
        return judge_exact(found, expected)  # without full attention a block has no bytes: there is nothing to lose
    far = distance(found.logits[0], pair.trial.one_shot(pair.next_question(talk).ids))
    return judge_close(found, far, expected.logits[0] if same_bits else None)


def checkpoint_lost(pair: Pair) -> str:
    """The state at the end of the last turn is gone."""
    talk = pair.begun(pair.trial)
    pair.trial.to_ssd_only()
    assert talk.head is not None
    pair.trial.lose(talk.head.name)
    found = pair.go_on(pair.trial, talk)
    return judge_close(found, distance(found.logits[0], pair.trial.one_shot(pair.next_question(talk).ids)), None)


def rollback(pair: Pair) -> str:
    """The last answer is taken back and given again."""
    talk = pair.begun(pair.trial)
    pair.go_on(pair.trial, talk)
    return judge_exact(pair.go_on(pair.trial, talk), pair.go_on(pair.still, pair.begun(pair.still)))


def branch(pair: Pair) -> str:
    """Another question after the first answer, then back to where the conversation went before: neither knows of the other."""
    talk = pair.begun(pair.trial)
    main = pair.next_question(talk)
    main = main.answered(pair.trial.ask(main, REPLY_TOKENS))
    aside = pair.go_on(pair.trial, talk, salt=2)
    back = pair.go_on(pair.trial, main, salt=3)
    still = pair.begun(pair.still)
    still_main = pair.next_question(still)
    still_main = still_main.answered(pair.still.ask(still_main, REPLY_TOKENS))
    said = judge_exact(back, pair.go_on(pair.still, still_main, salt=3))
    if said != "exact":
        return said
    other = pair.go_on(pair.still, pair.begun(pair.still), salt=2)
    return judge_exact(aside, other)


def paused_in_prefill(pair: Pair) -> str:
    """Stopped while it read the question, left, and asked to continue."""
    talk = pair.opening()

    def halfway(reply: AnyReply) -> bool:
        return isinstance(reply, Progress) and reply.phase == "prefill" and reply.done >= PROMPT_TOKENS // 2

    stopped = pair.trial.ask(talk, ANSWER_TOKENS, halfway)
    if stopped.done.reason != "cancelled" or stopped.ids:
        return f"FAILED not stopped in prefill: {stopped.done.reason}"
    pair.trial.leave()
    found = pair.trial.ask(talk.answered(stopped), REPLY_TOKENS)
    return judge_exact(found, pair.still.ask(talk, REPLY_TOKENS))


def paused_in_decode(pair: Pair) -> str:
    """Stopped in the middle of an answer, left, and asked to continue."""
    talk = pair.opening()
    arrived: list[int] = []

    def enough(reply: AnyReply) -> bool:
        arrived.extend(unpack_ids(getattr(reply, "ids", b"")))
        return len(arrived) == PAUSE_TOKENS

    stopped = pair.trial.ask(talk, ANSWER_TOKENS, enough)
    if stopped.done.reason != "cancelled":
        return f"FAILED not stopped in decode: {stopped.done.reason}"
    pair.trial.leave()
    found = pair.trial.ask(talk.answered(stopped), ANSWER_TOKENS - PAUSE_TOKENS)
    whole = pair.still.ask(talk, ANSWER_TOKENS)
    if found.ids != whole.ids:
        return "FAILED another answer came"
    return judge_exact(found, Heard(whole.done, whole.logits[PAUSE_TOKENS:]))


CELLS: dict[str, Callable[[Pair], str]] = {
    "never left": never_left,
    "slot -> RAM -> slot": by_ram,
    "prompt-built block lost": prompt_block_lost,
    "decode-built block lost": decoded_block_lost,
    "checkpoint lost": checkpoint_lost,
    "rollback": rollback,
    "branch": branch,
    "paused in prefill": paused_in_prefill,
    "paused in decode": paused_in_decode,
}
"""All columns but the one that takes a new process."""


def judge_exact(found: Heard, expected: Heard) -> str:
    """The cell of a turn that must be exact."""
    numbers = found.done.numbers
    same = len(found.logits) == len(expected.logits) > 0 and all(map(torch.equal, found.logits, expected.logits))
    if not same:
        far = distance(found.logits[0], expected.logits[0])
        return f"FAILED says {'exact' if numbers.exact else 'not exact'}, and other bits: {far:.2g}"
    if not numbers.exact:
        return f"FAILED the same bits, but called not exact: {numbers.inexact_because}"
    return "exact"


def judge_close(found: Heard, far: float, same_as: torch.Tensor | None) -> str:
    """The cell of a turn that must say that it is not exact. `far`: from a one-shot prefill; `same_as`: bits it must have anyway."""
    numbers = found.done.numbers
    if numbers.exact or not numbers.inexact_because or not numbers.fallbacks:
        return f"FAILED called exact={numbers.exact} because {numbers.inexact_because!r}, lost {numbers.fallbacks}"
    if same_as is not None and not torch.equal(found.logits[0], same_as):
        return f"FAILED other bits than never left: {distance(found.logits[0], same_as):.2g}"
    if not far <= TOLERANCE[found.logits[0].dtype]:
        return f"FAILED {far:.2g} from a one-shot prefill"
    return f"close {far:.1e}"


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest |difference| of two logit vectors over the largest |logit|; infinite for what is not a number."""
    far = float((a.float() - b.float()).abs().max() / b.float().abs().max())
    return far if far == far else float("inf")  # noqa: PLR0124 - NaN is not equal to itself


def _covered(talk: Talk) -> int:
    assert talk.head is not None
    return talk.head.tokens


def scratch(base: Path) -> Home:
    """A home below `base`, made."""
    home = Home(base / "config", base / "data", base / "cache", base / "models")
    home.prepare()
    return home
