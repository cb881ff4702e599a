"""What is done to a conversation as a whole, as sentences: pinned, tagged, archived, found by what was said in it.

Knows a store and no screen; the faces show what it returns. Raises LocalKVError as the store does.
"""

from collections.abc import Sequence

from localkv.chat.search import Hit
from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation
from localkv.chat.visible import one_line, visible
from localkv.commands.order import hashed
from localkv.errors import ConfigError
from localkv.units import format_age

NOTHING_FOUND = "no message has these words"
_SPEAKERS = {"user": "you", "assistant": "answer", "system": "system"}


def toggle_pin(store: ConversationStore, conversation: Conversation) -> str:
    """Keep it on top of the list, or no longer."""
    store.set_pinned(conversation.id, not conversation.pinned)
    if conversation.pinned:
        return f"{called(conversation)} is not pinned any more"
    return f"{called(conversation)} is pinned: it stays on top, and its cache is the last that goes"


def toggle_archive(store: ConversationStore, conversation: Conversation) -> str:
    """Put it away, or take it back into the list."""
    store.set_archived(conversation.id, conversation.archived is None)
    if conversation.archived is not None:
        return f"{called(conversation)} is back in the list"
    return f"{called(conversation)} is in the archive; search still finds it"


def change_tags(store: ConversationStore, conversation: Conversation, words: str) -> str:
    """Add the tags in `words`, take away those with a minus before them; without words, say which there are."""
    wanted = set(conversation.tags)
    for word in words.split():
        if word == "-":
            raise ConfigError('"-" takes away the tag that stands right after it, such as: -work')
        if word.startswith("-"):
            wanted.discard(word[1:].removeprefix("#").casefold())
        else:
            wanted.add(word)
    if words.split():
        store.set_tags(conversation.id, wanted)
    tags = store.get(conversation.id).tags
    return f"{called(conversation)} has the tags {hashed(tags)}" if tags else f"{called(conversation)} has no tags"


def called(conversation: Conversation) -> str:
    """How a sentence names a conversation."""
    return f'"{one_line(conversation.title) or one_line(conversation.name)}"'


def hit_lines(hits: Sequence[Hit], now: float, *, bold: tuple[str, str] = ("", "")) -> list[str]:
    """Hits for people: two lines each, the words between the two texts of `bold`."""
    lines = []
    for hit in hits:
        title = one_line(hit.title)
        head = f"{one_line(hit.name)}  {format_age(max(0.0, now - hit.created))}  {_SPEAKERS[hit.role]}"
        also = f"  ({elsewhere(hit)})" if hit.also_in else ""
        lines += [f"{head}  {title}".rstrip() + also, f"    {marked_up(hit, bold)}"]
    return lines


def elsewhere(hit: Hit) -> str:
    """Where copies of it are; empty if there are none."""
    others = len(hit.also_in)
    return f"also in {others} other conversation{'' if others == 1 else 's'}" if others else ""


def marked_up(hit: Hit, bold: tuple[str, str]) -> str:
    """The snippet, harmless, with each word that was found between the two texts of `bold`."""
    parts, at = [], 0
    for start, end in hit.marks:
        parts += [visible(hit.snippet[at:start]), bold[0], visible(hit.snippet[start:end]), bold[1]]
        at = end
    return "".join([*parts, visible(hit.snippet[at:])])
