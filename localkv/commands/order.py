"""Which conversations a list shows and in which order; the same in every face. Pure; knows no store and no screen."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from localkv.chat.tree import Conversation
from localkv.chat.visible import one_line

Order = Literal["newest", "name", "size"]
ORDERS: tuple[Order, ...] = ("newest", "name", "size")
Place = Literal["list", "archive", "trash"]
PLACES: tuple[Place, ...] = ("list", "archive", "trash")


class Listed(Protocol):
    """What sorting needs of a conversation."""

    @property
    def title(self) -> str: ...

    @property
    def updated(self) -> float: ...

    @property
    def pinned(self) -> bool: ...

    @property
    def tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Line:
    """A conversation with its size, as sorting needs it."""

    conversation: Conversation
    tokens: int = 0

    @property
    def title(self) -> str:
        return self.conversation.title or self.conversation.name

    @property
    def updated(self) -> float:
        return self.conversation.updated

    @property
    def pinned(self) -> bool:
        return self.conversation.pinned

    def has(self, word: str) -> bool:
        """Whether `word` is in its name, its title or, with a "#", among its tags."""
        known = self.conversation
        return word.casefold() in f"{known.name} {known.title} {hashed(known.tags)}".casefold()


AnyListed = TypeVar("AnyListed", bound=Listed)


def arranged(items: Iterable[AnyListed], order: Order = "newest") -> list[AnyListed]:
    """Pinned ones first, then by `order`; equals stay newest first."""
    found = sorted(items, key=lambda item: -item.updated)
    if order == "name":
        found.sort(key=lambda item: item.title.casefold())
    elif order == "size":
        found.sort(key=lambda item: -item.tokens)
    found.sort(key=lambda item: not item.pinned)
    return found


def place_of(conversation: Conversation) -> Place:
    """Where a conversation is kept. What is thrown away is in the trash, archived or not."""
    if conversation.trashed is not None:
        return "trash"
    return "list" if conversation.archived is None else "archive"


def has_tags(conversation: Conversation, tags: Iterable[str]) -> bool:
    """Whether it has all of these tags."""
    return {tag.removeprefix("#").casefold() for tag in tags} <= set(conversation.tags)


def titled(conversation: Conversation) -> str:
    """Its title, harmless, with all that sets it apart."""
    return " ".join(filter(None, (one_line(conversation.title), *_marks(conversation))))


def hashed(tags: Iterable[str]) -> str:
    """Tags as people read them: "#work #rust"."""
    return " ".join(f"#{tag}" for tag in tags)


def _marks(conversation: Conversation) -> Iterator[str]:
    if conversation.tags:
        yield hashed(conversation.tags)
    if conversation.pinned:
        yield "(pinned)"
    if conversation.private:
        yield "(private)"
    if conversation.archived is not None:
        yield "(archived)"
    if conversation.trashed is not None:
        yield "(in the trash)"
