"""`localkv drill` on this machine: real faces and engines are killed and nothing is lost; every sabotage is noticed."""

import json
import os

import psutil
import pytest

from localkv.cli import main
from localkv.commands.drill.moments import MOMENTS
from localkv.commands.drill.report import FAULTS
from localkv.commands.drill.sabotage import SABOTAGES

pytestmark = pytest.mark.slow

KILLS = 21
"""Three in every moment."""


def drill(capsys, *arguments):
    """(exit code, the JSON document, standard error)."""
    with pytest.raises(SystemExit) as ended:
        main(["drill", "--json", *arguments])
    out, err = capsys.readouterr()
    return ended.value.code or 0, json.loads(out) if out else None, err


def processes_of(home):
    """Those that were told of a folder below the home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and str(home.cache_dir) in " ".join(process.cmdline()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost(home, capsys, engine_lock):
    """Kills in every moment: no message lost, nothing wrong restored, nothing left behind, no budget broken."""
    code, document, err = drill(capsys, "--kills", str(KILLS), "--seed", "7")
    assert {key: document[key] for key in FAULTS} == dict.fromkeys(FAULTS, 0), err
    assert code == 0
    assert document["killed_during"] == dict.fromkeys(MOMENTS, KILLS // len(MOMENTS))
    assert document["kills"] == KILLS
    assert document["longest_recovery_s"] > 0
    assert processes_of(home) == []
    assert list(home.cache_dir.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_sabotage_is_found(home, capsys, engine_lock, sabotage):
    """A store that is broken on purpose does not pass. (With this seed the face dies first, while its engine saves at the exit.)"""
    code, document, err = drill(capsys, "--kills", "14", "--seed", "9", "--sabotage", sabotage)
    assert (code, document is None) == (1, False), err
    assert document["wrong_restores"] > 0
    assert (document["lost_messages"], document["budget_breaks"]) == (0, 0)
    assert processes_of(home) == []


def test_an_unknown_sabotage_is_refused(home, capsys):
    """Before anything is started, with the names that there are."""
    code, document, err = drill(capsys, "--sabotage", "hammer")
    assert (code, document) == (2, None)
    assert all(name in err for name in SABOTAGES)


@pytest.mark.parametrize(("found", "expected"), [([], 130), (["a file"], 1)])
def test_ctrl_c_tells_what_was_seen_so_far(home, capsys, monkeypatch, found, expected):
    """A long rehearsal may be ended early: its counts are printed, and nothing of it stays."""

    def interrupted(base, strokes, seed, sabotage, tally, told):
        tally.killed["save"] += 3
        tally.add("leftovers", found)
        raise KeyboardInterrupt

    monkeypatch.setattr("localkv.commands.drill.rehearse", interrupted)
    code, document, _ = drill(capsys, "--kills", "14")
    assert (code, document["kills"], document["leftovers"]) == (expected, 3, len(found))
    assert list(home.cache_dir.iterdir()) == []
