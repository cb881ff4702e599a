"""The exactness matrix: what is called exact is bitwise so, what is not exact says so and is close; for every kind of layer."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from localkv.commands.bench import matrix, tiny
from localkv.commands.bench.matrix import COLUMNS, DTYPES, measure_matrix
from localkv.commands.bench.player import Heard, playing, scratch, token_ids
from localkv.config import ModelSection
from localkv.figures import Fallback, Numbers
from localkv.messages import Done
from localkv.placement.plan import Plan

FAST = ("llama", "gemma3_text", "falcon_h1", "mamba2")
"""Full, sliding beside full, rows and states in one layer, states alone."""

NEVER_LOSE_BLOCKS = {"mistral", "mamba2"}
"""Without full attention a block has no bytes."""

CLOSE = {"prompt-built block lost", "decode-built block lost", "checkpoint lost"}


def check(row: dict[str, str]) -> None:
    """Every cell is what the determinism contract says of it."""
    wrong = {}
    for column in COLUMNS:
        close = column in CLOSE and not (column.endswith("block lost") and row["architecture"] in NEVER_LOSE_BLOCKS)
        if not row[column].startswith("close ") if close else row[column] != "exact":
            wrong[column] = row[column]
    assert not wrong, f"{row['architecture']} {row['dtype']}"


@pytest.mark.slow
def test_matrix(tmp_path: Path) -> None:
    """Four architectures of all kinds in fp32, every column, the new process too."""
    rows = measure_matrix(FAST, ("float32",), tmp_path, lambda _: None)
    assert [row["architecture"] for row in rows] == list(FAST)
    for row in rows:
        check(row)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whole_matrix(tmp_path: Path) -> None:
    """All architectures in both dtypes, every column: the table of the README."""
    rows = measure_matrix(tiny.ARCHITECTURES, DTYPES, tmp_path, lambda _: None)
    assert len({row["architecture"] for row in rows}) >= 14
    assert len(rows) == len(tiny.ARCHITECTURES) * len(DTYPES)
    for row in rows:
        check(row)


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_tiny_models_attend(name: str) -> None:
    """Other tokens in one recent block move the logits far more than rounding does, or "close" would mean nothing."""
    model, ids = tiny.build_model(name), token_ids(190, 5)
    other = [*ids[:160], *token_ids(16, 77), *ids[176:]]
    with torch.inference_mode():
        a, b = (model(torch.tensor([each]), use_cache=False).logits[0, -1] for each in (ids, other))
    assert matrix.distance(a, b) > 100 * matrix.TOLERANCE[torch.float32]


def heard(logits: torch.Tensor, *, exact: bool, because: str = "") -> Heard:
    lost = () if exact else (Fallback("evicted", 3),)
    numbers = Numbers(exact=exact, inexact_because=because, fallbacks=lost)
    return Heard(Done(request=1, epoch="", ids=b"", text="", reason="end", head=None, numbers=numbers), (logits,))


def test_the_judge_finds_a_lie() -> None:
    """A turn that says exact and is not, or that is exact by luck and does not say so, fails its cell."""
    right, wrong = torch.ones(4), torch.tensor([1.0, 1.0, 1.0, 1.0000001])
    assert matrix.judge_exact(heard(right, exact=True), heard(right, exact=True)) == "exact"
    assert matrix.judge_exact(heard(wrong, exact=True), heard(right, exact=True)).startswith("FAILED says exact")
    assert matrix.judge_exact(heard(right, exact=False), heard(right, exact=True)).startswith("FAILED the same bits")
    assert matrix.judge_close(heard(right, exact=True), 0.0, 1.0).startswith("FAILED says exact=True")
    assert matrix.judge_close(heard(right, exact=False), 0.0, 1.0).startswith("FAILED says exact=False because ''")
    assert matrix.judge_close(heard(right, exact=False, because="lost"), 0.5, 0.1).startswith("FAILED 0.5")
    assert matrix.judge_close(heard(right, exact=False, because="lost"), float("inf"), 0.1).startswith("FAILED")
    assert matrix.judge_close(heard(right, exact=False, because="lost"), 0.05, 0.1) == "close 5.0e-02"


@pytest.mark.parametrize("column", ["slot -> RAM -> slot", "rollback", "paused in decode"])
def test_the_matrix_sees_a_changed_byte(column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One flipped bit in what comes back to the slot fails the cell: the product itself is compared, not a model of it."""
    model = tiny.make_model("llama", tmp_path / "llama")
    section = ModelSection(name=str(model))
    with playing(scratch(tmp_path / "a"), section) as trial, playing(scratch(tmp_path / "b"), section) as still:
        load = trial.opened.live.load

        def damaged(kind, start, end, payload):
            copy = bytearray(payload)
            copy[1] ^= 1
            return load(kind, start, end, memoryview(copy))

        monkeypatch.setattr(trial.opened.live, "load", damaged)
        assert matrix.CELLS[column](matrix.Pair(trial, still, 1)).startswith("FAILED")


def test_the_matrix_sees_a_plan_that_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If every plan called itself exact, the cells of lost state would fail."""
    model = tiny.make_model("llama", tmp_path / "llama")
    section = ModelSection(name=str(model))
    with playing(scratch(tmp_path / "a"), section) as trial, playing(scratch(tmp_path / "b"), section) as still:
        keeper = trial.opened.keeper
        plan = keeper.plan
        honest: list[Plan] = []

        def lying(*args):
            honest.append(plan(*args))
            return dataclasses.replace(honest[-1], exact=True, because="")

        monkeypatch.setattr(keeper, "plan", lying)
        pair = matrix.Pair(trial, still, 2)
        assert matrix.checkpoint_lost(pair).startswith("FAILED says exact=True")
        assert not honest[-1].exact


def test_from_ram_means_from_ram(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell whose state came from elsewhere than its column says fails."""
    said = Done(request=1, epoch="", ids=b"", text="", reason="end", head=None, numbers=Numbers())
    absent = matrix.Absent(
        SimpleNamespace(talk=SimpleNamespace(head=SimpleNamespace(tokens=9))), heard(torch.ones(1), exact=True)
    )
    assert matrix.judge_return(absent, Heard(said, (torch.ones(1),))).startswith("FAILED not from SSD")
