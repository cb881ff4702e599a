"""`localkv config check | path | show | edit`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from localkv.commands.editor import edit_file
from localkv.commands.keymap import resolve
from localkv.commands.output import print_json, print_lines
from localkv.commands.setup import Setup
from localkv.config import Config, load_config
from localkv.errors import ConfigError


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


def edit(setup: Setup) -> None:
    """Open the file in the person's editor, begun with all defaults as comments if it is new; afterwards it is checked.

    Raises ConfigError; at a terminal a wrong setting is told and the editor opened again, if that is wanted.
    """
    file = setup.config_file
    begin_file(file)
    while True:
        edit_file(file)
        try:
            notes = resolve(load_config(file).keys, str(file)).notes
        except ConfigError as error:
            if not sys.stdin.isatty():
                raise
            print_lines([str(error)], sys.stderr)
            if input("Edit it again? [Y/n] ").strip().lower() in {"n", "no"}:
                raise
        else:
            print_lines([f"{file}: every setting is valid", *notes])
            return


def begin_file(file: Path) -> None:
    """Write `file` with every setting and its default as a comment, if it is not there. Raises ConfigError."""
    if file.exists():
        return
    lines = [f"# {line}" if line else "" for line in as_toml(msgspec.to_builtins(Config()))]
    text = "\n".join(
        [
            "# The settings of localkv, with their defaults. Take away the # before a line, and before its [section].",
            "",
            *lines,
        ]
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror or error}); give another place with --config") from error


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
