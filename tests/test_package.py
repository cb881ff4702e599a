"""The wheel: what it holds and that it works where the source tree is not."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("hatchling") is None, reason="hatchling builds the wheel; pip install hatchling"
    ),
]


def python(*arguments, **settings):
    """Run this Python; its output."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    python(
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    )
    (path,) = folder.glob("localkv-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the installed wheel, far from the tree."""
    target = tmp_path_factory.mktemp("elsewhere") / "site"
    python("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    return target


def test_wheel_holds_what_it_needs(wheel):
    """Every module, theme and sample configuration is in the wheel; tests are not."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "localkv").rglob("*.py"):
        assert str(path.relative_to(ROOT).as_posix()) in names
    for folder in ("themes", "sample_configs"):
        for path in (ROOT / folder).iterdir():
            assert f"localkv/_{folder}/{path.name}" in names
    assert not any(name.startswith("tests/") for name in names)
    assert any(name.endswith("entry_points.txt") for name in names)


def test_installed_elsewhere_finds_its_files(installed, tmp_path):
    """Themes and sample configurations are found in the installed package, not in the tree."""
    code = (
        "import localkv, localkv.paths as paths\n"
        "print(localkv.__file__)\n"
        "for name in ('themes', 'sample_configs'):\n"
        "    folder = paths.resource_dir(name)\n"
        "    print(folder, len(list(folder.glob('*.toml'))))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    lines = python("-P", "-c", code, env=environment, cwd=tmp_path).splitlines()
    assert all(line.startswith(str(installed)) for line in lines), lines
    assert [line.rsplit(" ", 1)[1] for line in lines[1:]] == [
        str(len(list((ROOT / name).glob("*.toml")))) for name in ("themes", "sample_configs")
    ]


def test_installed_program_starts(installed, tmp_path):
    """The command line of the installed package loads a sample configuration of its own."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    sample = installed / "localkv" / "_sample_configs" / "cpu-only.toml"
    assert "valid" in python("-P", "-m", "localkv", "--config", str(sample), "config", "check", env=environment, cwd=tmp_path)
