"""`localkv doctor` and `localkv stats`: reports that come out even if nothing works."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.commands import doctor, machine, stats
from localkv.commands.setup import find_setup
from localkv.config import MemorySection
from localkv.errors import EngineUnavailable
from localkv.placement.policy import ssd_budget
from localkv.service.protocol import Card, Preloads, Restores, Spread, TierUse, Written
from tests.service.fakes import snapshot

from .engine import CountingRuntime, serving


def facts(**changes):
    """Facts of a plain Linux machine, changed."""
    return machine.Facts(
        **({"system": "Linux", "release": "6.1", "nvidia": False, "rocm": False, "torch": "2.13.0+cpu"} | changes)
    )


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, "linux-cpu"),
        ({"nvidia": True}, "linux-cuda"),
        ({"rocm": True}, "linux-rocm"),
        ({"release": "5.15.1-microsoft-standard-WSL2", "nvidia": True}, "wsl"),
        ({"system": "Darwin"}, "macos"),
        ({"system": "Windows"}, "windows"),
        ({"system": "FreeBSD"}, "other"),
    ],
)
def test_platform_class(changes, key):
    """Each platform has its class and a sentence about what follows."""
    assert machine.classify(facts(**changes)) == key
    assert machine.CLASSES[key]


def test_advice():
    """A CPU build of torch beside an NVIDIA driver is told, and so is a missing torch; else nothing."""
    assert machine.advice(facts()) == ""
    assert machine.advice(facts(nvidia=True, torch="2.13.0")) == ""
    assert "CPU build" in machine.advice(facts(nvidia=True))
    assert "not installed" in machine.advice(facts(torch=""))


def test_facts_of_a_machine(tmp_path):
    """NVIDIA and AMD drivers are found by the files that they make."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("x")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").write_text("")
    found = machine.find_facts(tmp_path)
    assert found.nvidia
    assert found.rocm


@given(*[st.integers(0, 1 << 45)] * 3)
def test_budget_on_ssd(total, free, stored):
    """The report tells the budget that the engine takes."""
    assert machine.ssd_default(total, free, stored) == ssd_budget(None, total, free, stored)


def test_budgets_of_the_settings(home):
    """Sizes of the settings are shown as they count."""
    section = machine.budget_section(MemorySection(ram_pool="1536 MiB", ssd_store="3G"), home)
    assert section["ram_pool"].startswith("1.5 GiB")
    assert section["ssd_store"].startswith("3.0 GiB")


def test_folder_bytes(tmp_path):
    """Bytes below a folder, in all its folders; none if it is not there."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_bytes(b"123")
    (tmp_path / "a" / "y").write_bytes(b"4")
    assert machine.folder_bytes(tmp_path / "a") == 4
    assert machine.folder_bytes(tmp_path / "none") == 0
    assert machine.existing(tmp_path / "none" / "deeper") == tmp_path


def test_report_with_a_working_engine(home, capsys):
    """Machine and engine in one report; exit code 0."""
    with serving(home, CountingRuntime()) as engine:
        assert doctor.run(find_setup(), model=None, as_json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["machine", "libraries", "disk", "budgets", "settings", "problems"]
    assert report["machine"] == {"cores": 2}
    assert "prepare starter" in engine.calls


def test_report_with_another_model(home, capsys):
    """--model is the one that is loaded and tried."""
    with serving(home, CountingRuntime()) as engine:
        doctor.run(find_setup(), model="Org/model", as_json=False)
    assert "prepare Org/model" in engine.calls
    assert "everything works" in capsys.readouterr().out


def test_another_model_is_loaded_as_a_chat_loads_it(home, capsys):
    """All of the section [model] holds for it; code is trusted of the settings' model alone."""
    home.config_file.write_text('[model]\nname = "org/own"\ndtype = "float32"\nquant = "8bit"\ntrust_remote_code = true\n')
    asked = []
    for model in (None, "org/own", "org/other"):
        doctor.run(find_setup(), model=model, as_json=True, ask=lambda *given: asked.append(given[2]) or {})
    assert [(each.name, each.dtype, each.quant, each.trust_remote_code) for each in asked] == [
        ("org/own", "float32", "8bit", True),
        ("org/own", "float32", "8bit", True),
        ("org/other", "float32", "8bit", False),
    ]


