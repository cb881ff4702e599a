"""Three tiers driven together: what comes back from the device, from RAM and from SSD goes on as if it had never left, bit for bit."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch

from localkv.commands.bench import tiny
from localkv.commands.bench.player import BLOCK_TOKENS, CONFIG, Heard, Player, Talk, playing, scratch, token_ids
from localkv.config import Config, ModelSection
from localkv.engine import slot as slots
from localkv.engine.copier import Mark
from localkv.engine.late import LateCopier, Step
from localkv.engine.slot import Slot

pytestmark = pytest.mark.slow

KINDS = ("llama", "gemma3_text", "falcon_h1", "mamba2")
"""Full, sliding beside full, rows and states in one layer, states alone."""


def config_with(simulate: str, vram_pool: str = "64 MiB") -> Config:
    """A CPU that plays a GPU."""
    engine = msgspec.structs.replace(CONFIG.engine, simulate=simulate)
    return msgspec.structs.replace(CONFIG, engine=engine, memory=msgspec.structs.replace(CONFIG.memory, vram_pool=vram_pool))


def begin(player: Player, seed: int, n_tokens: int = 150) -> Talk:
    """A conversation of some blocks and a rest, after its first answer."""
    talk = Talk(f"talk {seed}").question(token_ids(n_tokens, seed))
    return talk.answered(player.ask(talk, BLOCK_TOKENS + 3))


def go_on(player: Player, talk: Talk):
    """The next answer, and the logits it was drawn from."""
    return player.ask(talk.question(token_ids(21, 77)), 5)


def leave_to(player: Player, tier: str) -> None:
    """The conversation in the slot leaves it, and is in `tier` afterwards and in none nearer."""
    player.leave()
    keeper = player.opened.keeper
    assert keeper is not None
    if tier != "vram":
        keeper._box.ask(lambda: [keeper.berths._leave(entry) for entry in list(keeper._index.in_vram.values())])
    if tier == "ssd":
        assert not player.runtime.flush(60.0).problem
        keeper.shed()


def check_books(player: Player) -> None:
    """The pools' books and the index agree, and no thread had an accident."""
    player.opened.keeper.check()
    assert [event for event in player.events.recent if event.kind.startswith("control.")] == []


def covered(talk: Talk) -> int:
    """Tokens of it that were fed: all but the last one drawn."""
    return len(talk.ids) - 1


@pytest.mark.parametrize("simulate", ["pool", "late"])
@pytest.mark.parametrize("name", KINDS)
def test_back_from_each_tier_is_never_left(name, simulate, tmp_path):
    """From the device, RAM or SSD, with copies that land at once or late: the same logits, said to be exact, and counted where they came from."""
    section = ModelSection(name=str(tiny.make_model(name, tmp_path / "model")))
    with playing(scratch(tmp_path / "still"), section) as still:
        expected = [go_on(still, begin(still, seed)) for seed in range(3)]
    with playing(scratch(tmp_path / "trial"), section, config_with(simulate)) as trial:
        for seed, tier in enumerate(("vram", "ram", "ssd")):
            talk = begin(trial, seed)
            leave_to(trial, tier)
            found = go_on(trial, talk)
            restored = found.done.numbers.restored
            assert (getattr(restored, tier), restored.total) == (covered(talk), covered(talk)), restored
            assert found.done.numbers.exact
            assert all(torch.equal(a, b) for a, b in zip(found.logits, expected[seed].logits, strict=True))
            check_books(trial)


def test_tiers_mix_within_one_conversation(tmp_path):
    """Some blocks on the device, some in RAM, some on SSD: each counts for its own tier, and together they are the whole."""
    section = ModelSection(name=str(tiny.make_model("llama", tmp_path / "model")))
    with playing(scratch(tmp_path / "still"), section) as still:
        expected = go_on(still, begin(still, 1))
    with playing(scratch(tmp_path / "trial"), section, config_with("late")) as trial:
        talk = begin(trial, 1)
        names = list(trial.opened.live.names)
        trial.leave()
        keeper = trial.opened.keeper
        assert not trial.runtime.flush(60.0).problem

        def scatter():
            for i, name in enumerate(names):
                entry = keeper._index.entries[name]
                if i % 3:
                    keeper.berths._leave(entry)
                if i % 3 == 2:
                    keeper.room._leave(entry, "test")

        keeper._box.ask(scatter)
        found = go_on(trial, talk)
        restored = found.done.numbers.restored
        n_ssd = sum(1 for i in range(len(names)) if i % 3 == 2) * BLOCK_TOKENS
        n_ram = sum(1 for i in range(len(names)) if i % 3 == 1) * BLOCK_TOKENS
        assert (restored.ram, restored.ssd, restored.vram) == (n_ram, n_ssd, covered(talk) - n_ram - n_ssd)
        assert all(torch.equal(a, b) for a, b in zip(found.logits, expected.logits, strict=True))
        check_books(trial)


