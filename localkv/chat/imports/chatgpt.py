"""conversations.json of a ChatGPT export: a list of conversations, each a mapping of nodes. Pure.

All branches are kept, not only the one that ends in `current_node`. Parts that are no text (pictures, audio) are named in
brackets. Hidden remarks, tools and empty system messages are left out.
"""

from typing import Any

import msgspec

from localkv.chat.imports.incoming import Incoming, Node
from localkv.messages import Role

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


class _Author(msgspec.Struct, frozen=True):
    role: str = ""


class _Message(msgspec.Struct, frozen=True):
    author: _Author = _Author()
    content: dict[str, Any] = {}
    create_time: float | None = None
    recipient: str | None = "all"
    metadata: dict[str, Any] | None = None


class _Node(msgspec.Struct, frozen=True):
    parent: str | None = None
    message: _Message | None = None


class ChatGPT(msgspec.Struct, frozen=True):
    """One conversation as the export has it."""

    mapping: dict[str, _Node]
    id: str = ""
    conversation_id: str = ""
    title: str | None = None
    create_time: float | None = None
    update_time: float | None = None
    current_node: str | None = None
    is_archived: bool | None = None
    is_starred: bool | None = None

    def incoming(self) -> Incoming:
        """What it says."""
        nodes = tuple(_node(key, node) for key, node in self.mapping.items())
        return Incoming(
            "chatgpt",
            self.conversation_id or self.id or f"{self.title}\0{self.create_time}",
            self.title or "",
            nodes,
            leaf=self.current_node,
            created=self.create_time,
            updated=self.update_time,
            tags=("chatgpt",),
            pinned=bool(self.is_starred),
            archived=(self.update_time or 0.0) if self.is_archived else None,
        )


def _node(key: str, node: _Node) -> Node:
    message = node.message
    if message is None:
        return Node(key, node.parent, None, "")
    hidden = bool((message.metadata or {}).get("is_visually_hidden_from_conversation"))
    to_tool = message.recipient not in (None, "all")
    role = None if hidden or to_tool else _ROLES.get(message.author.role)
    return Node(key, node.parent, role, _text(message.content), message.create_time)


def _text(content: dict[str, Any]) -> str:
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n\n".join(filter(None, (_part(part) for part in parts)))
    text = content.get("text") or content.get("result") or ""
    return text if isinstance(text, str) else ""


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        kind = part.get("content_type")
        return text if isinstance(text, str) and text else f"[{kind if isinstance(kind, str) else 'something'}, not imported]"
    return ""
