"""What every command starts from: the directories in force and the configuration file.

Frozen; reads the configuration only when asked, so that `paths` and `logs` work while the file is broken.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from localkv.config import Config, load_config
from localkv.errors import ConfigError
from localkv.paths import Home, expanded, find_home, has_file


@dataclass(frozen=True, slots=True)
class Setup:
    """The home of this run. `given_file` is what --config named; None takes the home's own file, which may be missing."""

    home: Home
    given_file: Path | None = None

    @property
    def config_file(self) -> Path:
        return self.given_file or self.home.config_file

    def load(self) -> Config:
        """The settings in force. Raises ConfigError; a file named with --config must exist.

        A model's folder that is written from here is absolute: the engine, and the next face, may have been started elsewhere.
        """
        if self.given_file is not None and not has_file(self.given_file):
            raise ConfigError(
                f"{self.given_file}: there is no such file; give another one after --config, or leave the option out"
            )
        from localkv.models.reference import absolute_name

        config = load_config(self.config_file)
        model = msgspec.structs.replace(config.model, name=absolute_name(config.model.name))
        return msgspec.structs.replace(config, model=model)


def find_setup(given_file: Path | None = None) -> Setup:
    """The Setup of this process's environment."""
    return Setup(find_home(), expanded(given_file).absolute() if given_file is not None else None)