def test_a_small_pool_keeps_the_dearest(tmp_path):
    """More conversations than the pool holds: places are reused, nothing is lost by it, and each move has its line and its reason."""
    section = ModelSection(name=str(tiny.make_model("llama", tmp_path / "model")))
    with playing(scratch(tmp_path / "still"), section) as still:
        expected = [go_on(still, begin(still, seed)) for seed in range(4)]
    with playing(scratch(tmp_path / "trial"), section, config_with("late", "256 KiB")) as trial:
        talks = [begin(trial, seed) for seed in range(4)]
        for _ in range(2):
            for talk, right in zip(talks, expected, strict=True):
                found = go_on(trial, talk)
                assert all(torch.equal(a, b) for a, b in zip(found.logits, right.logits, strict=True))
                assert found.done.numbers.restored.total == covered(talk)
                check_books(trial)
        snapshot = trial.runtime.snapshot()
    assert snapshot.vram.used_bytes <= snapshot.vram.limit_bytes == 256 << 10
    assert snapshot.vram.places >= snapshot.vram.records > 0
    assert min(snapshot.vram.swaps_in, snapshot.vram.swaps_out) > 0
    moves = [event.fields for event in trial.events.recent if event.kind == "move"]
    routes = {(move["from"], move["to"], move["reason"]) for move in moves if "vram" in (move["from"], move["to"])}
    assert routes >= {("slot", "vram", "park"), ("vram", "ram", "room")}


def test_what_is_forgotten_leaves_the_device(tmp_path):
    """A conversation that is deleted is in no tier any more, the device included."""
    section = ModelSection(name=str(tiny.make_model("llama", tmp_path / "model")))
    with playing(scratch(tmp_path / "trial"), section, config_with("pool")) as trial:
        talk = begin(trial, 1)
        trial.leave()
        keeper = trial.opened.keeper
        before = keeper.counts().vram
        assert before.records > 0
        names = [(keeper.ground.identity, name) for name in [*keeper._index.entries]]
        assert keeper.forget((), names, 10.0).records >= 0
        assert (keeper.counts().vram.records, keeper.counts().vram.used_bytes) == (0, 0)
        found = go_on(trial, talk)
        assert found.done.numbers.restored.total == 0
        check_books(trial)


def test_memory_that_runs_out_takes_the_pool(tmp_path):
    """The pool on the device is the first that goes when memory runs out; conversations come back from RAM, exactly."""
    section = ModelSection(name=str(tiny.make_model("llama", tmp_path / "model")))
    with playing(scratch(tmp_path / "still"), section) as still:
        expected = go_on(still, begin(still, 1))
    with playing(scratch(tmp_path / "trial"), section, config_with("late")) as trial:
        talk = begin(trial, 1)
        trial.leave()
        assert trial.runtime.snapshot().vram.records > 0
        trial.opened.relieve()
        trial.opened.relieve()
        vram = trial.runtime.snapshot().vram
        assert (vram.records, vram.used_bytes, vram.limit_bytes, vram.committed_bytes) == (0, 0, 0, 0)
        assert [event.kind for event in trial.events.recent].count("vram.given_up") == 1
        found = go_on(trial, talk)
        restored = found.done.numbers.restored
        assert restored.ram + restored.ssd == restored.total == covered(talk)
        assert all(torch.equal(a, b) for a, b in zip(found.logits, expected.logits, strict=True))
        trial.leave()
        assert trial.runtime.snapshot().vram.records == 0
        check_books(trial)


@pytest.mark.parametrize("is_short", [False, True])
def test_a_slot_that_grows_parks_first(is_short, tmp_path, monkeypatch):
    """Growing empties the slot, and the conversation comes back from the device; only if memory is short the pool goes for it."""
    section = ModelSection(name=str(tiny.make_model("llama", tmp_path / "model")))
    with playing(scratch(tmp_path / "still"), section) as still:
        expected = go_on(still, begin(still, 1, 40))
    config = config_with("late")
    config = msgspec.structs.replace(config, engine=msgspec.structs.replace(config.engine, slot_tokens=64))
    with playing(scratch(tmp_path / "trial"), section, config) as trial:
        talk, zeros = begin(trial, 1, 40), slots._zeros

        def short(shape, dtype, device):
            if is_short and trial.opened.live._arena is not None:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return zeros(shape, dtype, device)

        def taking_back(slot, n_tokens, take=Slot._take):
            with monkeypatch.context() as patch:
                if n_tokens > 64:
                    patch.setattr(slots, "_zeros", short)
                take(slot, n_tokens)

        monkeypatch.setattr(Slot, "_take", taking_back)
        found = go_on(trial, talk)
        assert trial.opened.room_tokens > 64
        assert trial.runtime.snapshot().vram.limit_bytes == (0 if is_short else 64 << 20)
        restored = found.done.numbers.restored
        assert (restored.vram, restored.total) == (0 if is_short else covered(talk), covered(talk))
        assert all(torch.equal(a, b) for a, b in zip(found.logits, expected.logits, strict=True))
        check_books(trial)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_every_architecture_comes_back_from_the_device(name, tmp_path):
    """Each kind of state there is, in bfloat16: from the pool on the device it goes on as if it had never left."""
    section = ModelSection(name=str(tiny.make_model(name, tmp_path / "model")), dtype="bfloat16")
    with playing(scratch(tmp_path / "still"), section) as still:
        expected = go_on(still, begin(still, 1))
    with playing(scratch(tmp_path / "trial"), section, config_with("late")) as trial:
        talk = begin(trial, 1)
        trial.leave()
        found = go_on(trial, talk)
        assert found.done.numbers.restored.vram == covered(talk)
        assert all(torch.equal(a, b) for a, b in zip(found.logits, expected.logits, strict=True))
        check_books(trial)


