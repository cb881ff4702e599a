"""How an engine process is started."""

import os
from pathlib import Path

import msgspec
import pytest

from localkv.config import ChatSection, Config, EngineSection, SamplingSection
from localkv.errors import EngineUnavailable
from localkv.paths import Home
from localkv.service.launch import launch_argument, read_launch


def test_home_and_engine_settings_reach_the_engine(home):
    """The engine uses the same directories and settings as the face that starts it."""
    config = Config(engine=EngineSection(threads=3, linger_seconds=2.0))
    launch = read_launch(launch_argument(home, config))
    assert launch.home == home
    assert launch.config == msgspec.structs.replace(Config(), engine=config.engine)


def test_nothing_private_is_on_the_command_line(home):
    """Every user of the machine can read command lines; prompts are not on them."""
    config = Config(chat=ChatSection(system="my secret"), sampling=SamplingSection(stop=("my secret",)))
    assert "secret" not in launch_argument(home, config)


def test_an_engine_started_by_hand_says_so():
    """A wrong argument is a sentence, not a traceback."""
    with pytest.raises(EngineUnavailable, match="not by hand"):
        read_launch("")


def test_homes_of_any_bytes_reach_the_engine(tmp_path):
    """A folder's name need not be text: an old disk has names in other encodings."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \xc3\xbc \n"))
    home = Home(*[folder / name for name in ("config", "data", "cache", "models")])
    argument = launch_argument(home, Config())
    assert read_launch(argument).home == home
    assert argument.isascii()
    assert home.socket != Home(*[tmp_path] * 4).socket
