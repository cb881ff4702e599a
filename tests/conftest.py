"""What all tests share: a home of their own, the starter model, one engine at a time; slow and GPU tests are chosen here."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest
from filelock import FileLock
from hypothesis import settings

from localkv.errors import LocalKVError
from localkv.paths import Home, find_home

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub: no test asks a network

# the machine may be busy: how long one example takes says nothing about the code
settings.register_profile("localkv", deadline=None, print_blob=True)
settings.load_profile("localkv")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the slow tests unless asked for, and skips the GPU's where there is none."""
    if not config.getoption("--run-slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not _has_cuda():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; this machine has none that torch can use"))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session", autouse=True)
def no_real_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that forgets `home` finds an empty one, never the conversations of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALKV_HOME", str(tmp_path_factory.mktemp("nobody") / "home"))
        yield


@pytest.fixture(scope="session", autouse=True)
def children_hear_signals() -> Iterator[None]:
    """Tests that run under nohup, or behind an & in a script, hand deafness to what they start, which obeys it.

    A handler, even one that does nothing, is not handed on: a new program begins with the system's own.
    """
    names = ("SIGHUP", "SIGINT", "SIGQUIT")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    deaf = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in deaf:
        signal.signal(number, lambda _number, _frame: None)
    yield
    for number in deaf:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """An empty home below `LOCALKV_HOME`, its directories made, private whatever the umask was."""
    monkeypatch.setenv("LOCALKV_HOME", str(tmp_path / "home"))
    umask = os.umask(0o077)
    made = find_home()
    made.prepare()
    yield made
    os.umask(umask)


@pytest.fixture(scope="session")
def test_cache() -> Path:
    """A folder that outlives the run: the starter model and the lock of the engines lie there."""
    folder = Path(os.environ.get("LOCALKV_TEST_CACHE") or platformdirs.user_cache_dir("localkv-tests"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def starter_model(test_cache: Path) -> Path:
    """The folder of the converted starter model, the same for all runs on this machine."""
    from localkv.engine.convert import starter_folder

    try:
        with FileLock(test_cache / "starter.lock"):
            return starter_folder(test_cache / "models", lambda *_: None)
    except LocalKVError as error:
        reason = f"THE STARTER MODEL CANNOT BE HAD, so nothing that needs a real model was tested: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def engine_lock(test_cache: Path) -> Iterator[None]:
    """Held to the end of the run: two engines at once on two cores nearly stop each other."""
    with FileLock(test_cache / "engine.lock"):
        yield


@pytest.fixture(scope="module")
def fast_module_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in memory where there is one: thousands of syncs are then free, and no test asks what they cost."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        yield tmp_path_factory.mktemp("fast")
        return
    made = Path(tempfile.mkdtemp(prefix="localkv-test-", dir=shm))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def fast_dir(fast_module_dir: Path) -> Path:
    """An empty directory of that kind for one test."""
    return Path(tempfile.mkdtemp(dir=fast_module_dir))
