"""A chat export of Open WebUI: a list of chats whose messages are a tree; older ones have a plain list. Pure."""

from typing import Any

import msgspec

from localkv.chat.imports.incoming import Incoming, Node
from localkv.errors import ImportRefused
from localkv.messages import Role

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_MILLISECONDS = 1e11
"""Moments above are in milliseconds: the year 5138 in seconds."""


class _Message(msgspec.Struct, frozen=True):
    id: str = ""
    parentId: str | None = None  # noqa: N815  their name
    role: str = ""
    content: Any = ""
    timestamp: float | None = None


class _History(msgspec.Struct, frozen=True):
    messages: dict[str, _Message] = {}
    currentId: str | None = None  # noqa: N815  their name


class _Chat(msgspec.Struct, frozen=True):
    title: str | None = None
    history: _History = _History()
    messages: list[_Message] = []
    system: str | None = None
    params: dict[str, Any] | None = None
    tags: list[Any] | None = None
    timestamp: float | None = None


class OpenWebUI(msgspec.Struct, frozen=True):
    """One chat as the export has it."""

    chat: _Chat
    id: str = ""
    title: str | None = None
    created_at: float | None = None
    updated_at: float | None = None
    archived: bool | None = None
    pinned: bool | None = None

    def incoming(self) -> Incoming:
        """What it says."""
        chat = self.chat
        title = self.title or chat.title or ""
        system = chat.system or (chat.params or {}).get("system") or ""
        return Incoming(
            "openwebui",
            self.id or f"{title}\0{chat.timestamp}",
            title,
            tuple(_nodes(chat)),
            leaf=chat.history.currentId,
            created=_seconds(self.created_at if self.created_at is not None else chat.timestamp),
            updated=_seconds(self.updated_at),
            system=system if isinstance(system, str) else "",
            tags=("openwebui",),
            pinned=bool(self.pinned),
            archived=(_seconds(self.updated_at) or 0.0) if self.archived else None,
        )


def _nodes(chat: _Chat) -> list[Node]:
    if chat.history.messages:
        return [_node(key, each.parentId, each) for key, each in chat.history.messages.items()]
    ids = [each.id or str(index) for index, each in enumerate(chat.messages)]
    return [_node(ids[i], ids[i - 1] if i else None, each) for i, each in enumerate(chat.messages)]


def _node(key: str, parent: str | None, message: _Message) -> Node:
    return Node(key, parent, _ROLES.get(message.role), _text(message.content), _seconds(message.timestamp))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    if content is None:
        return ""
    raise ImportRefused("the content of a message is neither text nor a list of parts")


def _seconds(moment: float | None) -> float | None:
    return moment / 1000 if moment is not None and moment > _MILLISECONDS else moment
