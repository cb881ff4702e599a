"""Branches of stored conversations as sentences and records: what plain mode and `localkv sessions` say of them.

Torch-free. Thread: that of the caller. Text of messages leaves here harmless, on one line.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from localkv.chat.store import ConversationStore
from localkv.chat.thoughts import answer_of
from localkv.chat.tree import SPEAKERS, Branch, Message
from localkv.chat.visible import one_line
from localkv.chat.words import excerpt, pattern_of
from localkv.commands.blocks import code_blocks
from localkv.errors import ConversationError, UnknownConversation

SHOWN = 60


def last_question(path: Sequence[Message]) -> Message:
    """The newest question on a path. Raises UnknownConversation."""
    found = next((message for message in reversed(path) if message.role == "user"), None)
    if found is None:
        raise UnknownConversation("nothing was said in this conversation yet")
    return found


def last_answer(path: Sequence[Message]) -> Message:
    """The newest answer on a path. Raises UnknownConversation."""
    found = next((message for message in reversed(path) if message.role == "assistant"), None)
    if found is None:
        raise UnknownConversation("nothing was answered in this conversation yet")
    return found


def code_block(message: Message, n: int) -> str:
    """Block `n` of the code in a message, from 1. Raises ConversationError."""
    blocks = code_blocks(message.text)
    if not 1 <= n <= len(blocks):
        raise ConversationError(f"this message has {len(blocks)} blocks of code; write a number up to that")
    return blocks[n - 1]


def found_in(path: Sequence[Message], words: str) -> list[dict[str, Any]]:
    """Every place on a path that has `words`, from the first message on: message, role, offset, the text around it."""
    pattern = pattern_of(words)
    if pattern is None:
        return []
    return [
        {
            "message": message.id,
            "role": message.role,
            "offset": match.start(),
            "length": match.end() - match.start(),
            "text": excerpt(message.text, match),
        }
        for message in path
        if message.role != "system"
        for match in pattern.finditer(message.text)
    ]


def found_lines(path: Sequence[Message], words: str) -> list[str]:
    """`found_in` for people."""
    places = found_in(path, words)
    size = len(str(len(places)))
    return [
        f"{n:>{size}}/{len(places)}  {SPEAKERS[place['role']]}: {place['text']}" for n, place in enumerate(places, start=1)
    ]


def branching_message(path: Sequence[Message], places: Mapping[str, tuple[int, int]]) -> Message:
    """The last message of a path that has other versions. Raises UnknownConversation."""
    found = next((message for message in reversed(path) if message.id in places), None)
    if found is None:
        raise UnknownConversation("no message of this conversation has another version; /retry and /edit make some")
    return found


def version_lines(store: ConversationStore, message: Message) -> list[str]:
    """The versions of a message, the one that is looked at marked."""
    keys = store.shown_versions(message.id)
    return [
        f"{'>' if key == message.id else ' '} {n}/{len(keys)}  {first_words(store.message(key))}"
        for n, key in enumerate(keys, start=1)
    ]


def look_at_version(store: ConversationStore, message: Message, n: int) -> str:
    """Look at version `n` of a message, from 1; its id. Raises ConversationError."""
    keys = store.shown_versions(message.id)
    if not 1 <= n <= len(keys):
        raise ConversationError(f"this message has {len(keys)} versions; write a number up to that")
    store.look_at(keys[n - 1])
    return keys[n - 1]


def fork_title(title: str) -> str:
    """What a fork of a conversation is called."""
    return f"{title} (fork)" if title else ""


def first_words(message: Message) -> str:
    """Who said it and how it begins, on one line."""
    line = one_line(answer_of(message.text)[:1000])
    return f"{SPEAKERS[message.role]}: {line if len(line) <= SHOWN else line[: SHOWN - 1] + '…'}"


def describe_branch(branch: Branch) -> dict[str, Any]:
    """What --json says of a branch."""
    return {
        "leaf": branch.leaf,
        "messages": branch.n_messages,
        "written": branch.created,
        "shown": branch.shown,
        "text": branch.text,
    }
