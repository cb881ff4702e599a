"""The tree of messages of a conversation: its types, copies of its paths, and its title.

Torch-free; knows no database and no tokenizer. Thread: any. A conversation is a forest of messages with one leaf that the
person looks at; editing and regenerating add a sibling and never change what was there. Walks through it are the database's
(messages.py, forks.py).
"""

import re
import unicodedata
import uuid
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from localkv.config import ModelSection, SamplingSection
from localkv.kv.record import Head
from localkv.messages import Role

State = Literal["complete", "streaming", "stopped", "cut", "failed"]
"""complete: ended by itself; streaming: being written; stopped: by the person; cut: by a crash; failed: by an error."""

SPEAKERS: dict[Role, str] = {"system": "System", "user": "You", "assistant": "Answer"}
"""How people call them."""

TITLE_LENGTH = 60
_TITLE_SOURCE = 4000
"""Characters of a message that can reach its title: a paste of a megabyte is not searched for words."""

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""Colours, cursor moves and window titles, as terminals understand them."""
_UNSEEN = re.compile(rf"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f{_BIDI}]")
"""Control characters that are no white space."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    id: str
    conversation: str
    parent: str | None
    role: Role
    text: str
    ids: bytes
    """Token ids as `kv.record.pack_ids` packs them; empty while the message is not tokenised."""
    state: State
    created: float
    head: Head | None = None
    """Assistant only: the newest record when it was finished."""
    numbers: dict[str, Any] | None = None
    """Assistant only: what the turn counted, as JSON."""


class Conversation(msgspec.Struct, frozen=True):
    """All of a conversation but its messages."""

    id: str
    name: str
    """Unique; what people type after `--session`."""
    title: str
    model: ModelSection
    sampling: SamplingSection
    system: str
    created: float
    updated: float
    """When something was last said in it."""
    leaf: str | None
    """The message that ends the path which the person looks at."""
    pinned: bool = False
    trashed: float | None = None
    """When it was moved to the trash."""
    draft: str = ""
    n_messages: int = 0
    """Questions and answers on all branches; the system prompt is not counted."""
    private: bool = False
    """Its cached state never reaches the disk. Decided when it begins."""
    tags: tuple[str, ...] = ()
    """Words that the person gave it, in the order of the alphabet, each once."""
    archived: float | None = None
    """When it was put away: out of the list, still found."""
    queue: tuple[str, ...] = ()
    """Messages that wait to be sent, the next one first."""


class Branch(msgspec.Struct, frozen=True):
    """One path through a conversation, from its start to an end."""

    leaf: str
    """The message that it ends in."""
    text: str
    """What that message says."""
    n_messages: int
    created: float
    """When that message was written."""
    shown: bool
    """The person looks at it."""


def copied(path: Iterable[Message], conversation: str, above: str | None = None) -> list[Message]:
    """The same messages once more, below `above`; an answer that is being written is copied as far as it is."""
    copies: list[Message] = []
    for each in path:
        state: State = "stopped" if each.state == "streaming" else each.state
        copies.append(msgspec.structs.replace(each, id=uuid.uuid4().hex, conversation=conversation, parent=above, state=state))
        above = copies[-1].id
    return copies


def title_from(text: str) -> str:
    """The first words of `text`, on one line, at most 60 characters; empty if there is nothing to read.

    Words stay whole where there are spaces; a letter with its accents, a flag or a joined emoji is never cut in two.
    """
    start = _SURROGATE.sub("\ufffd", text.lstrip()[:_TITLE_SOURCE])
    line = " ".join(_UNSEEN.sub("", _SEQUENCE.sub("", start)).split())
    if len(line) <= TITLE_LENGTH:
        return line
    space = line.rfind(" ", 0, TITLE_LENGTH)
    end = space if space >= TITLE_LENGTH // 2 else _character_edge(line, TITLE_LENGTH - 1)
    return line[:end].rstrip() + "…"


def well_formed(text: str) -> str:
    """`text` with each lone surrogate replaced by U+FFFD: such text can be stored, printed and tokenised."""
    return _SURROGATE.sub("\ufffd", text)


def _character_edge(line: str, end: int) -> int:
    """The last place up to `end` where a person sees two characters meet; `end` itself if there is none."""
    edge = end
    while edge > 0 and _belongs(line, edge):
        edge -= 1
    return edge or end


def _belongs(line: str, at: int) -> bool:
    """Whether the code point at `at` is shown as part of the one before it."""
    before, code = line[at - 1], ord(line[at])
    if unicodedata.category(line[at]).startswith("M") or "\u200d" in (before, line[at]):
        return True
    if 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F:
        return True
    return _is_flag_half(line[at]) and _flag_halves_before(line, at) % 2 == 1


def _flag_halves_before(line: str, at: int) -> int:
    start = at
    while start > 0 and _is_flag_half(line[start - 1]):
        start -= 1
    return at - start


def _is_flag_half(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF
