"""README.md says what the program does: its tables are made from the program.

`python -m tests.test_readme` writes them anew.
"""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def table(head, rows):
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def commands_table():
    """Every command of the command line with the first sentence of its help."""
    from localkv import cli
    from localkv.commands import sessions

    groups = {"sessions": sessions.app} | {group.name: group.typer_instance for group in cli.app.registered_groups}
    rows = [
        (f"`localkv {c.name or c.callback.__name__}`", c.callback.__doc__.strip().splitlines()[0])
        for c in cli.app.registered_commands
    ]
    for name, group in groups.items():
        for command in group.registered_commands:
            rows.append((f"`localkv {name} {command.name}`", command.callback.__doc__.strip().splitlines()[0]))
    return table(("command", "what it does"), rows)


def keys_table():
    """Every key of the screen."""
    from localkv.tui.keys import help_sections

    rows = [(f"`{name}`", title, text) for title, section in help_sections().items() for name, text in section]
    return table(("key", "where", "what it does"), rows)


def slash_table():
    """Every command inside a chat."""
    from localkv.commands.registry import COMMANDS

    return table(("command", "what it does"), [(f"`{command.usage}`", command.help) for command in COMMANDS])


GENERATED = {"commands": commands_table, "keys": keys_table, "slash": slash_table}


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_tables_are_those_of_the_program(name):
    """A command or key that is added, renamed or removed shows in the README."""
    found = {block[1]: block[2] for block in BLOCK.findall(README.read_text(encoding="utf-8"))}
    assert found[name] == GENERATED[name](), "run: python -m tests.test_readme"


def test_test_line_is_marked():
    """The line that installs the tests and runs them stands alone in the block after its mark: programs read it there."""
    match = re.search(r"<!-- test-line -->\n```sh\n(.*)\n```", README.read_text(encoding="utf-8"))
    assert match
    assert match[1].endswith(".venv/bin/python -m pytest --run-slow")


def test_set_up_makes_or_reuses_its_environment():
    """Both lines make .venv only if it is missing."""
    lines = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("([ -d .venv ]")]
    assert len(lines) == 2
    assert all(line.startswith("([ -d .venv ] || python3 -m venv .venv) && .venv/bin/pip install -q -e ") for line in lines)


def test_models_are_those_that_the_program_names():
    """README and first run give the same advice."""
    from localkv.models.starter import BETTER_MODELS

    text = README.read_text(encoding="utf-8")
    for _, name, _ in BETTER_MODELS:
        assert f"`localkv models pull {name}`" in text


def test_what_needs_the_screen_is_named():
    """Nobody is told of a command in plain mode that is refused there."""
    from localkv.commands.registry import COMMANDS

    text = " ".join(README.read_text(encoding="utf-8").split())
    named = re.search(r"In `--plain` mode, too, but for ([^:]*), which need the screen:", text)[1]
    assert re.findall(r"`/(\w+)`", named) == [command.slash for command in COMMANDS if not command.plain]


def test_what_can_go_wrong_is_tested():
    """Each row of the table names a test that shows it, and that test is there."""
    text = README.read_text(encoding="utf-8")
    body = text[text.index("| what | what happens | shown by |") :].split("\n\n")[0]
    rows = [line.split(" | ") for line in body.splitlines()[2:]]
    assert len(rows) >= 20
    named = {row[-1].strip("` |") for row in rows}
    sources = (path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    known = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    assert {name for name in named if name not in known} == set()


def write():
    """Put the generated tables into README.md."""
    text = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(lambda m: m[1] + GENERATED[m[2]]() + m[4], text), encoding="utf-8")


if __name__ == "__main__":
    write()
