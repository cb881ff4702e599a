"""How long what is being written is, in tokens, and whether it still fits: an estimate, because the face has no tokenizer.

Characters per token are those of the newest messages of the conversation, whose ids are known; without any, of English. Pure.
"""

from collections.abc import Sequence

from localkv.chat.tree import Message
from localkv.kv.record import ID_BYTES
from localkv.tui.entries import newest_numbers
from localkv.units import format_count

ENGLISH = 4.0
LOOKED_AT = 16
"""Messages; the newest are most like what is written next."""
ENOUGH_TOKENS = 32
SHOWN_TOKENS = 50
"""A shorter text needs no count."""


def characters_per_token(messages: Sequence[Message]) -> float:
    """Of the newest of these messages."""
    known = [message for message in messages[-LOOKED_AT:] if message.ids]
    tokens = sum(len(message.ids) // ID_BYTES for message in known)
    characters = sum(len(message.text) for message in known)
    return characters / tokens if tokens >= ENOUGH_TOKENS and characters >= tokens // 2 else ENGLISH


def free_tokens(context_tokens: int, messages: Sequence[Message]) -> int:
    """How much more a context holds after these messages."""
    numbers = newest_numbers(messages)
    return max(0, context_tokens - (numbers.prompt_tokens + numbers.generated_tokens if numbers is not None else 0))


def count_label(characters: int, per_token: float, free_tokens: int | None) -> tuple[str, bool]:
    """What is said of so many characters, and whether they are too many for the `free_tokens` of the context."""
    tokens = round(characters / per_token)
    if free_tokens is not None and tokens > free_tokens:
        return f"~{format_count(tokens)} tok, ~{format_count(tokens - free_tokens)} too many", True
    return (f"~{format_count(tokens)} tok" if tokens >= SHOWN_TOKENS else ""), False
