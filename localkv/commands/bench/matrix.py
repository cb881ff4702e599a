"""The exactness matrix: for one architecture and dtype, ways in which a conversation can lose or leave its state, one per column.

Each cell runs the product's own turn (Runtime, Keeper, Store, HostPool) on a tiny model in a scratch home, and the same
conversation once more in another runtime with a home of its own, where it never leaves the slot. A cell is

    "exact"           the turn says so, and its logits are those of the run that never left, bit for bit
    "close D"         the turn says that it is not exact and why; D is the distance of its first logits from a one-shot prefill
    "FAILED why"      anything else: above all a turn that says exact and is not

Distance: largest |difference| over largest |logit|. Where prefill alone built what was lost, the bits must be the same although
the turn does not promise it. The column "SSD, new process" really is another process: one for all rows. Imports torch. Thread:
main.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from localkv.commands.bench import Say, tiny
from localkv.commands.bench.newcomer import Task, hear_elsewhere
from localkv.commands.bench.player import BLOCK_TOKENS, Heard, Player, Talk, playing, scratch, token_ids
from localkv.config import DType, ModelSection
from localkv.kv.record import unpack_ids
from localkv.messages import AnyReply, Progress

COLUMNS = (
    "never left", "slot -> RAM -> slot", "SSD, new process", "prompt-built block lost", "decode-built block lost",
    "checkpoint lost", "rollback", "branch", "paused in prefill", "paused in decode",
)  # fmt: skip

DTYPES: tuple[DType, ...] = ("float32", "bfloat16")

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.03}
"""Largest distance of a cell that is close, and of the run that never left, from a one-shot prefill.

Other chunks round otherwise: 2e-6 in fp32, up to 0.016 in bf16, whose numbers have 8 bits [measured]. Other tokens in one
block of 16 move the logits by 0.02 to 1: fp32 tells every loss from rounding, bf16 most of them.
"""

PROMPT_TOKENS = 150
"""Nine blocks and a rest; almost five windows. The state of prefill is kept every eighth block: at 128."""
ANSWER_TOKENS = 34
"""One whole block of these is built by decoding alone."""
QUESTION_TOKENS = 21
REPLY_TOKENS = 4
PAUSE_TOKENS = 10
WHOLE_PROMPT_TOKENS = 160
"""A prompt that ends at a block edge: all its blocks are built by the prefill of one turn."""
LAST_PROMPT_BLOCK = WHOLE_PROMPT_TOKENS // BLOCK_TOKENS - 1
LAST_DECODED_BLOCK = (PROMPT_TOKENS + ANSWER_TOKENS - 1) // BLOCK_TOKENS - 1


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

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.trial.opened.loaded.model.dtype]

    def from_one_shot(self, found: Heard, talk: Talk) -> float:
        """How far the turn after `talk` began from where a one-shot prefill would have."""
        return distance(found.logits[0], self.still.one_shot(self.next_question(talk).ids))

    def go_on(self, player: Player, talk: Talk, salt: int = 1) -> Heard:
        """The next question and its answer."""
        return player.ask(self.next_question(talk, salt), REPLY_TOKENS)


def never_left(pair: Pair) -> str:
    """Two turns in the slot; run to run the same, and near to what transformers' own cache gives."""
    talk = pair.begun(pair.trial)
    found = pair.go_on(pair.trial, talk)
    if found.done.numbers.restored.slot != _covered(talk):
        return f"FAILED it left the slot: {found.done.numbers.restored}"
    far = pair.from_one_shot(found, talk)
    if not far <= pair.tolerance:
        return f"FAILED {far:.2g} from a one-shot prefill"
    return judge_exact(found, pair.go_on(pair.still, pair.begun(pair.still)))


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
    if same_bits and not torch.equal(found.logits[0], expected.logits[0]):
        return f"FAILED other bits than never left: {distance(found.logits[0], expected.logits[0]):.2g}"
    return judge_close(found, pair.from_one_shot(found, talk), pair.tolerance)


