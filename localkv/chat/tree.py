"""The tree of messages of a conversation: its types, walks through it, and its title.

Pure and torch-free; knows no database and no tokenizer. Thread: any. A conversation is a forest of messages with one leaf
that the person looks at; editing and regenerating add a sibling and never change what was there. Every walk is a loop: a
conversation of 100,000 messages is deeper than Python's stack. Mappings of messages are in the order of writing, so that a
parent always stands before its children.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConversationError
from localkv.kv.record import Head

Role = Literal["system", "user", "assistant"]
State = Literal["complete", "streaming", "stopped", "cut", "failed"]
"""complete: ended by itself; streaming: being written; stopped: by the person; cut: by a crash; failed: by an error."""

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


def path_to(messages: Mapping[str, Message], leaf: str) -> list[Message]:
    """The messages from the root down to `leaf`.

    Raises ConversationError if a parent is missing, or if the parents run in a circle.
    """
    path: list[Message] = []
    step: str | None = leaf
    while step is not None:
        message = messages.get(step)
        if message is None or len(path) >= len(messages):
            raise ConversationError(f"the path to message {leaf} is broken at {step}; restore a backup of the conversations")
        path.append(message)
        step = message.parent
    path.reverse()
    return path


def children(messages: Mapping[str, Message], parent: str | None) -> list[Message]:
    """The messages right below `parent`, oldest first; `None` gives the roots."""
    return [message for message in messages.values() if message.parent == parent]


def siblings(messages: Mapping[str, Message], message: str) -> list[Message]:
    """All alternatives to `message`, itself among them, oldest first. Raises ConversationError if there is no such message."""
    if message not in messages:
        raise ConversationError(f"there is no message {message} in this conversation")
    return children(messages, messages[message].parent)


def newest_leaf(messages: Mapping[str, Message], start: str | None = None) -> str | None:
    """The end of the branch below `start` that was written last; `None` looks from the roots.

    The newest descendant has no children, because children are newer: one pass finds it. `start` itself if nothing is below.
    """
    below = {start}
    newest = start
    for message in messages.values():
        if message.parent in below:
            below.add(message.id)
            newest = message.id
    return newest


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
