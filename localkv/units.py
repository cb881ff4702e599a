"""Bytes, seconds, rates and counts as people read and write them. Pure; knows nothing else."""

import re

from localkv.errors import ConfigError

_FACTORS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MOST_DIGITS = 15
_SIZE = re.compile(r"^\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGT]?)(?:i?B)?\s*$", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """The number of bytes that "12 GiB", "512M" or "4096" means; factors are powers of 1024.

    Raises ConfigError for anything else.
    """
    match = _SIZE.match(text)
    if match is None:
        raise ConfigError(f'"{text}" is not a size; write for example "8 GiB", "512 MiB" or "0"')
    return int(float(match[1]) * _FACTORS[match[2].upper()])


def whole_number(text: str) -> int:
    """The number that `text` is written as, in plain digits; 0 if it is none, or one of more digits than anything here has."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0


def format_bytes(n_bytes: float) -> str:
    """`n_bytes` in three or four characters and a unit: "94.4 MiB"."""
    value = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """`seconds` with the unit a person would pick: "2.4 ms", "1.3 s", "4 min 5 s"."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def format_count(n: int) -> str:
    """`n` with thousands separated: "12,410"."""
    return f"{n:,}"


def format_age(seconds: float) -> str:
    """How long ago, in at most four characters: "now", "12m", "3h", "9d", "3y"."""
    if seconds < 60:
        return "now"
    if seconds < 3600:
        return f"{int(seconds // 60)}m"
    if seconds < 86400:
        return f"{int(seconds // 3600)}h"
    days = int(seconds // 86400)
    return f"{days}d" if days < 1000 else f"{min(999, days // 365)}y"
