"""A conversation as another program tells it, and how it becomes one of ours. Pure.

Ids are made from the source's own, so that the same file gives the same conversation however often it is read. Messages of
roles that a model here does not hear (tools, hidden remarks) are left out and their answers hang on what came before; two
messages of one speaker in a row become one, because models take turns. Times that make no sense are those of the import.
"""

import heapq
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localkv.chat.tree import Conversation, Message, State, title_from, well_formed
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ImportRefused
from localkv.messages import Role

SPACE = uuid.UUID("5b6f0c1e-7a55-4c1c-9d33-0f6d3c9d8a21")
"""The namespace of ids made from foreign ones."""

LAST_SECOND = 253_402_300_799.0
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class Node:
    """One message. `role` empty: it is left out, what hangs on it is kept."""

    id: str
    parent: str | None
    role: Role | None
    text: str
    created: float | None = None
    state: State = "complete"
    numbers: dict[str, Any] | None = None
    hidden: bool = False
    """Its branch was taken away."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One conversation of a file. Ids are the source's."""

    source: str
    id: str
    title: str
    nodes: tuple[Node, ...]
    leaf: str | None = None
    created: float | None = None
    updated: float | None = None
    system: str = ""
    name: str = ""
    model: ModelSection | None = None
    sampling: SamplingSection | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: float | None = None
    private: bool = False
    draft: str = ""
    queue: tuple[str, ...] = ()
    own: bool = False
    """The ids are ours already."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One conversation ready to be stored; parents stand before children."""

    conversation: Conversation
    messages: tuple[Message, ...]
    hidden: tuple[str, ...] = field(default=())


def arrive(incoming: Incoming, model: ModelSection, sampling: SamplingSection, now: float) -> Arrival:
    """`incoming` as one of our conversations; `model` and `sampling` are for those that bring none. Raises ImportRefused."""
    key = _key(incoming, "")
    ordered = in_order(incoming.nodes)
    if not incoming.own:
        ordered = _merged(_spoken(ordered), incoming.leaf)
    base = _moment(incoming.created, now)
    root: list[Message] = []
    if incoming.system and not any(node.role == "system" for node in ordered):
        root = [_message(incoming, Node(_root_id(incoming), None, "system", incoming.system, base), key, base)]
    first = root[0].id if root else None
    messages = [*root, *(_message(incoming, node, key, base, first) for node in ordered)]
    if not any(message.role != "system" for message in messages):
        raise ImportRefused("it has no messages")
    leaf = _leaf(incoming, ordered)
    conversation = Conversation(
        id=key,
        name=incoming.name,
        title=title_from(incoming.title) if incoming.own else _title(incoming, messages),
        model=incoming.model or model,
        sampling=incoming.sampling or sampling,
        system=next((each.text for each in messages if each.role == "system"), ""),
        created=base,
        updated=min(_moment(incoming.updated, max(message.created for message in messages)), max(now, base)),
        leaf=leaf if leaf is not None else messages[-1].id,
        pinned=incoming.pinned,
        draft=incoming.draft,
        n_messages=sum(message.role != "system" for message in messages),
        private=incoming.private,
        tags=incoming.tags,
        archived=None if incoming.archived is None else _moment(incoming.archived, now),
        queue=incoming.queue,
    )
    kept = {node.id for node in ordered}
    hidden = tuple(_key(incoming, node.id) for node in incoming.nodes if node.hidden and node.id in kept)
    return Arrival(conversation, tuple(messages), hidden)


def in_order(nodes: Sequence[Node]) -> list[Node]:
    """`nodes` so that parents stand before children, older ones first; a parent that is missing counts as none.

    Raises ImportRefused for ids that occur twice and parents that run in a circle.
    """
    known = {node.id: node for node in nodes}
    if len(known) != len(nodes):
        raise ImportRefused("two of its messages have the same id")
    below: dict[str, list[int]] = {}
    ready: list[tuple[float, int]] = []
    for index, node in enumerate(nodes):
        if node.parent is not None and node.parent in known:
            below.setdefault(node.parent, []).append(index)
        else:
            ready.append((_moment(node.created, 0.0), index))
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, index = heapq.heappop(ready)
        node = nodes[index]
        ordered.append(node if node.parent in known else replace(node, parent=None))
        for child in below.get(node.id, ()):
            heapq.heappush(ready, (_moment(nodes[child].created, 0.0), child))
    if len(ordered) != len(nodes):
        raise ImportRefused("the parents of its messages run in a circle")
    return ordered


