"""Text of people, models, files and imports made harmless for a terminal: every face shows strangers' text through this.

Pure. Whatever could move the cursor, change colours, fill the clipboard, reorder the line or hide is spelled out in ASCII; nothing is
dropped. Joiners and variation selectors stay: emoji and several scripts need them.
"""

import re
from collections.abc import Callable

_NEWLINES = re.compile("\r\n?|[\u2028\u2029\x0b\x0c\x85]")
_HOSTILE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # C0 and C1 controls, escape among them
    "\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # direction marks and overrides, invisible characters
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # annotations, shorthand, music: what is between them may be hidden
    "\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates; tag characters, which hide whole sentences
)
_NO_PART_OF_A_ROW = re.compile(f"{_HOSTILE.pattern}|[\t\n\r\u2028\u2029\x0b\x0c\x85]")


def visible(text: str) -> str:
    """`text` with one kind of newline, tabs as they are, and every hostile character spelled out (ESC as "^[")."""
    if text.isascii() and text.isprintable():
        return text
    return _HOSTILE.sub(_spell, _NEWLINES.sub("\n", text))


def one_line(text: str) -> str:
    """`text` harmless and on one line, for titles and notices."""
    return " ".join(visible(text).split())


def struck(text: str, put: Callable[[str], str]) -> str:
    """One row of `text` with what `put` gives for each hostile character, ends of lines and tabs among them."""
    if text.isprintable():  # no control and no format character is
        return text
    return _NO_PART_OF_A_ROW.sub(lambda match: put(match[0]), text)


def _spell(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return "^" + chr(code + 0x40)
    if code == 0x7F:
        return "^?"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
