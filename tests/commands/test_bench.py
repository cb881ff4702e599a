"""Benches wait for each other, and say so when they cannot."""

import os
import tempfile

import pytest

from localkv.commands import bench
from localkv.errors import PathError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A temporary folder of this test, and no patience."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(bench, "LOCK_SECONDS", 0.05)
    return tmp_path


def test_one_bench_at_a_time(capsys):
    """A bench that runs is waited for, and not for ever: then that is a sentence. The next one after it runs."""

    def measure(_say):
        with pytest.raises(PathError, match="another bench"):
            bench.report(lambda _: {"n": 2}, as_json=False)
        return {"n": 1}

    assert bench.report(measure, as_json=True) == 0
    assert bench.report(lambda _: {"n": 3}, as_json=True) == 0
    told = capsys.readouterr()
    assert told.out == '{"n": 1}\n{"n": 3}\n'
    assert "waiting for it" in told.err


@pytest.mark.skipif(os.name == "nt", reason="each user has a temporary folder")
def test_users_of_one_machine_are_not_in_each_others_way(monkeypatch, capsys):
    """The temporary folder is for all, the lock for one: a file that another user made need not be opened."""

    def other(_say):
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        bench.report(lambda _: {"n": 2}, as_json=True)
        return {"n": 1}

    bench.report(other, as_json=True)
    told = capsys.readouterr()
    assert (told.out, told.err) == ('{"n": 2}\n{"n": 1}\n', "")


def test_a_lock_that_cannot_be_had_is_said(folder, monkeypatch):
    """A temporary folder that takes no file is a sentence."""
    (folder / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "file" / "below"))
    with pytest.raises(PathError, match="cannot be locked"):
        bench.report(lambda _: {"n": 1}, as_json=True)
