"""Durable steps on files."""

import os
import stat

import pytest

from localkv.files import Files, replace_durably


class Recording(Files):
    """The real steps, and a list of them; `fail` makes one of them fail."""

    def __init__(self, fail=""):
        self.steps = []
        self.fail = fail

    def _step(self, name):
        self.steps.append(name)
        if name == self.fail:
            raise OSError(5, "Input/output error")

    def write_temp(self, path, parts):
        self._step("write")
        return super().write_temp(path, parts)

    def sync(self, path):
        self._step("sync")
        super().sync(path)

    def rename(self, source, target):
        self._step("rename")
        super().rename(source, target)

    def sync_dir(self, directory):
        self._step("sync_dir")
        super().sync_dir(directory)


class Short(Files):
    """A file system that writes and reads few bytes at a time, as the kernel may."""

    def write_some(self, fd, view):
        return super().write_some(fd, view[:3])

    def read_some(self, fd, views, offset):
        return super().read_some(fd, [views[0][:2]], offset)


def test_write_temp_writes_all_parts(tmp_path):
    """Parts follow one another, also when the kernel takes few bytes at a time; the file is private."""
    for number, files in enumerate((Files(), Short())):
        path = tmp_path / str(number)
        assert files.write_temp(path, [b"hello ", bytearray(b"big "), memoryview(b"world")]) == 15
        assert path.read_bytes() == b"hello big world"
        if os.name != "nt":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_write_temp_takes_views_of_any_type(tmp_path):
    """Memory of another element size is written as bytes."""
    view = memoryview(bytes(range(8))).cast("H")
    assert Files().write_temp(tmp_path / "x", [view]) == 8


def test_write_temp_never_overwrites(tmp_path):
    """A temporary name that exists is an error: it may be another writer's."""
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        Files().write_temp(tmp_path / "x", [b"new"])
    assert (tmp_path / "x").read_bytes() == b"old"


def test_read_into(tmp_path):
    """From any offset, as far as the file goes, also in short steps."""
    (tmp_path / "x").write_bytes(b"0123456789")
    for files in (Files(), Short()):
        buffer = bytearray(4)
        assert files.read_into(tmp_path / "x", 3, memoryview(buffer)) == 4
        assert buffer == b"3456"
        assert files.read_into(tmp_path / "x", 8, memoryview(buffer)) == 2
        assert buffer == b"8956"


def test_read_parts(tmp_path):
    """Several buffers are filled one after the other; empty ones are skipped; the end of the file ends it."""
    (tmp_path / "x").write_bytes(b"0123456789")
    for files in (Files(), Short()):
        parts = [bytearray(3), bytearray(0), bytearray(1), bytearray(9)]
        assert files.read_parts(tmp_path / "x", [memoryview(part) for part in parts], 1) == 9
        assert parts[0] + parts[2] + parts[3][:5] == b"123456789"


def test_order_of_steps(tmp_path):
    """A file is synced before it gets its name, and its name after that: no other order survives a power cut."""
    files = Recording()
    replace_durably(files, tmp_path / "x", b"new")
    assert files.steps == ["write", "sync", "rename", "sync_dir"]
    assert (tmp_path / "x").read_bytes() == b"new"


@pytest.mark.parametrize("step", ["write", "sync", "rename"])
def test_failure_keeps_the_old_content(tmp_path, step):
    """Whichever step fails, the old content is there whole, and nothing else; a failed sync is not tried again."""
    (tmp_path / "x").write_bytes(b"old")
    files = Recording(fail=step)
    with pytest.raises(OSError, match="Input/output"):
        replace_durably(files, tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert files.steps.count(step) == 1


def test_remove_and_sizes(tmp_path):
    """Removing what is gone is no error; size and free space are numbers of bytes."""
    files = Files()
    (tmp_path / "x").write_bytes(b"12")
    assert files.size(tmp_path / "x") == 2
    files.remove(tmp_path / "x")
    files.remove(tmp_path / "x")
    assert files.list_dir(tmp_path) == []
    assert files.free_bytes(tmp_path) > 0
