"""Settings: defaults, sample files, and errors that name file, key, value and the nearest name."""

import tomllib
from pathlib import Path

import msgspec
import pytest

from localkv.config import LARGEST_BYTES, Config, MemorySection, convert_config, load_config
from localkv.errors import ConfigError
from localkv.paths import resource_dir

SAMPLES = ["cpu-only.toml", "laptop-8gb.toml", "desktop-24gb.toml"]
FIELDS = [
    (section.name, key)
    for section in msgspec.structs.fields(Config)
    for key in getattr(section.type, "__struct_fields__", ())  # [keys] has the ids of actions
]


def write(tmp_path, text):
    """A configuration file with this text."""
    file = tmp_path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refused(tmp_path, text):
    """The error's message for a file with this text."""
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text))
    return str(caught.value)


def test_no_file_means_defaults(tmp_path):
    """Nobody has to write a file."""
    assert load_config(tmp_path / "none.toml") == Config()
    assert load_config(write(tmp_path, "")) == Config()


def test_what_has_no_end_is_no_file_of_settings(tmp_path):
    """`--config` with the wrong path ends with a sentence, instead of reading until memory is full."""
    assert "1.0 MiB" in refused(tmp_path, "#" * (LARGEST_BYTES + 1))
    if Path("/dev/zero").exists():
        with pytest.raises(ConfigError, match="/dev/zero"):
            load_config(Path("/dev/zero"))


def test_values_arrive(tmp_path):
    """What the file says is in force; what it leaves out has its default."""
    config = load_config(write(tmp_path, '[engine]\nthreads = 3\n[sampling]\nstop = ["END"]\ntemperature = 1\n'))
    assert config.engine.threads == 3
    assert config.sampling.stop == ("END",)
    assert config.sampling.temperature == 1.0
    assert config.memory == Config().memory


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[engine]\nthread = 3\n", ["config.toml", "engine.thread", "3", '"threads"']),
        ("[enginee]\n", ["config.toml", "enginee", '"engine"']),
        ("threads = 3\n", ["config.toml", "threads"]),
        ("engine = 3\n", ["config.toml", "engine", "3", "section"]),
        ("[engine]\nthreads = -1\n", ["config.toml", "engine.threads", "-1"]),
        ('[engine]\nthreads = "four"\n', ["config.toml", "engine.threads", "four"]),
        ('[engine]\ndevice = "gpu"\n', ["config.toml", "engine.device", "gpu"]),
        ("[engine]\nblock_tokens = 100\n", ["config.toml", "engine.block_tokens", "100"]),
        ('[model]\nquant = "2bit"\n', ["config.toml", "model.quant", "2bit"]),
        ('[memory]\nram_pool = "lots"\n', ["config.toml", "memory.ram_pool", "lots"]),
        ("[memory]\nhigh_watermark = 1.5\n", ["config.toml", "memory.high_watermark", "1.5"]),
        ("[memory]\nlow_watermark = 0.95\n", ["config.toml", "memory.low_watermark", "0.95", "memory.high_watermark", "0.9"]),
        ("[memory]\nreuse_half_life_hours = 0\n", ["config.toml", "memory.reuse_half_life_hours", "0"]),
        ("[sampling]\ntop_p = 0.0\n", ["config.toml", "sampling.top_p", "0.0"]),
        ("[sampling]\nstop = [1]\n", ["config.toml", "sampling.stop"]),
        ("[chat]\npanel = 1\n", ["config.toml", "chat.panel", "1"]),
        ("keys = 3\n", ["config.toml", "keys", "3"]),
        ("[keys]\nretry = 3\n", ["config.toml", 'keys."retry"', "3", "text"]),
        ("[keys]\nsession.new = [1]\n", ["config.toml", 'keys."session.new"', "1"]),
        ("[chat\n", ["config.toml", "TOML"]),
        ("[chat]\npanel = true\npanel = false\n", ["config.toml", "TOML"]),
    ],
)
def test_mistakes_are_named(tmp_path, text, words):
    """File, key, value and the nearest name are in the message; nothing is ignored."""
    message = refused(tmp_path, text)
    for word in words:
        assert word in message