def through_a_small_ram(base: Path, model: Path, seeds: range, copier_of: Callable[[int], LateCopier]) -> list[Heard]:
    """Answers of conversations that come back from SSD through a RAM pool of few places, each used for one record after the other."""
    config = config_with("late", "0")
    config = msgspec.structs.replace(config, memory=msgspec.structs.replace(config.memory, ram_pool="0"))
    answers = []
    with playing(scratch(base), ModelSection(name=str(model)), config) as trial:
        for seed in seeds:
            trial.opened.live.slot.copier = copier_of(seed)
            trial.opened.live.slot._stages = trial.opened.live.slot._make_stages()
            talk = begin(trial, seed)
            leave_to(trial, "ssd")
            answers.append(go_on(trial, talk))
            assert answers[-1].done.numbers.restored.ssd == covered(talk)
            trial.opened.live.slot.copier.settle()
    return answers


class Hasty(LateCopier):
    """The host believes that what it handed in has been copied at once."""

    def copy_in(self, host, device, after):
        return Believed(super().copy_in(host, device, after))

    def compute_waits(self, mark):
        super().compute_waits(mark.mark if isinstance(mark, Believed) else mark)


@dataclass
class Believed:
    """A mark that nobody waits for."""

    mark: Mark

    def reached(self) -> bool:
        return True

    def wait(self) -> None:
        """It is taken for reached."""


def test_places_are_reused_only_when_their_bytes_have_left(tmp_path):
    """A place in RAM gets the next record while copies are under way: not before its own has been copied, or wrong bytes come in."""
    model, seeds = tiny.make_model("llama", tmp_path / "model"), range(4)
    with playing(scratch(tmp_path / "still"), ModelSection(name=str(model))) as still:
        expected = [go_on(still, begin(still, seed)) for seed in seeds]

    def wrong(copier_of):
        found = through_a_small_ram(tmp_path / copier_of.__name__, model, seeds, copier_of)
        return sum(not torch.equal(a.logits[0], b.logits[0]) for a, b in zip(found, expected, strict=True))

    assert wrong(LateCopier) == 0
    assert wrong(Hasty) > 0


class Careless(LateCopier):
    """Leaves out the wait of one direction."""

    def __init__(self, seed: int, wait: str) -> None:
        super().__init__(seed)
        self._wait = wait

    def copy_out(self, device, host, after):
        return super().copy_out(device, host, Step(self, lambda: None, (), True) if self._wait == "out" else after)

    def compute_waits(self, mark):
        if self._wait != "in" or mark not in self._in:
            super().compute_waits(mark)


@pytest.mark.parametrize("wait", ["in", "out"])
def test_a_wait_removed_from_the_product_is_seen(wait, tmp_path, monkeypatch):
    """Without the wait of one direction a conversation does not come back as it was: the tests above would fail."""
    section = ModelSection(name=str(tiny.make_model("llama", tmp_path / "model")))
    with playing(scratch(tmp_path / "still"), section) as still:
        expected = [go_on(still, begin(still, seed)) for seed in range(6)]
    with playing(scratch(tmp_path / "trial"), section, config_with("late", "0")) as trial:
        assert any(_comes_back_wrong(trial, seed, wait, expected[seed]) for seed in range(6))


def _comes_back_wrong(trial: Player, seed: int, wait: str, expected: Heard) -> bool:
    slot = trial.opened.live.slot
    slot.copier.settle()
    slot.copier = Careless(seed, wait)
    slot._stages = slot._make_stages()
    talk = begin(trial, seed)
    leave_to(trial, "ram")
    try:
        found = go_on(trial, talk)
    except RuntimeError as error:
        assert "nan" in str(error)  # poison has reached the logits
        return True
    return any(not torch.equal(a, b) for a, b in zip(found.logits, expected.logits, strict=True))
