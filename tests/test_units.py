"""Sizes, times and ages as people read and write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.errors import ConfigError
from localkv.units import format_age, format_bytes, format_count, format_seconds, parse_bytes, whole_number


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1 KiB", 1024),
        ("512M", 512 << 20),
        ("1.5 GiB", 3 << 29),
        (" 2 tb ", 2 << 40),
        ("8gib", 8 << 30),
        ("10 B", 10),
    ],
)
def test_parse_bytes(text, n_bytes):
    """The ways people write sizes, with factors of 1024."""
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "auto", "GiB", "-1", "1e9", "5 PB", "1,5 GiB", "0x10", "1 G B", "٣ GiB"])
def test_parse_bytes_refuses(text):
    """Anything else is an error that shows how to write it."""
    with pytest.raises(ConfigError, match="8 GiB"):
        parse_bytes(text)


@given(st.integers(0, 1 << 50))
def test_formatted_sizes_are_read_back(n_bytes):
    """What format_bytes prints, parse_bytes understands, to the precision shown."""
    read = parse_bytes(format_bytes(n_bytes))
    assert abs(read - n_bytes) <= max(1, n_bytes * 0.06)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0024, "2.4 ms"), (0.25, "250 ms"), (0.0999, "99.9 ms"), (1.26, "1.3 s"), (119.9, "119.9 s"), (245, "4 min 5 s")],
)
def test_format_seconds(seconds, text):
    """The unit that a person would pick."""
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "now"), (59, "now"), (60, "1m"), (7200, "2h"), (86400 * 400, "400d"), (1e11, "999y")]
)
def test_format_age(seconds, text):
    """At most four characters, however long ago."""
    assert format_age(seconds) == text
    assert len(text) <= 4


def test_format_count():
    """Thousands are separated."""
    assert format_count(12410) == "12,410"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (" 12 ", 12),
        ("0", 0),
        ("", 0),
        ("-1", 0),
        ("1.5", 0),
        ("1_0", 0),
        ("\u00b2", 0),
        ("\u0663", 0),
        ("9" * 5_000, 0),
    ],
    ids=range(10),
)
def test_whole_number(text, number):
    """What a person types where a number is wanted is one or none; numbers without end raise nothing."""
    assert whole_number(text) == number
