"""One JSON value after the other out of a file of any size: the elements of a list, or values that follow one another.

Pure but for reading the stream; holds one value and one chunk at a time. It counts brackets and strings and leaves it to the
decoder whether a value is good JSON. Refused are values too large to hold and brackets deeper than any conversation has
them, before a decoder sees them.
"""

import re
from collections.abc import Iterator
from typing import IO

from localkv.errors import ImportRefused
from localkv.units import format_bytes

CHUNK = 1 << 20
MAX_VALUE_BYTES = 256 << 20
"""A conversation of 256 MB is none."""
MAX_DEPTH = 200

_OUTSIDE = re.compile(rb'["\[\]{}]')
_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_BETWEEN = b" \t\r\n,\x1e"
"""White space, the commas of the outer list, and what separates records in streams."""


class _Scan:
    """Where in the value the scan is."""

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = False
        self.escaped = False
        """The next character belongs to a backslash."""
        self.in_list = False
        self.part = bytearray()


def split_values(stream: IO[bytes], *, chunk: int = CHUNK) -> Iterator[bytes]:
    """Each element of an outer list, or each outer object, as its bytes. Raises ImportRefused."""
    scan = _Scan()
    while data := stream.read(chunk):
        yield from _values(scan, data)
        if len(scan.part) > MAX_VALUE_BYTES:
            raise ImportRefused(f"a value is larger than {format_bytes(MAX_VALUE_BYTES)}; that is no conversation")
    if scan.depth or scan.in_list or scan.in_string or scan.part:
        raise ImportRefused("the file ends in the middle; it may be cut off, so get it again")


def _values(scan: _Scan, data: bytes) -> Iterator[bytes]:
    """The values that end in `data`."""
    at = start = 0
    while at < len(data):
        if scan.in_string:
            at = _through_string(scan, data, at)
            continue
        found = _OUTSIDE.search(data, at)
        if found is None:
            break
        at = found.end()
        if found[0] == b'"':
            _refuse_between(scan, found[0])
            scan.in_string = True
        elif found[0] in (b"[", b"{"):
            if _opens(scan, found[0]):
                _refuse_text(scan.part + data[start : found.start()])
                scan.part.clear()
                start = at if scan.depth == 0 else found.start()
        elif _closes(scan, found[0]):
            scan.part += data[start:at]
            yield bytes(scan.part)
            scan.part.clear()
            start = at
        elif scan.depth == 0:
            _refuse_text(scan.part + data[start : found.start()])
            scan.part.clear()
            start = at
    rest = data[start:]
    if scan.depth == 0 and not scan.in_string:
        _refuse_text(rest)
    else:
        scan.part += rest


def _through_string(scan: _Scan, data: bytes, at: int) -> int:
    """Behind the string that `at` is in, or at the end of `data`."""
    at += scan.escaped
    scan.escaped = False
    found = _INSIDE.match(data, at)
    at = len(data) if found is None else found.end()
    if data[at : at + 1] == b'"':
        scan.in_string = False
    elif at < len(data):
        scan.escaped = True
    return at + 1


def _opens(scan: _Scan, bracket: bytes) -> bool:
    """Take an opening bracket; whether a value or the outer list begins with it."""
    if scan.depth == 0 and not scan.in_list and bracket == b"[":
        scan.in_list = True
        return True
    scan.depth += 1
    if scan.depth > MAX_DEPTH:
        raise ImportRefused(f"brackets are nested deeper than {MAX_DEPTH}; that is no export of conversations")
    return scan.depth == 1


def _closes(scan: _Scan, bracket: bytes) -> bool:
    """Take a closing bracket; whether a value ends with it."""
    if scan.depth:
        scan.depth -= 1
        return scan.depth == 0
    if not scan.in_list or bracket != b"]":
        raise ImportRefused("a bracket closes that was never opened; the file is not JSON")
    scan.in_list = False
    return False


def _refuse_between(scan: _Scan, found: bytes) -> None:
    if scan.depth == 0:
        _refuse_text(found)


def _refuse_text(between: bytes | bytearray) -> None:
    """Only separators may stand outside of values."""
    left = bytes(between).strip(_BETWEEN).removeprefix(b"\xef\xbb\xbf").strip(_BETWEEN)
    if left:
        shown = left[:20].decode("utf-8", "backslashreplace")
        raise ImportRefused(f'"{shown}" stands where a conversation should begin; the file is no JSON export of conversations')
