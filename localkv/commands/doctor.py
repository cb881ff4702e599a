"""`localkv doctor`: what this machine is and whether everything works; one screen to read or to paste into a report.

The machine's part is found without torch and comes first; the engine's part is asked of an engine, started if need be. If
that fails, the failure is a line of the report. Thread: main.
"""

from collections.abc import Callable, Mapping
from typing import Any

from localkv.commands import asking, machine
from localkv.commands.output import print_json, print_sections
from localkv.commands.setup import Setup
from localkv.commands.talk import changed_model
from localkv.config import Config, ModelSection
from localkv.errors import ConfigError, LocalKVError, PathError
from localkv.service.protocol import Examine, Report

Sections = dict[str, Mapping[str, Any]]
ENGINE_SECONDS = 600.0
"""The first load of a large model from a slow disk takes minutes; each sign of life starts this anew."""

AskEngine = Callable[[Setup, Config, ModelSection], Sections]


def run(setup: Setup, *, model: str | None, as_json: bool, ask: AskEngine | None = None) -> int:
    """Print the report; the exit code is 1 if something does not work."""
    problems: list[str] = []
    config = _config(setup, problems)
    sections = machine_sections(setup, config)
    section = changed_model(config.model, {} if model is None else {"name": model}, "--model")
    try:
        sections.update((ask or ask_engine)(setup, config, section))
    except LocalKVError as error:
        problems.append(f"the engine: {error}")
    sections["problems"] = {str(number): text for number, text in enumerate(problems, 1)} or {"none": "everything works"}
    print_json(sections) if as_json else print_sections(sections)
    return 1 if problems else 0


def machine_sections(setup: Setup, config: Config) -> Sections:
    """What is known without torch and without an engine."""
    facts = machine.find_facts()
    return {
        "machine": machine.machine_section(facts),
        "libraries": machine.library_section(),
        "disk": machine.disk_section(setup.home),
        "budgets": machine.budget_section(config.memory, setup.home),
        "settings": {"file": str(setup.config_file), "exists": setup.config_file.is_file(), "home": str(setup.home.data_dir)},
    }


def ask_engine(setup: Setup, config: Config, model: ModelSection) -> Sections:
    """The engine's own report about `model`. Raises LocalKVError if it cannot start, load the model, or answer."""
    report = asking.ask_engine(setup, config, lambda n: Examine(request=n, model=model), Report, ENGINE_SECONDS)
    return dict(report.sections)


def _config(setup: Setup, problems: list[str]) -> Config:
    """The settings, or the defaults and a problem: a report must come out of a broken file, too."""
    try:
        return setup.load()
    except (ConfigError, PathError) as error:
        problems.append(str(error))
        return Config()