def checkpoint_lost(pair: Pair) -> str:
    """The state at the end of the last turn is gone."""
    talk = pair.begun(pair.trial)
    pair.trial.to_ssd_only()
    assert talk.head is not None
    pair.trial.lose(talk.head.name)
    found = pair.go_on(pair.trial, talk)
    return judge_close(found, pair.from_one_shot(found, talk), pair.tolerance)


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


def judge_close(found: Heard, far: float, tolerance: float) -> str:
    """The cell of a turn that must say that it is not exact; `far`: its distance from a one-shot prefill."""
    numbers = found.done.numbers
    if numbers.exact or not numbers.inexact_because or not numbers.fallbacks:
        return f"FAILED says exact={numbers.exact} because {numbers.inexact_because!r}, lost {numbers.fallbacks}"
    return f"close {far:.1e}" if far <= tolerance else f"FAILED {far:.2g} from a one-shot prefill"


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest |difference| of two logit vectors over the largest |logit|; infinite for what is not a number."""
    far = float((a.float() - b.float()).abs().max() / b.float().abs().max())
    return far if far == far else float("inf")  # noqa: PLR0124 - NaN is not equal to itself


def _covered(talk: Talk) -> int:
    assert talk.head is not None
    return talk.head.tokens


@dataclass(frozen=True, slots=True)
class Absent:
    """A conversation that went to SSD: what another process is to say next, and what it must be."""

    task: Task
    expected: Heard


def send_away(pair: Pair) -> Absent:
    """A conversation of its own, on SSD."""
    talk = pair.begun(pair.trial)
    problem = pair.trial.runtime.flush(60.0).problem
    assert not problem, problem
    task = Task(str(pair.trial.home.cache_dir.parent), pair.trial.section, pair.next_question(talk), REPLY_TOKENS)
    return Absent(task, pair.go_on(pair.still, pair.begun(pair.still)))


def judge_return(absent: Absent, found: Heard) -> str:
    """The cell of a turn in another process."""
    if found.done.numbers.restored.ssd != _covered(absent.task.talk):
        return f"FAILED not from SSD: {found.done.numbers.restored}"
    return judge_exact(found, absent.expected)


def measure_matrix(
    names: Sequence[str], dtypes: Sequence[DType], folder: Path, say: Say, columns: Sequence[str] = COLUMNS
) -> list[dict[str, Any]]:
    """One row per architecture and dtype: a cell per column. Models, homes and all records lie in `folder`."""
    rows: list[dict[str, Any]] = []
    away: list[Absent] = []
    for name in names:
        model = tiny.make_model(name, folder / "models" / name)
        for dtype in dtypes:
            say(f"{name} {dtype}")
            row, absent = _measure_row(ModelSection(name=str(model), dtype=dtype), folder, columns)
            rows.append({"architecture": name, "dtype": dtype, **row})
            away.append(absent)
    if "SSD, new process" in columns:
        say("a new process comes back to all of them")
        heard = hear_elsewhere([absent.task for absent in away], folder)
        for row, absent, found in zip(rows, away, heard, strict=True):
            row["SSD, new process"] = judge_return(absent, found)
    return rows


def _measure_row(section: ModelSection, folder: Path, columns: Sequence[str]) -> tuple[dict[str, Any], Absent]:
    with playing(scratch(folder / "trial"), section) as trial, playing(scratch(folder / "still"), section) as still:
        layout = trial.opened.loaded.layout
        row: dict[str, Any] = {
            "kinds": "+".join(sorted({layer.kind.value for layer in layout.layers})) if layout else "uncached"
        }
        for seed, column in enumerate(columns):
            row[column] = CELLS[column](Pair(trial, still, seed)) if column in CELLS else ""
        absent = send_away(Pair(trial, still, len(COLUMNS)))
        assert trial.opened.keeper is not None
        trial.opened.keeper.check()
    return row, absent
