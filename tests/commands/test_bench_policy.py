"""`bench policy` and `bench scale`: what is counted, what the policies do, foreign traces, and what the figures promise."""

import json

import pytest

from localkv import cli
from localkv.commands.bench import policy, scale
from localkv.commands.bench.policy import IdleSize, Lru, Machine, Optimum, Ours, replay
from localkv.commands.bench.traces import DAY, KINDS, Trace, Visit, from_file, made_up
from localkv.errors import ConfigError

MACHINE = Machine(ram_bytes=4 * 10, ssd_bytes=10 * 10, block_bytes=10)
"""Rounded to whole blocks, three fit the RAM below the high mark, and nine the SSD."""


def chain(talk, n):
    return tuple((talk, i) for i in range(n))


def trace(*visits):
    return Trace("made by hand", tuple(Visit(i * DAY, chain(talk, n)) for i, (talk, n) in enumerate(visits)))


def test_new_blocks_cost_nothing_and_lost_ones_are_computed():
    """The first visit is free; the second copies what is in RAM, reads what is on SSD, and computes what is on neither."""
    waited = replay(trace(("a", 3), ("a", 3)), Lru(MACHINE), MACHINE)
    assert waited.seconds == pytest.approx(3 * MACHINE.copy_seconds)
    crowd = [(talk, 3) for talk in "bc"]
    waited = replay(trace(("a", 3), *crowd, ("a", 3)), Lru(MACHINE), MACHINE)
    assert waited.seconds == pytest.approx(3 * (MACHINE.copy_seconds + MACHINE.read_seconds))
    crowd = [(talk, 3) for talk in "bcdefg"]
    waited = replay(trace(("a", 3), *crowd, ("a", 3)), Lru(MACHINE), MACHINE)
    assert waited.seconds == pytest.approx(3 * MACHINE.compute_seconds)


def test_after_a_gap_nothing_is_restored():
    """A chain is used only as far as it is whole: what lies behind a hole is computed again."""
    visits = (Visit(0.0, chain("a", 3)), Visit(1.0, (("b", 0), ("a", 1), ("a", 2))))
    waited = replay(Trace("hole", visits), Lru(MACHINE), MACHINE)
    assert waited.seconds == pytest.approx(2 * MACHINE.compute_seconds)


def test_the_optimum_waits_least():
    """On small traces of every kind nobody waits less than the one that knows the future, and idle/size waits most."""
    for made in made_up(7):
        short = Trace(made.name, made.visits[:500])
        machine = Machine()
        optimum = Optimum(machine, short)
        best = replay(short, optimum, machine).seconds
        rest = [replay(short, chooser, machine).seconds for chooser in (Lru(machine), Ours(machine), IdleSize(machine))]
        assert best <= min(rest)


def test_a_favourite_survives_a_look_at_everything():
    """Ours keeps what is used daily when all others are opened once; least recently used loses it."""
    daily = [Visit(day * DAY, chain("favourite", 3)) for day in range(20)]
    looks = [Visit(19.5 * DAY + i, chain(f"other {i}", 1)) for i in range(9)]
    made = Trace("look", (*daily, *looks, Visit(20 * DAY, chain("favourite", 3))))
    ours, lru = (replay(made, chooser, MACHINE).seconds for chooser in (Ours(MACHINE), Lru(MACHINE)))
    assert ours < lru


def test_traces_are_the_same_each_time():
    """Fixed seeds: two runs replay the same visits."""
    assert [hash(made.visits) for made in made_up(1)] == [hash(made.visits) for made in made_up(1)]
    assert [made.name for made in made_up(1)] == list(KINDS)


def test_foreign_traces(tmp_path):
    """Both shapes of lines are read: growing conversations, and prefix blocks by hash."""
    file = tmp_path / "own.jsonl"
    lines = [{"time": 5, "conversation": "b", "new_tokens": 600}, {"time": 1, "conversation": "a", "new_tokens": 256}]
    file.write_text("\n".join(map(json.dumps, [*lines, {"time": 9, "conversation": "b", "new_tokens": 300}])) + "\n\n")
    visits = from_file(file).visits
    assert [(visit.time, len(visit.blocks)) for visit in visits] == [(1.0, 1), (5.0, 2), (9.0, 3)]
    assert visits[2].blocks[:2] == visits[1].blocks
    file.write_text(json.dumps({"timestamp": 2500, "input_length": 900, "output_length": 9, "hash_ids": [4, 5]}))
    assert from_file(file).visits == (Visit(2.5, ((4, 0), (5, 1))),)
    assert policy.measure(lambda _: None, file)[0]["visits"] == 1


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"time": 1, "conversation": "a", "new_tokens": "x"}', "nonsense"])
def test_bad_foreign_traces(tmp_path, text):
    """A file that is no trace is named, with the line."""
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.jsonl"):
        from_file(file)


def test_the_command(tmp_path, capsys):
    """`bench policy --trace FILE --json` prints one document; --trace is refused elsewhere, and a missing file is named."""
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(json.dumps({"time": i, "conversation": "a", "new_tokens": 300}) for i in range(9)))
    cli.app(["bench", "policy", "--trace", str(file), "--json"], standalone_mode=False)
    (row,) = json.loads(capsys.readouterr().out)
    assert row["trace"] == "trace.jsonl"
    assert row["visits"] == 9
    assert {f"{name}_{unit}" for name in ("lru", "idle_size", "ours", "optimum") for unit in ("s", "bytes")} <= set(row)
    for arguments in (["scale", "--trace", str(file)], ["policy", "--trace", str(tmp_path / "none")]):
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", *arguments])
        assert ended.value.code == 2


@pytest.mark.slow
def test_ours_is_never_worse_than_lru():
    """On every made-up trace ours waits at most as long as LRU, and at most 1.5 times the optimum except where tasks end for good."""
    for row in policy.measure(lambda _: None):
        assert row["ours_to_lru"] <= 1, row["trace"]
        assert row["ours_to_optimum"] <= (1.9 if row["trace"] == "working sets" else 1.5), row["trace"]


def test_scale_in_small(monkeypatch):
    """The bench of scale finds its conversation whole among made-up rows, and has exactly the promised keys."""
    monkeypatch.setattr(scale, "TALKS", 20)
    monkeypatch.setattr(scale, "ROWS", 400)
    monkeypatch.setattr(scale, "ROUNDS", 2)
    result = scale.measure(lambda _: None)
    assert list(result) == ["conversations", "rows", "open_s", "plan_ms"]
    assert (result["conversations"], result["rows"]) == (20, 400)
    assert result["open_s"] > 0
    assert result["plan_ms"] > 0
