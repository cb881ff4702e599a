"""Settings: TOML -> frozen, documented sections.

Order: command line over file over default. Unknown keys, bad values and unreadable files are ConfigErrors that name file,
key, value and the nearest known key; nothing is ignored. Each floor is handed its own section, never the whole Config.
Every field is documented in the string beneath it and in sample_configs/.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from localkv.errors import ConfigError
from localkv.units import format_bytes, parse_bytes

Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
MOST = 2**53
"""No whole number is larger: every reader of JSON takes it as it is, and frames and the database hold it."""

LARGEST_BYTES = 1 << 20
"""Of a file of settings: what goes on for longer is something else, and may have no end."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Quant = Literal["none", "8bit", "4bit"]
DType = Literal["auto", "bfloat16", "float16", "float32"]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all sections share: frozen, and unknown keys are errors."""


class ModelSection(Section, frozen=True):
    """[model]: which model answers, and how its weights are held."""

    name: str = "starter"
    """"starter", a hub id ("Qwen/Qwen3-4B"), a folder, or a .gguf file."""
    dtype: DType = "auto"
    """"auto" takes the checkpoint's own; else "bfloat16", "float16", "float32"."""
    quant: Quant = "none"
    """"none", "8bit" or "4bit" (bitsandbytes)."""
    trust_remote_code: bool = False
    """Run Python code that a model folder brings along. Only for models you trust as you trust programs."""


class SamplingSection(Section, frozen=True):
    """[sampling]: how tokens are drawn. Remembered per conversation."""

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=5.0)] = 0.7
    """0 takes the likeliest token each time."""
    top_k: Natural = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.95
    """Keep the likeliest tokens that together reach this probability."""
    min_p: Fraction = 0.0
    """Drop tokens below this fraction of the likeliest one's probability."""
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] = 1.0
    """Above 1 makes tokens that were used already less likely."""
    max_tokens: Positive = 1024
    """The longest answer, in tokens."""
    seed: Natural = 0
    """Same seed, same conversation, same answer."""
    stop: tuple[str, ...] = ()
    """Strings that end an answer; they are not part of it."""


class EngineSection(Section, frozen=True):
    """[engine]: where and how the model runs."""

    device: Annotated[str, msgspec.Meta(pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$")] = "auto"
    """"auto", "cpu", "cuda", "cuda:1" or "mps" (experimental)."""
    threads: Natural = 0
    """CPU threads for the model; 0 takes the number of physical cores that this process may use."""
    context_tokens: Natural = 0
    """The longest conversation in tokens; 0 takes the model's own limit (on a GPU: what fits)."""
    slot_tokens: Natural = 0
    """Room in device memory at first, in tokens; it grows between turns when a conversation needs more. 0 takes all at once."""
    block_tokens: Annotated[int, msgspec.Meta(ge=16, le=1024, multiple_of=16)] = 256
    """Tokens per block. Another value is another cache."""
    attention: Literal["auto", "default"] = "auto"
    """"auto" uses localkv's faster attention where it is proven equal; "default" leaves it to transformers."""
    simulate: Literal["none", "pool", "late"] = "none"
    """On a CPU, for tests: "pool" plays a GPU's pool in RAM, "late" its copies too, which land late and in disorder."""
    preload: Literal["always", "plugged", "never"] = "always"
    """Bring conversations nearer and read what is typed before it is asked for: "plugged" does not while on battery."""
    linger_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=86400.0)] = 0.0
    """How long the engine stays after the last face has left."""
    unload_after_minutes: Annotated[float, msgspec.Meta(ge=0.0, le=10080.0)] = 30.0
    """After so long without a message the model leaves memory, its state saved; the next message loads it again. 0: never."""


class MemorySection(Section, frozen=True):
    """[memory]: how much each tier may take. Sizes are text: "8 GiB", "512 MiB"; "auto", where it is the default, measures."""

    ram_pool: str = "auto"
    """KV records in RAM. "auto": a quarter of the memory available at start (container limits count)."""
    ssd_store: str = "auto"
    """KV records on SSD. "auto": the least of 20 GiB, 10 % of the disk, and free space less 10 GiB."""
    ssd_free_floor: str = "2 GiB"
    """Saving stops when the disk has less free space than this."""
    vram_pool: str = "auto"
    """KV records on a GPU, beside the slot. "auto": a quarter of what the weights leave, or what the slot can't use; at most 8 GiB."""
    vram_margin: str = "1 GiB"
    """Left free on a GPU for the display and other programs."""
    high_watermark: Fraction = 0.90
    """A tier fuller than this share of its limit is trimmed in the background..."""
    low_watermark: Fraction = 0.80
    """...down to this share; the least valuable records go."""
    reuse_half_life_hours: Annotated[float, msgspec.Meta(gt=0.0, le=87600.0)] = 72.0
    """After so long without use a conversation is half as likely to be opened again. A twelfth of it where habits change fast."""


