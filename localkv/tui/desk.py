"""What is open, and what is done to conversations, without any widget: the store, a clock and defaults for new ones.

Thread: the UI's. A conversation that nothing was said in is not stored: it begins with its first question, or with what is
written in it when the program ends. Refusals of the store are LocalKVErrors for the caller to show.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation, Message
from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import ConversationExists, UnknownConversation
from localkv.tui.entries import Places
from localkv.tui.listing import Item, to_item

TAIL = 32
"""Messages read before the first picture of a conversation; more than a screen shows."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a conversation that is not stored yet will begin with."""

    model: ModelSection
    sampling: SamplingSection
    system: str
    name: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """Something that undo brings back: messages that were taken away together, or without any the whole conversation."""

    conversation: str
    messages: tuple[str, ...] = ()


class Desk:
    """The open conversation, and the store behind it."""

    def __init__(
        self, store: ConversationStore, config: Config, clock: Callable[[], float] = time.time, *, private: bool = False
    ) -> None:
        """`private`: new conversations are."""
        self.store = store
        self.clock = clock
        self.defaults = Start(config.model, config.sampling, config.chat.system, private=private)
        self.start = self.defaults
        self.opened: Conversation | None = None
        self.messages: list[Message] = []
        self.draft = ""
        """What is typed in the open conversation and not sent."""
        self._drafts: dict[str, str] = {}
        """By conversation, "" for one that is not stored: what is typed there and the store does not have."""
        self.places: Places = {}
        """Of messages that have several versions, which one they are."""
        self._removed: list[Removed] = []
        """Newest last: what undo brings back."""

    @property
    def key(self) -> str:
        """The id of the open conversation; empty for one that is not stored yet."""
        return self.opened.id if self.opened is not None else ""

    @property
    def title(self) -> str:
        return self.opened.title if self.opened is not None else ""

    @property
    def system(self) -> str:
        return self.opened.system if self.opened is not None else self.start.system

    @property
    def model(self) -> ModelSection:
        return self.opened.model if self.opened is not None else self.start.model

    @property
    def sampling(self) -> SamplingSection:
        return self.opened.sampling if self.opened is not None else self.start.sampling

    def open(self, conversation: str) -> None:
        """Look at this conversation; of a long one only at its end, until `read_whole`."""
        self.opened = self.store.get(conversation)
        self.messages = self._tail(self.opened.leaf)
        self.places = self.store.versions(conversation)
        self.draft = self._drafts.get(conversation, self.opened.draft)

    @property
    def whole(self) -> bool:
        """Whether `messages` are all that lead to the last one."""
        return not self.messages or self.messages[0].parent is None

    def read_whole(self) -> None:
        """Read all messages of the open conversation, and its settings again."""
        if self.opened is not None:
            self.opened = self.store.get(self.opened.id)
            self.messages = self.store.path(self.opened.id)
            self.places = self.store.versions(self.opened.id)

    def open_named(self, name: str) -> None:
        """Look at the conversation called `name`, out of the trash if it is there; one that will be called so if there is none."""
        try:
            found = self.store.by_name(name)
        except UnknownConversation:
            self.begin()
            self.start = replace(self.start, name=name)
            return
        if found.trashed is not None:
            self.untrash(found.id)
        self.open(found.id)

    @property
    def last(self) -> Message | None:
        """The message that the open conversation ends in."""
        return self.messages[-1] if self.messages else None

    def begin(self, system: str | None = None) -> None:
        """Look at a new, empty conversation; what was typed in one before is there again."""
        base = self.defaults
        self.start = replace(base, system=base.system if system is None else system)
        self.opened = None
        self.messages = []
        self.places = {}
        self.draft = self._drafts.get("", "")

    def ensure(self) -> Conversation:
        """The open conversation, stored now if it was not."""
        if self.opened is None:
            self.opened = self._create(self.start)
        return self.opened

    def _create(self, start: Start) -> Conversation:
        """A stored conversation that begins like this; what was typed while it was not stored goes with it."""
        while True:
            name = start.name or self._free_name()
            try:
                made = self.store.create(
                    name, model=start.model, sampling=start.sampling, system=start.system, private=start.private
                )
            except ConversationExists:
                if start.name:
                    raise
            else:
                if (draft := self._drafts.pop("", "")) != made.draft:
                    self._drafts[made.id] = draft
                return made

    # Branches of the open conversation

    def end_at(self, message: str) -> None:
        """Let the path end in this message; what is below it stays as another branch."""
        if self.opened is not None and self.opened.leaf != message:
            self.store.set_leaf(self.opened.id, message)
            self.read_whole()

    def look_at(self, message: str) -> None:
        """Look at this message and what was last written below it."""
        self.store.look_at(message)
        self.read_whole()

    def version(self, message: str, step: int) -> str | None:
        """The next or previous version of a message; None if it is the only one. After the last comes the first."""
        versions = self.store.shown_versions(message)
        if message not in versions or len(versions) < 2:
            return None
        return versions[(versions.index(message) + step) % len(versions)]

    def take_away(self, messages: list[str]) -> int:
        """Take messages and all below them away; how many messages that are."""
        n_messages = sum([self.store.take_away(message) for message in messages])
        self._removed.append(Removed(self.key, tuple(messages)))
        self.read_whole()
        return n_messages

    def bring_back(self) -> str:
        """Bring back what was taken away last, if nothing was trashed since; the id of one of its messages, or nothing."""
        last = self.last_removed()
        if last is None or not last.messages:
            return ""
        for message in last.messages:
            self.store.bring_back(message)
        self._removed.pop()
        if self.key != last.conversation:
            self.open(last.conversation)
        self.read_whole()
        return last.messages[-1]

    def last_removed(self) -> Removed | None:
        """What undo brings back next; passes over what is gone for good, by whomever."""
        while self._removed:
            last = self._removed[-1]
            try:
                self.store.get(last.conversation)
                for message in last.messages:
                    self.store.message(message)
            except UnknownConversation:
                self._removed.pop()
            else:
                return last
        return None

    def fork(self, message: str, name: str = "") -> Conversation:
        """A new conversation that shares everything up to `message`."""
        title = f"{self.title} (fork)" if self.title else ""
        return self.store.fork(message, name or self._free_name(), title)

    def rename(self, conversation: str, title: str) -> Conversation:
        """Give it another title."""
        self.store.rename(conversation, title=title)
        return self.reread(conversation)

    def trash(self, conversation: str) -> None:
        """Move it to the trash; `undo` brings it back."""
        self.store.trash(conversation)
        self._removed.append(Removed(conversation))
        if self.key == conversation:
            self.begin()

    def untrash(self, conversation: str) -> Conversation:
        """Bring it back from the trash."""
        self.store.untrash(conversation)
        self._removed = [each for each in self._removed if each != Removed(conversation)]
        return self.reread(conversation)

    def undo(self) -> Conversation | None:
        """Bring back what was trashed last, if nothing was taken away since; None if there is nothing."""
        last = self.last_removed()
        if last is None or last.messages:
            return None
        self.store.untrash(last.conversation)
        self._removed.pop()
        return self.store.get(last.conversation)

    def set_system(self, system: str) -> None:
        """Let the open conversation begin with this system prompt; the path as it was stays a branch."""
        if self.opened is None:
            self.start = replace(self.start, system=system)
            return
        self.store.set_system(self.opened.id, system)
        self.read_whole()

    def set_sampling(self, sampling: SamplingSection) -> None:
        """Draw tokens like this in the open conversation from now on."""
        if self.opened is None:
            self.start = replace(self.start, sampling=sampling)
            return
        self.store.set_sampling(self.opened.id, sampling)
        self.reread(self.opened.id)

    def set_model(self, model: ModelSection) -> None:
        """Let this model answer in the open conversation from now on."""
        if self.opened is None:
            self.start = replace(self.start, model=model)
            return
        self.store.set_model(self.opened.id, model)
        self.reread(self.opened.id)

    def items(self, *, sizes: bool = False) -> list[Item]:
        """All conversations of all places as lines of the list; `sizes`: with their tokens."""
        tokens = self.store.sizes() if sizes else {}
        return [to_item(each, tokens.get(each.id, 0)) for each in self.store.list(include_trashed=True)]

    def keep_draft(self, draft: str) -> None:
        """Remember what is typed and not sent; stored with a stored conversation, and if that is refused with the next call."""
        if draft != self.draft or self.key in self._drafts:
            self.draft = self._drafts[self.key] = draft
            if self.opened is not None:
                self._store_draft(self.opened.id)

    def store_drafts(self) -> None:
        """Store what is typed anywhere and not stored yet: words in a conversation that is not stored make it one."""
        if self._drafts.get("", "").strip():
            made = self._create(self.start if self.opened is None else self.defaults)
            self.opened = self.opened or made
        for conversation in filter(None, [*self._drafts]):
            with contextlib.suppress(UnknownConversation):  # erased meanwhile: there is nowhere to store it
                self._store_draft(conversation)

    def _store_draft(self, conversation: str) -> None:
        self.store.set_draft(conversation, self._drafts[conversation])
        del self._drafts[conversation]

    def reread(self, conversation: str) -> Conversation:
        """The settings and title of a conversation as they are now; the messages stay as they were read."""
        fresh = self.store.get(conversation)
        if self.key == conversation:
            self.opened = fresh
        return fresh

    def _tail(self, leaf: str | None) -> list[Message]:
        """The newest messages on the path to `leaf`: a screen full costs the same however long the conversation is."""
        found: list[Message] = []
        while leaf is not None and len(found) < TAIL:
            found.append(self.store.message(leaf))
            leaf = found[-1].parent
        return found[::-1]

    def _free_name(self) -> str:
        base = time.strftime("%Y-%m-%d-%H%M%S", time.localtime(self.clock()))
        taken = {each.name for each in self.store.list(include_trashed=True)}
        return next(name for n in range(len(taken) + 1) if (name := f"{base}-{n}" if n else base) not in taken)
