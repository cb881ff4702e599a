"""`localkv config check | path | show`."""

import json
import re
from typing import Any

import msgspec

from localkv.commands.keymap import resolve
from localkv.commands.output import print_json, print_lines
from localkv.commands.setup import Setup


def check(setup: Setup, *, as_json: bool) -> None:
    """Say that the file can be used. Raises ConfigError (exit code 2) that names file, key, value and nearest name."""
    notes = resolve(setup.load().keys, str(setup.config_file)).notes
    exists = setup.config_file.is_file()
    if as_json:
        print_json({"file": str(setup.config_file), "exists": exists, "valid": True, "notes": list(notes)})
    elif exists:
        print_lines([f"{setup.config_file}: every setting is valid", *notes])
    else:
        print_lines([f"{setup.config_file}: there is no such file, so every setting has its default"])


def path(setup: Setup, *, as_json: bool) -> None:
    """Print where the file is, or would be."""
    if as_json:
        print_json({"file": str(setup.config_file), "exists": setup.config_file.is_file()})
    else:
        print_lines([str(setup.config_file)])


def show(setup: Setup, *, as_json: bool) -> None:
    """Print all settings in force, defaults included, as TOML that can be used as a file."""
    settings = msgspec.to_builtins(setup.load())
    if as_json:
        print_json(settings)
    else:
        print_lines(as_toml(settings))


def as_toml(settings: dict[str, dict[str, Any]]) -> list[str]:
    """Sections of plain values as lines of TOML. JSON's strings, numbers, booleans and lists are TOML's too."""
    lines = []
    for section, body in settings.items():
        lines += [
            f"[{section}]",
            *(f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in body.items()),
            "",
        ]
    return lines[:-1]


def _key(name: str) -> str:
    return name if re.fullmatch(r"\w+", name, re.ASCII) else json.dumps(name)