SIZES = [name for name in MemorySection.__struct_fields__ if isinstance(getattr(MemorySection(), name), str)]


@pytest.mark.parametrize("name", SIZES)
def test_auto_is_a_size_where_the_engine_measures_one(tmp_path, name):
    """What the engine would read as a number of bytes is refused while the person looks at the file, with the key."""
    text = f'[memory]\n{name} = "auto"\n'
    if name in {"ram_pool", "ssd_store", "vram_pool"}:
        assert getattr(load_config(write(tmp_path, text)).memory, name) == "auto"
    else:
        assert f"memory.{name}" in refused(tmp_path, text)


def test_unreadable_files(tmp_path):
    """A directory in its place and bytes that are no UTF-8 are errors with the file's name."""
    for make in (lambda file: file.mkdir(), lambda file: file.write_bytes(b"\xff\xfe")):
        file = tmp_path / f"{make.__code__.co_firstlineno}-{id(make)}.toml"
        make(file)
        with pytest.raises(ConfigError, match=str(file)):
            load_config(file)


def test_keys_of_ids_with_dots(tmp_path):
    """With and without quotes: TOML makes tables of names with dots."""
    text = '[keys]\nsession.new = "f9"\n"copy.answer" = "f10,f11"\nretry = ""\n'
    assert load_config(write(tmp_path, text)).keys == {"session.new": "f9", "copy.answer": "f10,f11", "retry": ""}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_load_and_name_every_setting(name):
    """Each sample is a valid file that sets every field there is, so that none is undocumented."""
    file = resource_dir("sample_configs") / name
    load_config(file)
    raw = tomllib.loads(file.read_text(encoding="utf-8"))
    assert {(section, key) for section, body in raw.items() for key in body} == set(FIELDS)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_explain_every_setting(name):
    """Each setting has a comment above it that tells its true default."""
    lines = (resource_dir("sample_configs") / name).read_text(encoding="utf-8").splitlines()
    section = ""
    for number, line in enumerate(lines):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            comment = []
            while lines[number - 1 - len(comment)].startswith("#"):
                comment.insert(0, lines[number - 1 - len(comment)])
            text = " ".join(part.lstrip("# ") for part in comment)
            key = line.split(" =")[0]
            default = msgspec.json.decode(msgspec.json.encode(getattr(getattr(Config(), section), key)))
            told = tomllib.loads("x = " + text.rpartition("Default: ")[2].rstrip("."))["x"]
            assert told == default, (section, key)


def test_samples_are_all_there():
    """No sample is forgotten by these tests."""
    assert sorted(file.name for file in resource_dir("sample_configs").glob("*")) == sorted(SAMPLES)


def test_fields_are_documented_where_they_are_defined():
    """Each field of each section has a sentence beneath it in config.py."""
    import ast
    import inspect

    from localkv import config

    for node in ast.parse(inspect.getsource(config)).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Section") and node.name != "Section":
            for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign):
                    assert isinstance(after, ast.Expr), f"{node.name}.{field.target.id}"


def test_convert_names_its_source():
    """Settings that come from elsewhere name that place."""
    with pytest.raises(ConfigError, match="command line"):
        convert_config({"sampling": {"top_k": -1}}, "command line")


@pytest.mark.parametrize(
    ("section", "key"),
    [(section, key) for section, key in FIELDS if isinstance(getattr(getattr(Config(), section), key), int)],
)
def test_no_number_is_too_large_for_what_carries_it(tmp_path, section, key):
    """What is accepted can be sent to the engine and stored: a larger number is a mistake, said when it is read."""
    value = getattr(getattr(Config(), section), key)
    if isinstance(value, bool):
        return
    assert f"{section}.{key} = {2**64}" in refused(tmp_path, f"[{section}]\n{key} = {2**64}\n")
