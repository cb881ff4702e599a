"""`localkv unload` and /unload: what was given back, for people and as JSON; no engine is started for it."""

import json

from localkv.commands import unload
from localkv.commands.setup import find_setup
from localkv.service.protocol import Unloaded

from .engine import CountingRuntime, serving

GONE = Unloaded(request=1, epoch="e", model="Qwen3-4B", freed_bytes=8 << 30, records=12, n_bytes=90 << 20)


def test_a_running_engine_unloads(home, capsys):
    """The engine is told, and says what it gave back."""
    with serving(home, CountingRuntime()) as engine:
        unload.run(find_setup(), as_json=True)
        said = json.loads(capsys.readouterr().out)["unloaded"]
    assert said == {"model": "fake", "freed_bytes": 5 << 30, "records": 3, "n_bytes": 30, "problem": ""}
    assert "unload" in engine.calls
    with serving(home, CountingRuntime()):
        unload.run(find_setup(), as_json=False)
    assert capsys.readouterr().out.startswith("fake is unloaded, 5.0 GiB are free again")


def test_without_an_engine_nothing_is_started(home, capsys):
    """There is nothing to give back, and that is no error."""
    unload.run(find_setup(), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"unloaded": None}
    unload.run(find_setup(), as_json=False)
    assert "nothing to unload" in capsys.readouterr().out


def test_sentences():
    """What was saved, what was not, and that nothing was there."""
    assert unload.sentence(GONE) == (
        "Qwen3-4B is unloaded, 8.0 GiB are free again; 12 records were saved first; the next message loads it again."
    )
    assert unload.sentence(Unloaded(request=1, epoch="e")) == "No model is loaded."
    lost = Unloaded(request=1, epoch="e", model="m", problem="the disk is full")
    assert unload.sentence(lost).endswith("the next message loads it again. Not saved: the disk is full")
