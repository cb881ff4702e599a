"""Fetching from, listing and removing what is in the user's Hugging Face cache. No network: the hub is played."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from localkv.errors import FetchFailed, ModelError, ModelGated, ModelMissing
from localkv.models import hub
from tests.models.test_reference import add_repository, cache  # noqa: F401  # a fixture


class DryFile(NamedTuple):
    """What a dry run says of one file."""

    filename: str
    file_size: int
    will_download: bool


class Response:
    """As much of an HTTP response as the hub's errors look at."""

    status_code = 404
    headers = {}
    request = None
    url = "https://hub.example/x"
    text = ""

    def json(self):
        return {}


def make_error(kind):
    """An error of huggingface_hub, made without a request."""
    error = kind.__new__(kind)
    Exception.__init__(error, f"{kind.__name__}: said the hub\nand more")
    return error


class Snapshot:
    """Stands in for snapshot_download."""

    def __init__(
        self, files=(DryFile("model.safetensors", 1000, True), DryFile("config.json", 10, False)), error=None, late_error=None
    ):
        self.files, self.error, self.late_error = files, error, late_error
        self.calls = []

    def __call__(self, name, dry_run=False, tqdm_class=None, **arguments):
        self.calls.append(arguments)
        if self.error:
            raise self.error
        if dry_run:
            return list(self.files)
        with tqdm_class(total=0, unit="B", desc="Reconstructing", name="huggingface_hub.snapshot_download") as bar:
            bar.total = 1000
            bar.update(600)
            bar.update(600)
            bar.set_description("x")
        with tqdm_class(total=2, desc="Fetching 2 files") as bar:
            bar.update(1)
        if self.late_error:
            raise self.late_error
        return "/hub/snapshot"


@pytest.fixture(autouse=True)
def no_network(monkeypatch, cache):  # noqa: F811
    """Everything here would fail rather than open a connection."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Snapshot(error=AssertionError("not played")))


def play(monkeypatch, **settings):
    """Let the hub answer as `settings` say."""
    snapshot = Snapshot(**settings)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return snapshot


def test_pull_fetches_only_what_is_used(monkeypatch):
    """No pickles, no other formats; code only when asked for. Progress counts bytes and never passes the total."""
    snapshot = play(monkeypatch)
    seen = []
    assert hub.pull("Org/model", lambda *step: seen.append(step)) == Path("/hub/snapshot")
    patterns = snapshot.calls[-1]["allow_patterns"]
    assert "*.safetensors" in patterns
    assert not {"*.bin", "*.pt", "*.py", "*"} & set(patterns)
    assert seen == [("Org/model", done, 1000) for done in (0, 600, 1000, 1000)]
    hub.pull("Org/model", lambda *step: None, with_code=True)
    assert "*.py" in snapshot.calls[-1]["allow_patterns"]


@pytest.mark.parametrize(
    ("kind", "ours", "words"),
    [
        (errors.GatedRepoError, ModelGated, [f"{constants.ENDPOINT}/Org/model", "hf auth login"]),
        (errors.RepositoryNotFoundError, ModelMissing, ["Org/model", "hf auth login"]),
        (errors.RevisionNotFoundError, ModelMissing, ["Org/model"]),
        (errors.HFValidationError, ModelMissing, ["Org/model"]),
        (errors.LocalEntryNotFoundError, FetchFailed, ["cannot be reached", "localkv models pull Org/model"]),
        (errors.IncompleteSnapshotError, FetchFailed, ["localkv models pull Org/model"]),
        (errors.HfHubHTTPError, FetchFailed, ["localkv models pull Org/model"]),
    ],
)
def test_errors_of_the_hub_become_sentences(monkeypatch, kind, ours, words):
    """Each failure says what to do; none is a traceback."""
    play(monkeypatch, error=make_error(kind))
    with pytest.raises(ours) as caught:
        hub.pull("Org/model", lambda *step: None)
    assert type(caught.value) is ours
    for word in words:
        assert word in str(caught.value)


def test_interruption_says_that_it_continues(monkeypatch):
    """A connection that breaks in the middle, of whichever HTTP library, is an interrupted download."""
    broken = errors.HTTPError("peer closed connection")
    for error in (broken, ConnectionResetError(104, "reset"), OSError(28, "No space left on device")):
        play(monkeypatch, late_error=error)
        with pytest.raises(FetchFailed, match="run it again to continue"):
            hub.pull("Org/model", lambda *step: None)


def test_no_room_is_found_before(monkeypatch):
    """A download that does not fit is refused before it starts, with both numbers."""
    snapshot = play(monkeypatch, files=(DryFile("model.safetensors", 50 << 30, True),))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=20 << 30))
    with pytest.raises(FetchFailed, match=r"50\.0 GiB.*20\.0 GiB"):
        hub.pull("Org/model", lambda *step: None)
    assert len(snapshot.calls) == 1


def test_repository_without_safetensors(monkeypatch):
    """Pickled weights are not fetched."""
    play(monkeypatch, files=(DryFile("pytorch_model.bin", 10, True),))
    with pytest.raises(ModelError, match="no safetensors"):
        hub.pull("Org/model", lambda *step: None)


def test_offline_is_respected(monkeypatch, cache):  # noqa: F811
    """With HF_HUB_OFFLINE nothing is asked; what is there already is found."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FetchFailed, match="HF_HUB_OFFLINE"):
        hub.pull("Org/model", lambda *step: None)
    snapshot = add_repository(cache, "Org/model")
    assert hub.pull("Org/model", lambda *step: None) == snapshot


