"""Conversations as files: Markdown and text of the path that is looked at, and JSON of everything.

Pure; knows no database and no terminal. The JSON of a conversation is one object:

    {"format": "localkv-conversation", "version": 1,
     "id", "name", "title", "created", "updated", "leaf", "pinned", "archived", "private", "draft", "tags", "queue",
     "model": [model] and "sampling": [sampling] as in config.toml, "system",
     "messages": [{"id", "parent", "role", "text", "state", "created", "numbers", "hidden"}]}

Times are seconds since 1970. `parent` is the id of the message above, null for the first ones; messages with the same
parent are versions of each other; `leaf` ends the path that is looked at; `hidden` says that a branch was taken away. Token
ids are not in it: they belong to one model's tokenizer and are made again. Reading it again gives the same conversation.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from localkv.chat.conversations import check_tag
from localkv.chat.imports.incoming import Incoming, Node
from localkv.chat.tree import SPEAKERS, Conversation, Message, State
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ImportRefused, UnusableName
from localkv.figures import Numbers
from localkv.messages import Role

VERSION = 1
FORMATS = {"md": ".md", "json": ".json", "text": ".txt"}

Id = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]

_ENDINGS = {"streaming": "still being written", "stopped": "stopped", "cut": "cut off", "failed": "failed"}


class ExportedMessage(msgspec.Struct, frozen=True):
    """One message of the JSON format."""

    id: Id
    parent: Id | None
    role: Role
    text: str
    state: State = "complete"
    created: float = 0.0
    numbers: dict[str, Any] | None = None
    hidden: bool = False


class ExportedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation of the JSON format."""

    format: Literal["localkv-conversation"] = "localkv-conversation"
    version: int = VERSION
    id: Id
    name: str
    title: str
    created: float
    updated: float
    leaf: Id | None
    pinned: bool = False
    archived: float | None = None
    private: bool = False
    draft: str = ""
    tags: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    model: ModelSection = ModelSection()
    sampling: SamplingSection = SamplingSection()
    system: str = ""
    messages: tuple[ExportedMessage, ...] = ()

    def incoming(self) -> Incoming:
        """The conversation to take in. What a file says of trust in a model's code is not believed. Raises ImportRefused."""
        if self.version > VERSION:
            raise ImportRefused(f"it was written by a newer localkv (version {self.version}); install that one")
        for message in self.messages:
            if message.numbers is not None:
                _check_numbers(message)
        return Incoming(
            "localkv",
            self.id,
            self.title,
            tuple(_node(message) for message in self.messages),
            leaf=self.leaf,
            created=self.created,
            updated=self.updated,
            system=self.system,
            name=self.name,
            model=msgspec.structs.replace(self.model, trust_remote_code=False),
            sampling=self.sampling,
            tags=_checked(self.tags),
            pinned=self.pinned,
            archived=self.archived,
            private=self.private,
            draft=self.draft,
            queue=self.queue,
            own=True,
        )


def exported(conversation: Conversation, messages: Sequence[Message], hidden: Sequence[str] = ()) -> ExportedConversation:
    """All of a conversation, in the JSON format."""
    away = frozenset(hidden)
    return ExportedConversation(
        id=conversation.id,
        name=conversation.name,
        title=conversation.title,
        created=conversation.created,
        updated=conversation.updated,
        leaf=conversation.leaf,
        pinned=conversation.pinned,
        archived=conversation.archived,
        private=conversation.private,
        draft=conversation.draft,
        tags=conversation.tags,
        queue=conversation.queue,
        model=conversation.model,
        sampling=conversation.sampling,
        system=conversation.system,
        messages=tuple(
            ExportedMessage(
                each.id, each.parent, each.role, each.text, each.state, each.created, each.numbers, each.id in away
            )
            for each in messages
        ),
    )


def to_json(conversation: Conversation, messages: Sequence[Message], hidden: Sequence[str] = ()) -> str:
    """All of a conversation as one indented JSON object."""
    return msgspec.json.format(msgspec.json.encode(exported(conversation, messages, hidden)), indent=2).decode() + "\n"


def to_markdown(conversation: Conversation, path: Sequence[Message]) -> str:
    """The path as Markdown; what models and people wrote stands in it unchanged."""
    facts = [f"model {conversation.model.name}", _day(conversation.created), *(f"#{tag}" for tag in conversation.tags)]
    lines = [f"# {conversation.title or conversation.name}", "", " · ".join(facts), ""]
    for message in path:
        lines += [f"## {_speaker(message)}", "", message.text.rstrip("\n"), ""]
    return "\n".join(lines)


def to_text(conversation: Conversation, path: Sequence[Message]) -> str:
    """The path as plain text."""
    title = conversation.title or conversation.name
    lines = [title, "=" * len(title), ""]
    for message in path:
        lines += [f"{_speaker(message)}:", "", message.text.rstrip("\n"), ""]
    return "\n".join(lines)


def _speaker(message: Message) -> str:
    ending = _ENDINGS.get(message.state)
    return SPEAKERS[message.role] + (f" ({ending})" if ending else "")


def _day(created: float) -> str:
    return dt.datetime.fromtimestamp(created, dt.UTC).strftime("%Y-%m-%d")


def _node(message: ExportedMessage) -> Node:
    state: State = "cut" if message.state == "streaming" else message.state
    return Node(
        message.id, message.parent, message.role, message.text, message.created, state, message.numbers, message.hidden
    )


def _checked(tags: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(sorted({check_tag(tag) for tag in tags}))
    except UnusableName as error:
        raise ImportRefused(str(error)) from error


def _check_numbers(message: ExportedMessage) -> None:
    try:
        msgspec.convert(message.numbers, Numbers)
    except msgspec.ValidationError as error:
        raise ImportRefused(f"the numbers of message {message.id} are none ({error})") from error
