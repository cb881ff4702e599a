"""Weights are on their way into the page cache before anybody loads them."""

import errno
import os
import time

import pytest

from localkv.models.readahead import read_ahead
from tests.models.test_reference import write_safetensors

PLENTY = 1 << 40

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system offers no way to ask for read-ahead")


def in_memory(file):
    """How many leading bytes of `file` can be read without the disk; None where the file system can't tell."""
    fd = os.open(file, os.O_RDONLY)
    try:
        size, offset = os.fstat(fd).st_size, 0
        buffer = bytearray(1 << 20)
        while offset < size:
            offset += os.preadv(fd, [buffer], offset, os.RWF_NOWAIT)
        return offset
    except OSError as error:
        return offset if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)


@pytest.fixture
def model(tmp_path):
    """A folder with 8 MB of weights, dropped from memory."""
    (tmp_path / "config.json").write_text("{}")
    write_safetensors(tmp_path / "model.safetensors", {"model.embed_tokens.weight": (1000, 4000)})
    drop(tmp_path / "model.safetensors")
    return tmp_path


def drop(file):
    fd = os.open(file, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def test_weights_come_without_being_read(model, tmp_path):
    """After the call, and without any read of ours, the whole file can be read without the disk."""
    file = model / "model.safetensors"
    size = file.stat().st_size
    if in_memory(file) is None or in_memory(file) == size:
        pytest.skip("this file system keeps the file in memory whatever it is told")
    drop(file)
    assert read_ahead(str(model), tmp_path / "models", PLENTY) == size
    deadline = time.monotonic() + 30
    while in_memory(file) != size and time.monotonic() < deadline:
        time.sleep(0.01)
    assert in_memory(file) == size


def test_more_than_half_of_the_memory_is_not_asked_for(model, tmp_path):
    """A model that fills the memory is left to the loader, which reads each part once."""
    size = (model / "model.safetensors").stat().st_size
    assert read_ahead(str(model), tmp_path / "models", 2 * size - 2) == 0
    assert read_ahead(str(model), tmp_path / "models", 2 * size) == size


@pytest.mark.parametrize("name", ["starter", "nobody/nothing", "/nowhere/at/all", "no model.gguf"])
def test_a_model_that_is_not_there_is_no_error(name, tmp_path):
    """Loading says what is wrong; asking ahead says nothing."""
    assert read_ahead(name, tmp_path / "models", PLENTY) == 0


def test_a_folder_without_weights_is_no_error(tmp_path):
    """Nor is one that must not be loaded."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    assert read_ahead(str(tmp_path), tmp_path, PLENTY) == 0
