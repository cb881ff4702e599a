"""How tokens are drawn, as people write and read it: one setting by name, stop strings, all of them. Pure; all faces use it."""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping

import msgspec

from localkv.config import SamplingSection, convert_config
from localkv.errors import ConfigError

LIMITS: Mapping[str, str] = {
    "temperature": "0 to 5; 0 takes the likeliest token each time",
    "top_k": "keep the k likeliest tokens; 0 keeps all",
    "top_p": "above 0, up to 1: keep the likeliest tokens that together reach this probability",
    "min_p": "0 to 1: drop tokens below this fraction of the likeliest one's probability",
    "repetition_penalty": "above 0, up to 10; above 1 makes used tokens less likely",
    "max_tokens": "the longest answer in tokens, 1 or more",
    "seed": "0 or more; same seed, same conversation, same answer",
    "stop": 'strings that end an answer, such as: "END" "\\n\\n"; empty for none',
}
"""What each setting takes, in the order in which they are shown."""

_SHOWN = 60
"""Characters of what was typed that an error repeats."""
_TOKEN = re.compile(r'\s*,?\s*(?:("(?:[^"\\]|\\.)*")|([^\s,"]+))')


def changed_setting(sampling: SamplingSection, key: str, text: str, source: str = "/set") -> SamplingSection:
    """`sampling` with `key` as `text` says. Raises ConfigError that names the nearest key, or what the key takes."""
    if key not in LIMITS:
        near = difflib.get_close_matches(key, LIMITS, n=1, cutoff=0.0)[0]
        raise ConfigError(f'{source} {key}: there is no such setting; the nearest is "{near}"')
    value = read_stops(text, source) if key == "stop" else _number(key, text, source)
    try:
        return convert_config({"sampling": {**msgspec.to_builtins(sampling), key: value}}, source).sampling
    except ConfigError as error:
        raise ConfigError(f'{source} {key} "{text.strip()}": {LIMITS[key]}') from error


def show_setting(sampling: SamplingSection, key: str) -> str:
    """A setting as it is written; `changed_setting` reads the same from it."""
    value = getattr(sampling, key)
    return " ".join(json.dumps(stop, ensure_ascii=False) for stop in value) if key == "stop" else str(value)


def describe(sampling: SamplingSection) -> str:
    """All settings on one line."""
    return "  ".join(f"{key} {show_setting(sampling, key)}" for key in LIMITS if key != "stop" or sampling.stop)


def read_stops(text: str, source: str = "/set") -> tuple[str, ...]:
    """The strings in `text`: quoted ones with escapes as in JSON, bare words as they are, or a list of TOML. Raises ConfigError."""
    if text.strip().startswith("["):
        return _listed(text, source)
    found: list[str] = []
    at = 0
    while text[at:].strip(" \t\r\n,"):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(f"{source} stop {text.strip()}: a quote does not end; {LIMITS['stop']}")
        found.append(_unquoted(match[1], source) if match[1] else match[2])
        at = match.end()
    return tuple(filter(None, found))


def _listed(text: str, source: str) -> tuple[str, ...]:
    shown = text.strip()[:_SHOWN]
    try:
        listed = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, numbers without end, brackets without end
        raise ConfigError(f"{source} stop {shown}: {error}; {LIMITS['stop']}") from error
    if not all(isinstance(each, str) for each in listed):
        raise ConfigError(f"{source} stop {shown}: {LIMITS['stop']}")
    return tuple(filter(None, listed))


def _unquoted(quoted: str, source: str) -> str:
    try:
        text = str(json.loads(quoted, strict=False))
        text.encode()
    except ValueError as error:  # JSONDecodeError, and half a character that an escape makes
        raise ConfigError(f"{source} stop {quoted[:_SHOWN]}: {error}; {LIMITS['stop']}") from error
    return text


def _number(key: str, text: str, source: str) -> float | int:
    text = text.strip()
    whole = key in {"top_k", "max_tokens", "seed"}
    try:
        return int(text) if whole else float(text)
    except ValueError as error:
        kind = "a whole number" if whole else "a number"
        raise ConfigError(f'{source} {key} "{text}": write {kind}; {LIMITS[key]}') from error