def _spoken(ordered: Sequence[Node]) -> list[Node]:
    """Without the messages that nobody speaks or that say nothing; what hung on them hangs on what was before."""
    kept_above: dict[str, str | None] = {}
    kept: list[Node] = []
    for node in ordered:
        above = kept_above[node.parent] if node.parent is not None else None
        speaks = node.role in ("user", "assistant") or (node.role == "system" and above is None and not kept)
        if speaks and (node.text.strip() or node.role == "assistant"):
            kept.append(replace(node, parent=above))
            kept_above[node.id] = node.id
        else:
            kept_above[node.id] = above
    return kept


def _merged(spoken: Sequence[Node], leaf: str | None) -> list[Node]:
    """Each message that follows one of the same speaker takes in its text and its place."""
    now: dict[str, Node] = {}
    taken_in: set[str] = set()
    has_others: set[str] = set()
    for node in spoken:
        above = now.get(node.parent) if node.parent is not None else None
        merged = node
        if above is not None and above.role == node.role:
            merged = replace(node, parent=above.parent, text="\n\n".join(filter(None, (above.text, node.text))))
            taken_in.add(above.id)
        elif node.parent is not None:
            has_others.add(node.parent)
        now[node.id] = merged
    return [now[node.id] for node in spoken if node.id not in taken_in or node.id in has_others or node.id == leaf]


def _leaf(incoming: Incoming, ordered: Sequence[Node]) -> str | None:
    """The kept message at or above the one that the source ends in; else at what took it in."""
    parents: Mapping[str, str | None] = {node.id: node.parent for node in incoming.nodes}
    kept = {node.id for node in ordered}
    step, steps = incoming.leaf, 0
    while step is not None and step not in kept and steps <= len(parents):
        step, steps = parents.get(step), steps + 1
    return _key(incoming, step) if step in kept and step is not None else None


def _message(incoming: Incoming, node: Node, conversation: str, base: float, root: str | None = None) -> Message:
    if node.role is None:
        raise ImportRefused("a message has no speaker")
    parent = root if node.parent is None else _key(incoming, node.parent)
    return Message(
        id=_key(incoming, node.id),
        conversation=conversation,
        parent=parent if node.role != "system" else None,
        role=node.role,
        text=node.text if incoming.own else _clean(node.text),
        ids=b"",
        state=node.state,
        created=_moment(node.created, base),
        numbers=node.numbers,
    )


def _title(incoming: Incoming, messages: Sequence[Message]) -> str:
    """The source's, else the first words that were said."""
    return title_from(incoming.title) or title_from(next(each.text for each in messages if each.role != "system"))


def _root_id(incoming: Incoming) -> str:
    """An id for the prompt that a source has beside its messages: the same at each reading, and that of none of them."""
    taken = {node.id for node in incoming.nodes}
    name, found = "system", ""
    while not found or found in taken:
        found = uuid.uuid5(SPACE, f"{incoming.id}\0{name}").hex if incoming.own else name
        name += "\0"
    return found


def _key(incoming: Incoming, node: str) -> str:
    """Our id of a foreign message; of the conversation itself for an empty one."""
    if incoming.own:
        return node or incoming.id
    return uuid.uuid5(SPACE, f"{incoming.source}\0{incoming.id}\0{node}".encode("utf-8", "replace").decode()).hex


def _clean(text: str) -> str:
    return well_formed(text).replace("\0", "\ufffd")


def _moment(seconds: float | None, otherwise: float) -> float:
    if seconds is None or not math.isfinite(seconds) or not 0 <= seconds <= LAST_SECOND:
        return otherwise
    return float(seconds)
