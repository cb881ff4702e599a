"""Files inside messages: what is read, what is refused, and a written form that gives back exactly what went in."""

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.chat.attachments import MAX_BYTES, Attachment, read_attachment, split_files, with_files
from localkv.errors import UnusableFile

NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20)
PIECES = st.lists(
    st.one_of(st.text(max_size=20), st.sampled_from(["```", "````\n", "\n", "\n\n", "File: a.py\n", "```py\n", "~~~"])),
    max_size=12,
).map("".join)
FILES = st.lists(st.builds(Attachment, NAMES, PIECES), max_size=3)


@given(FILES, PIECES)
def test_any_file_comes_back_from_its_message(files, words):
    """Whatever a file holds, fences and heads of files included, message -> files and words -> message changes nothing."""
    message = with_files(files, words)
    found, rest = split_files(message)
    assert with_files(found, rest) == message
    assert found[: len(files)] == files


@given(PIECES)
def test_any_message_is_its_parts(message):
    """A message that a person wrote in this form, or nearly, loses no character."""
    assert with_files(*split_files(message)) == message


def test_the_documented_form():
    """The form of the module's first lines is the form that is written."""
    message = with_files([Attachment("src/main.rs", "fn main() {}")], "Why does this not compile?")
    assert message == "File: src/main.rs\n```rust\nfn main() {}\n```\n\nWhy does this not compile?"


def test_a_file_is_read_as_text(tmp_path):
    """Newlines of Windows, marks of byte order and UTF-16 are no obstacle; the last newline ends a line and starts none."""
    for name, data in {
        "a.txt": b"one\r\ntwo\r\n",
        "b.txt": b"\xef\xbb\xbfone\ntwo\n",
        "c.txt": "one\ntwo\n".encode("utf-16"),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert read_attachment(name, tmp_path) == Attachment(name, "one\ntwo")


@pytest.mark.parametrize(("name", "data", "reason"), [
    ("zeros", b"PK\x03\x04\x00\x00", "zero bytes"),
    ("latin", b"caf\xe9", "UTF-8"),
    ("empty", b" \n", "is empty"),
    ("large", b"a" * (MAX_BYTES + 1), "too large"),
])  # fmt: skip
def test_what_is_no_text_is_refused_with_a_sentence(tmp_path, name, data, reason):
    """Binary, broken, empty and too large files say what is wrong with them and change nothing."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnusableFile, match=reason) as caught:
        read_attachment(name, tmp_path)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["~nobody-at-all", "~nobody-at-all/x", "~\0", "a\0b", "x" * 300, "\ud800"])
def test_no_name_of_a_file_breaks_the_reading(name):
    """Whatever is given as a file, it is refused with a sentence."""
    with pytest.raises(UnusableFile):
        read_attachment(name)


def test_what_is_not_there_names_the_nearest(tmp_path):
    """A typing mistake is answered with the name that was meant; a folder and a device are no files."""
    (tmp_path / "main.rs").write_text("x")
    with pytest.raises(UnusableFile, match='did you mean "main.rs"'):
        read_attachment("mian.rs", tmp_path)
    with pytest.raises(UnusableFile, match="folder"):
        read_attachment(str(tmp_path))
    with pytest.raises(UnusableFile, match="nor is the folder"):
        read_attachment("no/such/file", tmp_path)
    with pytest.raises(UnusableFile, match="cannot be read"):
        read_attachment("a\0b", tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="has no named pipes in folders")
def test_a_pipe_does_not_hang_the_chat(tmp_path):
    """A pipe that nobody writes to, and a device without end, are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(UnusableFile, match="no plain file"):
            read_attachment(path)