_MEASURED = MemorySection()
"""Its sizes that are "auto" may be."""


class ChatSection(Section, frozen=True):
    """[chat]: conversations and their screen."""

    system: str = ""
    """System prompt of new conversations; empty for none."""
    theme: str = "localkv-dark"
    """A theme of themes/ or of the folder themes beside this file."""
    panel: bool = True
    """Show the cache panel when there is room."""
    mouse: bool = True
    """The chat hears the mouse. false: the terminal selects text itself, and all is done with keys."""
    bell: bool = False
    """Ring the terminal's bell when an answer is done that is not on screen, or while another window has the focus."""


class Config(Section, frozen=True):
    """The whole of config.toml."""

    model: ModelSection = ModelSection()
    sampling: SamplingSection = SamplingSection()
    engine: EngineSection = EngineSection()
    memory: MemorySection = MemorySection()
    chat: ChatSection = ChatSection()
    keys: Mapping[str, str] = msgspec.field(default_factory=dict)
    """[keys]: an action's id = its keys, with commas; empty for none. `localkv keys` lists the ids."""


def load_config(file: Path) -> Config:
    """The settings in `file`; the defaults if there is no such file. Raises ConfigError."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST_BYTES + 1)
        text = data.decode("utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); mend or move the file") from error
    if len(data) > LARGEST_BYTES:
        raise ConfigError(f"{file}: more than {format_bytes(LARGEST_BYTES)}, so it is no file of settings; name another")
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, numbers without end, brackets without end
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    return convert_config(raw, str(file))


def convert_config(raw: dict[str, Any], source: str) -> Config:
    """`raw` as a Config; `source` names the origin in errors. Raises ConfigError."""
    _refuse_unknown_keys(raw, source)
    if "keys" in raw:
        raw = {**raw, "keys": dict(_flat_keys(raw["keys"], source))}
    try:
        config = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(error, raw, source)) from error
    for field in MemorySection.__struct_fields__:
        value = getattr(config.memory, field)
        try:
            if isinstance(value, str) and (value != "auto" or getattr(_MEASURED, field) != "auto"):
                parse_bytes(value)
        except ConfigError as error:
            raise ConfigError(f"{source}: memory.{field}: {error}") from error
    low, high = config.memory.low_watermark, config.memory.high_watermark
    if low > high:
        raise ConfigError(f"{source}: memory.low_watermark = {low} must not be above memory.high_watermark = {high}")
    return config


def _refuse_unknown_keys(raw: dict[str, Any], source: str) -> None:
    sections = {field.name: field.type for field in msgspec.structs.fields(Config)}
    for name, body in raw.items():
        if name not in sections:
            raise ConfigError(f"{source}: unknown section [{name}]{_nearest(name, list(sections))}")
        if not isinstance(body, dict):
            raise ConfigError(f"{source}: {name} = {body!r} must be a section: [{name}]")
        known = getattr(sections[name], "__struct_fields__", None)
        for key, value in body.items():
            if known is not None and key not in known:
                raise ConfigError(f"{source}: unknown key {name}.{key} = {value!r}{_nearest(key, known)}")


def _flat_keys(body: Mapping[str, Any], source: str, before: str = "") -> Iterator[tuple[str, str]]:
    """The entries of [keys]: TOML reads session.new = "f9" as a table in a table; it is the id "session.new"."""
    for key, value in body.items():
        if isinstance(value, dict):
            yield from _flat_keys(value, source, f"{before}{key}.")
        elif isinstance(value, str):
            yield f"{before}{key}", value
        else:
            raise ConfigError(f'{source}: keys."{before}{key}" = {value!r} must be text, such as "ctrl+x" or "f9,alt+enter"')


def _nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    match = difflib.get_close_matches(word, known, n=1, cutoff=0.0)
    return f'; the nearest known name is "{match[0]}"' if match else ""


def _explain(error: msgspec.ValidationError, raw: dict[str, Any], source: str) -> str:
    """msgspec says "… - at `$.engine.threads`": turn that into file, key and value."""
    message, _, path = str(error).partition(" - at `$.")
    keys = path.rstrip("`").split(".") if path else []
    value: Any = raw
    for key in keys:
        value = value.get(key.split("[")[0]) if isinstance(value, dict) else value
    where = ".".join(keys)
    return f"{source}: {where} = {value!r}: {message}" if where else f"{source}: {message}"
