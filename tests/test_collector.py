"""Garbage is looked for again, however the work ends that was spared from it."""

import gc

import pytest

from localkv.collector import nothing_collected
from localkv.config import Config, ModelSection
from localkv.errors import ModelError
from localkv.events import EventLog
from localkv.runtime import Runtime


@pytest.fixture(autouse=True)
def on():
    """The collector as it is everywhere else."""
    gc.enable()
    yield
    gc.enable()


def test_it_is_off_inside_and_on_again():
    """Also after an error."""
    with nothing_collected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), nothing_collected():
        raise KeyError
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off():
    """The block gives back what it found."""
    gc.disable()
    with nothing_collected():
        pass
    assert not gc.isenabled()


def test_a_model_is_opened_without_it(home, monkeypatch):
    """Importing and loading are spared, and turns are not: a model that cannot be loaded leaves the collector on, too."""
    seen = []

    def refuse(*_):
        seen.append(gc.isenabled())
        raise ModelError("no such model")

    monkeypatch.setattr("localkv.opened.open_model", refuse)
    with pytest.raises(ModelError):
        Runtime(home, Config(), EventLog(None), "e").prepare(ModelSection(), lambda *_: None)
    assert seen == [False]
    assert gc.isenabled()
