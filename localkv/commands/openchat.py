"""A conversation that is open in plain mode, and the commands about its messages: words, versions, forks, what is taken away.

No cursor: a command means the last message that it can mean. Thread: main. How a turn is printed, and how conversations are
opened, is the face's.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from localkv.chat.attachments import Attachment, read_attachment, with_files
from localkv.chat.thoughts import answer_of
from localkv.chat.tree import Conversation, Message
from localkv.commands.branches import (
    branching_message,
    code_block,
    first_words,
    fork_title,
    found_lines,
    last_answer,
    last_question,
    look_at_version,
    version_lines,
)
from localkv.commands.console import Console
from localkv.commands.talk import Talk
from localkv.commands.waiting import brief, listed, number_in, with_one, without
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConfigError, NotWritable, UnknownConversation
from localkv.service.turns import Turn
from localkv.units import whole_number


@dataclass(slots=True)
class Draft:
    """A conversation that is stored with its first question. `name` empty: the time."""

    model: ModelSection
    sampling: SamplingSection
    system: str
    name: str = ""
    private: bool = False


@dataclass(slots=True)
class OpenChat(ABC):
    """The open conversation and what can be done to its messages."""

    talk: Talk
    console: Console
    draft: Draft
    opened: Conversation | None = None
    deleted: list[Conversation | Message] = field(default_factory=list)
    """Newest last: conversations in the trash, and messages that were taken away with all below them."""
    failed: bool = False
    attached: list[Attachment] = field(default_factory=list)
    """Files that go with the next message."""

    @abstractmethod
    def answer(self, turn: Turn) -> None:
        """Do a turn and print it."""

    @abstractmethod
    def open(self, name: str) -> None:
        """Go on with the conversation `name`."""

    def find(self, words: str) -> None:
        """Print every place of the conversation that has these words."""
        if not words:
            raise ConfigError("write /find WORDS")
        self.console.tell(*(found_lines(self.path(), words) or ["not found"]))

    def edit(self, text: str) -> None:
        """Ask the last question in other words; the old path is kept."""
        question = last_question(self.path())
        if not text:
            self.console.tell(first_words(question))
            text = self.console.read("instead> ") or ""
        if text.strip():
            self.answer(self.talk.chat.edit(question.conversation, question.id, text))

    def fork(self, name: str) -> None:
        """Go on from here in a new conversation that shares all that was said."""
        last = self.path()[-1]
        title = fork_title(self.stored().title)
        forked = self.opened = self.talk.store.fork(last.id, name or self.talk.free_name(), title)
        self.console.note(f'[localkv] "{forked.name}" goes on from here; the old conversation is unchanged')

    def branch(self, argument: str) -> None:
        """Show the versions of the last message that has some, or look at another one and what follows it."""
        store = self.talk.store
        message = branching_message(self.path(), store.versions(self.stored().id))
        if not argument:
            self.console.tell(*version_lines(store, message))
            return
        n = whole_number(argument)
        if not n:
            raise ConfigError(f'"{brief(argument)}" is no number of a version; write /branch 1, /branch 2 and so on')
        look_at_version(store, message, n)
        self.open(self.stored().name)

    def branches(self) -> None:
        """Print every path through the conversation by what it ends in, the one last written first."""
        for branch in self.talk.store.branches(self.stored().id):
            words = first_words(self.talk.store.message(branch.leaf))
            self.console.tell(f"{'>' if branch.shown else ' '} {branch.n_messages:>5}  {words}")

    def prune(self) -> None:
        """Take the last message away."""
        last = self.path()[-1]
        self.talk.store.take_away(last.id)
        self.deleted.append(last)
        self.console.note(f"[localkv] taken away: {first_words(last)}; /undo brings it back")

    def show_answer(self, argument: str) -> None:
        """Print the last answer alone, or its Nth block of code."""
        answer = last_answer(self.path())
        if not argument:
            self.console.tell(answer_of(answer.text))
            return
        self.console.tell(code_block(answer, whole_number(argument)))

    def attach(self, path: str) -> None:
        """Read a text file; it goes with the next message."""
        file = read_attachment(path)
        self.attached.append(file)
        self.console.note(f"[localkv] {file.name} ({file.size}) goes with the next message")

    def with_attached(self, words: str) -> str:
        """The message of these words and of the files that wait for it."""
        files, self.attached = self.attached, []
        return with_files(files, words)

    def queue(self, argument: str) -> None:
        """List the messages that wait in this conversation, ask them all, write one anew, or forget some."""
        conversation = self.stored().id
        waits = self.talk.store.get(conversation).queue
        match argument.partition(" ")[0]:
            case "":
                self.console.tell(*listed(waits))
            case "send":
                self._send_queue(conversation)
            case "edit":
                self._edit_waiting(conversation, waits, number_in(argument, waits))
            case "delete":
                self.talk.store.set_queue(conversation, without(waits, number_in(argument, waits)))
            case "clear":
                self.talk.store.set_queue(conversation, ())
            case word:
                raise ConfigError(f"/queue {word}: write /queue, /queue send, /queue edit N, /queue delete N or /queue clear")

    def _edit_waiting(self, conversation: str, waits: tuple[str, ...], index: int) -> None:
        """Put other words in the place of a message that waits; an empty line leaves it as it is."""
        self.console.tell(waits[index])
        text = self.console.read("instead> ") or ""
        if text.strip():
            self.talk.store.set_queue(conversation, with_one(without(waits, index), text, index))

    def _send_queue(self, conversation: str) -> None:
        """Ask what waits, one after the other, until an answer does not come to its end."""
        while waits := self.talk.store.get(conversation).queue:
            self.answer(self.talk.chat.ask(conversation, waits[0]))
            path = self.path()
            if path[-1].parent is not None and self.talk.store.message(path[-1].parent).text == waits[0]:
                self.talk.store.set_queue(conversation, waits[1:])
            if path[-1].state != "complete":
                return

    def path(self) -> list[Message]:
        """What was said, once all of it is saved. Raises NotWritable, and UnknownConversation if nothing was."""
        conversation = self.stored().id
        if conversation in self.talk.chat.unsaved and (problem := self.talk.chat.retry_unsaved()):
            raise NotWritable(f"the last answer is not saved yet: {problem}")
        path = self.talk.store.path(conversation)
        if not path:
            raise UnknownConversation("nothing was said in this conversation yet")
        return path

    def stored(self) -> Conversation:
        """The open conversation. Raises UnknownConversation while nothing was said in it."""
        if self.opened is None:
            raise UnknownConversation("nothing was said in this conversation yet")
        return self.opened