@pytest.mark.parametrize("name", ["starter", "./folder", "x.gguf"])
def test_only_hub_ids_are_pulled(name):
    """Other kinds of names are refused before the hub is asked."""
    with pytest.raises(ModelMissing):
        hub.pull(name, lambda *step: None)


def test_list_shows_language_models(cache, tmp_path):  # noqa: F811
    """Only what generates text; half downloads are marked; the starter comes first."""
    add_repository(cache, "Org/chat")
    add_repository(cache, "Org/half", shards=(), index={"a": "gone.safetensors"})
    (add_repository(cache, "Org/encoder") / "config.json").write_text('{"architectures": ["BertModel"]}')
    (add_repository(cache, "Org/junk") / "config.json").write_text("[]")
    (tmp_path / "m" / "starter").mkdir(parents=True)
    (tmp_path / "m" / "starter" / "config.json").write_bytes(b"12345")
    models = hub.list_local(tmp_path / "m")
    assert [(m.name, m.source, m.complete) for m in models] == [
        ("starter", "starter", True),
        ("Org/chat", "hub", True),
        ("Org/half", "hub", False),
    ]
    assert models[0].n_bytes == 5


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json"])
def test_a_hostile_repository_does_not_hide_the_others(cache, tmp_path, file):  # noqa: F811
    """Whatever lies in the cache that others fill, the list of models comes."""
    add_repository(cache, "Org/chat")
    snapshot = add_repository(cache, "Org/hostile", shards=(), index={"a": "x.safetensors"})
    (snapshot / file).write_text("[" * 100_000)
    assert "Org/chat" in [model.name for model in hub.list_local(tmp_path) if model.complete]


def test_list_without_any_cache(tmp_path, monkeypatch):
    """A machine that never used the hub has no models, and that is no error."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    assert hub.list_local(tmp_path) == []


@pytest.mark.parametrize(
    ("config", "causal"),
    [
        ('{"architectures": ["Qwen3ForCausalLM"]}', True),
        ('{"architectures": ["GPT2LMHeadModel"]}', True),
        ('{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {}}', True),
        ('{"architectures": ["T5ForConditionalGeneration"]}', False),
        ('{"architectures": null}', False),
        ("{}", False),
        ("nonsense", False),
        ("[" * 100_000, False),
        ('{"architectures": ' + "[" * 100_000, False),
    ],
    ids=range(9),
)
def test_looks_causal(tmp_path, config, causal):
    """Architectures decide, and a broken file is no model."""
    (tmp_path / "config.json").write_text(config)
    assert hub.looks_causal(tmp_path / "config.json") is causal


def test_remove(cache, tmp_path):  # noqa: F811
    """A repository goes with all its files; an unknown one is named with the nearest; a user's own folder is not touched."""
    add_repository(cache, "Org/chat")
    with pytest.raises(ModelMissing, match="Org/chat"):
        hub.remove("Org/chat2", tmp_path)
    assert hub.remove("Org/chat", tmp_path) > 0
    assert hub.list_local(tmp_path) == []
    with pytest.raises(ModelError, match="yourself"):
        hub.remove(str(tmp_path), tmp_path)


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
def test_what_is_not_deleted_is_said(cache, tmp_path, monkeypatch, error):  # noqa: F811
    """The cache may belong to somebody else: nobody is told of free space while the files are still there."""

    def refuse(*_, **__):
        raise error

    add_repository(cache, "Org/chat")
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        with pytest.raises(ModelError, match="could not be deleted"):
            hub.remove("Org/chat", tmp_path)
    assert [model.name for model in hub.list_local(tmp_path)] == ["Org/chat"]
    assert hub.remove("Org/chat", tmp_path) > 0


def test_remove_a_starter_that_is_a_link(tmp_path):
    """What was linked from elsewhere stays there: only the link goes."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model.safetensors").write_bytes(b"123")
    (tmp_path / "starter").symlink_to(elsewhere, target_is_directory=True)
    assert hub.remove("starter", tmp_path) == 0
    assert not (tmp_path / "starter").exists()
    assert (elsewhere / "model.safetensors").read_bytes() == b"123"


def test_remove_starter(tmp_path):
    """The starter's folder goes; a second time says that it is not there."""
    (tmp_path / "starter").mkdir()
    (tmp_path / "starter" / "model.safetensors").write_bytes(b"123")
    assert hub.remove("starter", tmp_path) == 3
    with pytest.raises(ModelMissing):
        hub.remove("starter", tmp_path)
