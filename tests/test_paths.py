"""Directories: where they are, who may enter."""

import os
import stat
from pathlib import Path

import pytest

from localkv.errors import PathError
from localkv.paths import Home, expanded, find_home, has_file, has_folder, private_dir, resource_dir

posix = pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home below the test's folder."""
    monkeypatch.setenv("LOCALKV_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return find_home()


def mode(path):
    """The permission bits of `path`."""
    return stat.S_IMODE(path.stat().st_mode)


def test_localkv_home_moves_everything(home, tmp_path):
    """One variable moves configuration, data, cache and models."""
    for place in (home.config_file, home.database, home.store, home.models_dir, home.event_log, home.engine_log, home.backups):
        assert place.is_relative_to(tmp_path / "home")


def test_home_is_absolute(monkeypatch, tmp_path):
    """A relative or "~" LOCALKV_HOME means the same for the engine, which may run elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCALKV_HOME", "here")
    assert find_home().data_dir == tmp_path / "here" / "data"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALKV_HOME", "~/there")
    assert find_home().data_dir == tmp_path / "there" / "data"


def test_home_of_nobody_is_refused(monkeypatch):
    """Where LOCALKV_HOME begins with a user that is none, it says so: no folder of that name is made here or there."""
    monkeypatch.setenv("LOCALKV_HOME", "~nobody-at-all/kv")
    with pytest.raises(PathError, match="~nobody-at-all"):
        find_home()


@pytest.mark.parametrize("path", ["~nobody-at-all", "~nobody-at-all/x", "~\0", "~\ud800/x", "plain", "a/~b"])
def test_what_means_no_home_folder_stays_as_it_is_written(path):
    """No path that a person types ends the program where "~" is looked up."""
    assert expanded(path) == Path(path)


def test_tilde_means_home(monkeypatch, tmp_path):
    """The person's own folder is found."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/x") == tmp_path / "x"


def test_without_localkv_home_the_platform_decides(monkeypatch):
    """Data and cache are apart, so that the cache can be deleted."""
    monkeypatch.delenv("LOCALKV_HOME", raising=False)
    home = find_home()
    assert home.data_dir != home.cache_dir
    assert not home.database.is_relative_to(home.cache_dir)


@posix
def test_prepare_makes_private_directories(home):
    """The cache contains the conversation: nobody else may look, whatever the umask."""
    before = os.umask(0)
    try:
        home.prepare()
    finally:
        os.umask(before)
    for directory in (home.config_dir, home.data_dir, home.cache_dir, home.models_dir, home.logs, Path(home.socket).parent):
        assert mode(directory) == 0o700, directory


@posix
def test_open_directories_are_closed_or_refused(tmp_path):
    """One that others may read is closed; one that they may write to is refused with the command to run."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    private_dir(tmp_path / "a")
    assert mode(tmp_path / "a") == 0o700
    (tmp_path / "b").mkdir()
    (tmp_path / "b").chmod(0o777)
    with pytest.raises(PathError, match="chmod 700"):
        private_dir(tmp_path / "b")


@posix
def test_foreign_directories_are_refused(tmp_path, monkeypatch):
    """A directory of another user may be changed under our feet."""
    (tmp_path / "a").mkdir()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(PathError, match="another user"):
        private_dir(tmp_path / "a")


def test_file_in_the_way(tmp_path):
    """A file where a directory should be is an error with a way out."""
    (tmp_path / "x").write_text("")
    with pytest.raises(PathError, match="LOCALKV_HOME"):
        private_dir(tmp_path / "x")


@posix
def test_socket_addresses_are_short_and_apart(tmp_path, monkeypatch):
    """A Unix socket's path is limited to about 100 bytes; two homes have two sockets."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    deep = [tmp_path / ("x" * 120) / name for name in ("one", "two")]
    addresses = {Home(*[folder] * 4).socket for folder in deep}
    assert len(addresses) == 2
    assert all(len(address.encode()) < 100 for address in addresses)


def test_resources_are_found_in_the_tree():
    """Themes and sample configurations are there without installing anything."""
    assert (resource_dir("sample_configs") / "cpu-only.toml").is_file()
    assert any(resource_dir("themes").iterdir())
    with pytest.raises(PathError, match="install localkv again"):
        resource_dir("no-such-folder")


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "a\0b", "~no-such-user", "file/below"], ids=range(5))
def test_what_cannot_be_looked_at_is_not_there(tmp_path, name):
    """Names from people and strangers, however odd, are answered and never raise."""
    (tmp_path / "file").write_text("")
    assert not has_file(tmp_path / name)
    assert not has_folder(tmp_path / name)
    assert has_file(tmp_path / "file")
    assert has_folder(tmp_path)