def test_report_without_an_engine(home, capsys):
    """If the engine cannot start, that is a line of the report, the rest is there, and the exit code is 1."""

    def fail(*_):
        raise EngineUnavailable("torch cannot be imported")

    assert doctor.run(find_setup(), model=None, as_json=False, ask=fail) == 1
    out = capsys.readouterr().out
    assert "torch cannot be imported" in out
    assert "linux" in out or "mac" in out or "win" in out
    assert "ssd_store" in out


def test_report_with_broken_settings(home, capsys):
    """A broken configuration file is a line of the report, too."""
    home.config_file.write_text("[engine]\nthread = 1\n")
    assert doctor.run(find_setup(), model=None, as_json=True, ask=lambda *_: {}) == 1
    assert "threads" in json.loads(capsys.readouterr().out)["problems"]["1"]


def test_failure_of_the_model(home, capsys):
    """A model that cannot be loaded is told in the engine's words."""

    class Failing(CountingRuntime):
        def prepare(self, model, progress):
            raise EngineUnavailable("no such model")

    with serving(home, Failing()):
        assert doctor.run(find_setup(), model=None, as_json=True) == 1
    assert "no such model" in json.loads(capsys.readouterr().out)["problems"]["1"]


def test_machine_part_needs_no_torch():
    """The report is made when torch is broken: a torch that fails to import is never imported."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "from localkv.commands import doctor; from localkv.commands.setup import find_setup; from localkv.config import Config\n"
        "print(sorted(doctor.machine_sections(find_setup(), Config())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['budgets', 'disk', 'libraries', 'machine', 'settings']", done.stderr


def test_stats_without_an_engine(home, capsys):
    """No engine is started to say that none runs, and that is no error."""
    stats.run(find_setup(), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"engine": None}
    stats.run(find_setup(), as_json=False)
    assert "No engine is running" in capsys.readouterr().out


def test_stats_of_a_running_engine(home, capsys):
    """What the engine holds, for people and as JSON."""
    with serving(home, CountingRuntime()) as engine:
        stats.run(find_setup(), as_json=True)
        snapshot = json.loads(capsys.readouterr().out)["engine"]
    assert snapshot["device"] == "cpu"
    assert snapshot["context_tokens"] == 100
    assert engine.calls[0] != "turn"
    with serving(home, CountingRuntime()):
        stats.run(find_setup(), as_json=False)
    out = capsys.readouterr().out
    assert "0 of 100 tokens" in out
    assert "not used" in out


def test_stats_say_every_figure(home):
    """Each figure of the snapshot has its words: nothing that the engine counts can only be had as JSON."""
    spread = Spread(count=4, p50=12.0, p90=40.0, p99=90.0)
    tier = TierUse(
        used_bytes=1 << 20, limit_bytes=1 << 30, committed_bytes=3 << 20, records=5, held=1,
        swaps_in=7, bytes_in=7 << 20, ms_in=spread, swaps_out=2, bytes_out=2 << 20, ms_out=spread,
    )  # fmt: skip
    full = snapshot(
        ram=tier, ssd=tier, turns=3, prompt_tokens=1000, restored_tokens=800, fallback_tokens={"evicted": 256},
        fallback_prefills={"evicted": 2}, restores=Restores(tried=8, failed=2, n_bytes=9 << 20, ms=spread),
        preloads=Preloads(loaded=9, hits=4, wasted=3, wasted_bytes=5 << 20, cancelled=1), ttft_ms=spread, tokens_per_second=spread,
        written_bytes=11 << 20, written=Written(today_bytes=12 << 20, total_bytes=13 << 30), kept_records=6,
        card=Card(total_bytes=24 << 30, used_bytes=21 << 30),
    )  # fmt: skip
    said = json.dumps(stats.sections(full))
    for figure in (
        "800 (80%)", "256 tokens in 2 turns", "8, 2 broken off (25%), 9.0 MiB, 12 ms (p90 40, p99 90)",
        "9 records, 4 used, 3 for nothing (5.0 MiB), 1 cancelled", "21.0 GiB of 24.0 GiB, all programs", "11.0 MiB", "12.0 MiB", "13.0 GiB",
        "1.0 MiB of 1.0 GiB, 5 records (1 held), 2.0 MiB of holes; in 7, 7.0 MiB, 12 ms (p90 40, p99 90); out 2, 2.0 MiB",
    ):  # fmt: skip
        assert figure in said, figure
    assert stats.sections(snapshot())["computed again"] == {"none": None}
