"""House manners that a reader relies on: sizes, docstrings, names, no broad excepts, a tidy top level, clean tools."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "localkv").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (*PACKAGE, *TESTS)}

FUNCTION_CAP = 60
FUNCTION_P90 = 30
MODULE_CAP = 400
SHORT_METHOD = 4
TOP_LEVEL = {"pyproject.toml", "README.md", "localkv", "themes", "tests", "sample_configs"}
BANNED_WORDS = {"manager", "handler", "helper", "helpers", "util", "utils", "base", "impl", "info", "data"}
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def where(path: Path, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def length(node: ast.AST) -> int:
    return node.end_lineno - node.lineno + 1


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(TREES[path]) if isinstance(node, Function))


def public_definitions(body: list[ast.stmt], *, in_class: bool = False) -> Iterator[Function | ast.ClassDef]:
    """What others may use: public functions and classes, and the public methods of those classes."""
    for node in body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield node
            yield from public_definitions(node.body, in_class=True)
        elif not in_class or length(node) >= SHORT_METHOD:
            yield node


def words(name: str) -> set[str]:
    """The words of a CamelCase or snake_case name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_functions_do_one_step() -> None:
    """No function is longer than the cap, and nine of ten are far shorter."""
    sizes = {f"{where(path, node)} {node.name}": length(node) for path in PACKAGE for node in functions(path)}
    assert {name: size for name, size in sizes.items() if size > FUNCTION_CAP} == {}
    ordered = sorted(sizes.values())
    assert ordered[len(ordered) * 9 // 10] <= FUNCTION_P90


def test_modules_are_one_noun() -> None:
    """No module of the package is longer than the cap."""
    sizes = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE}
    assert {name: size for name, size in sizes.items() if size > MODULE_CAP} == {}


def test_docstrings() -> None:
    """Every module with code, every public class and every public function but the shortest methods says what it is."""
    missing = [str(path.relative_to(ROOT)) for path in PACKAGE if TREES[path].body and not ast.get_docstring(TREES[path])]
    missing += [
        f"{where(path, node)} {node.name}"
        for path in PACKAGE
        for node in public_definitions(TREES[path].body)
        if not ast.get_docstring(node)
    ]
    assert missing == []


def test_every_test_says_what_it_protects() -> None:
    """Each test function has a docstring."""
    missing = [
        f"{where(path, node)} {node.name}"
        for path in TESTS
        for node in functions(path)
        if node.name.startswith("test_") and not _is_fixture(node) and not ast.get_docstring(node)
    ]
    assert missing == []


def _is_fixture(node: Function) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_names_say_something() -> None:
    """No class and no module is called by a word that fits anything."""
    names = [(str(path.relative_to(ROOT)), path.stem) for path in PACKAGE]
    names += [
        (where(path, node), node.name) for path in PACKAGE for node in ast.walk(TREES[path]) if isinstance(node, ast.ClassDef)
    ]
    assert [(place, name) for place, name in names if words(name) & BANNED_WORDS] == []


def test_the_word_splitter() -> None:
    """Affixes are found in both spellings, and words that merely contain them are left alone."""
    assert words("KVManager") == {"kv", "manager"}
    assert words("io_utils") == {"io", "utils"}
    assert words("InfoBox") == {"info", "box"}
    assert not words("Database") & BANNED_WORDS
    assert not words("baseline") & BANNED_WORDS


def test_broad_excepts_stand_at_thread_roots() -> None:
    """Only the root of a thread or process catches everything, and says so on the line."""
    found = []
    for path in PACKAGE:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node) and "thread root" not in lines[node.lineno - 1]:
                found.append(where(path, node))
    assert found == []


def _is_broad(node: ast.ExceptHandler) -> bool:
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(kind is None or ast.unparse(kind).split(".")[-1] in ("Exception", "BaseException") for kind in caught)


def test_nothing_unpickles() -> None:
    """No module can run code that somebody put into a file: nothing imports pickle or its kin."""
    found = []
    for path in (*PACKAGE, *TESTS):
        for node in ast.walk(TREES[path]):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [where(path, node) for name in names if name.split(".")[0] in UNSAFE_MODULES]
    assert found == []


def test_top_level() -> None:
    """The repository's top level holds what the README names, and dotfiles."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this tree is not a git checkout")
    listed = run("git", "-c", f"safe.directory={ROOT}", "ls-files", "-z")
    assert listed.returncode == 0, listed.stderr
    tops = {name.split("/")[0] for name in listed.stdout.split("\0") if name}
    assert {name for name in tops if not name.startswith(".")} == TOP_LEVEL


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=["check", "format"])
def test_ruff(command: tuple[str, ...]) -> None:
    """The linter and the formatter have nothing to say."""
    said = run(sys.executable, "-m", "ruff", *command, "localkv", "tests")
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.slow
def test_mypy() -> None:
    """The package is typed without a hole."""
    said = run(sys.executable, "-m", "mypy")
    assert said.returncode == 0, said.stdout + said.stderr
