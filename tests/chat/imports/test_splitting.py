"""Values out of a stream: the same whatever the chunks, and nothing large, deep or foreign gets further."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.imports import splitting
from localkv.chat.imports.splitting import split_values
from localkv.errors import ImportRefused

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=12), st.sampled_from(["\\", '"', '\\"', "]}", "é漢"])
)
VALUES = st.dictionaries(
    st.text(max_size=5), st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_size=4,
)  # fmt: skip


def split(text, chunk):
    data = text if isinstance(text, bytes) else text.encode()
    return [json.loads(value) for value in split_values(io.BytesIO(data), chunk=chunk)]


@pytest.mark.slow
@given(st.lists(VALUES, max_size=4), st.integers(1, 40), st.booleans())
def test_a_list_is_split_into_its_elements(values, chunk, ascii_only):
    """Any objects, in chunks of any size: what comes out is what went in."""
    for indent in (None, 1):
        assert split(json.dumps(values, ensure_ascii=ascii_only, indent=indent), chunk) == values


@pytest.mark.slow
@given(st.lists(VALUES, min_size=1, max_size=3), st.integers(1, 40))
def test_objects_one_after_the_other(values, chunk):
    """One object alone, and one on each line."""
    assert split("\n".join(map(json.dumps, values)), chunk) == values


@given(st.lists(VALUES, max_size=3), st.integers(1, 40), st.data())
def test_a_file_that_is_cut_off_is_refused(values, chunk, data):
    """At whatever byte it ends: no half conversation is taken for a whole one."""
    whole = json.dumps(values).encode()
    end = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(ImportRefused):
        split(whole[:end], chunk)


@given(st.binary(max_size=60), st.integers(1, 16))
def test_any_bytes_are_values_or_a_refusal(data, chunk):
    """No bytes end in a traceback or a loop."""
    try:
        list(split_values(io.BytesIO(data), chunk=chunk))
    except ImportRefused as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[" * 100_000, "deeper"),
        ('[{"a":' + "[" * 1000 + "]" * 1000 + "}]", "deeper"),
        ("hello", "hello"),
        ("[1, 2]", "1, 2"),
        ('["text"]', "stands"),
        ("]", "never opened"),
        ('[{"a": 1}] tail', "tail"),
        ("\0\0\0", "stands"),
        ('[{"a": 1}', "middle"),
    ],
)
def test_what_is_no_export_is_refused_by_a_sentence(text, word):
    """Deep nesting, plain text, zeros and leftovers."""
    with pytest.raises(ImportRefused, match=word):
        split(text, 1 << 16)


def test_a_value_that_is_too_large_to_hold_is_refused(monkeypatch):
    """Before memory is full."""
    monkeypatch.setattr(splitting, "MAX_VALUE_BYTES", 10_000)
    with pytest.raises(ImportRefused, match="larger than"):
        split('[{"a": "' + "x" * 50_000 + '"}]', 1000)
    assert split('[{"a": "' + "x" * 5_000 + '"}]', 1000)[0]["a"] == "x" * 5_000


def test_reading_holds_one_value_at_a_time():
    """A list of many is read as far as its values are asked for."""
    stream = io.BytesIO(b"[" + b",".join(b'{"n": %d}' % n for n in range(100_000)) + b"]")
    values = split_values(stream, chunk=4096)
    assert next(values) == b'{"n": 0}'
    assert stream.tell() <= 8192
