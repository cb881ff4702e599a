"""`localkv chat --plain`: the chat line by line, for pipes, screen readers and terminals that can do nothing else.

No cursor addressing, no colours: prompts and answers go to standard output, everything about the cache and about failures
to stderr. Thread: main. Commands come from commands/registry.py; each is one method here.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from localkv.chat.query import FILTERS_HELP
from localkv.chat.store import ConversationStore
from localkv.chat.tree import Conversation, Message
from localkv.commands import filing, unload
from localkv.commands.console import CONTINUED, PROMPT, Console
from localkv.commands.exporting import export_open
from localkv.commands.openchat import Draft, OpenChat
from localkv.commands.order import Line, arranged, place_of, titled
from localkv.commands.output import ProgressLine, print_sections, print_table
from localkv.commands.price import price_of
from localkv.commands.registry import PLAIN_COMMANDS, Call, Mistake, help_lines, message_of, parse
from localkv.commands.sampling import LIMITS, changed_setting, show_setting
from localkv.commands.say import Output, follow
from localkv.commands.sentences import cache_lines, progress_line, speed_line
from localkv.commands.setup import Setup
from localkv.commands.stats import ANSWER_SECONDS, sections
from localkv.commands.talk import changed_model, open_talk
from localkv.config import ModelSection, SamplingSection
from localkv.errors import ConfigError, LocalKVError
from localkv.service.answers import answer_to
from localkv.service.caretaker import forget_through, logs_only_in, unload_through
from localkv.service.protocol import Look, Prepare, Ready, Snapshot
from localkv.service.turn_events import Finished
from localkv.service.turns import Turn
from localkv.units import format_age

__all__ = ["CONTINUED", "PROMPT", "Console", "Draft", "PlainChat", "begin", "run"]

HITS = 10


class _QuitError(Exception):
    """The person wants to leave."""


@dataclass(slots=True)
class PlainChat(OpenChat):
    """One chat from its first prompt to its end."""

    def run(self) -> int:
        """Read and answer until the input ends; returns the exit code."""
        pressed = False
        while True:
            try:
                line = self.console.read()
                pressed = False
                if line is None:
                    self.console.tell("")
                    return self._end()
                self.take(line)
            except KeyboardInterrupt:
                if pressed:
                    self._end()
                    return 130
                pressed = True
                self.console.tell("", "(Ctrl+C once more, /quit or Ctrl+D to leave)")
            except _QuitError:
                return self._end()

    def take(self, line: str) -> None:
        """One line of the person: a message or a command. Refusals are printed."""
        call = parse(line, PLAIN_COMMANDS)
        try:
            match call:
                case Mistake():
                    self.console.note(call.message)
                case Call():
                    self.actions()[call.command.slash](call.argument)
                case None if line.strip():
                    self.answer(self.talk.chat.ask(self.ensure().id, self.with_attached(message_of(line))))
        except LocalKVError as error:
            self.console.note(str(error))
            self.failed = True

    def actions(self) -> dict[str, Callable[[str], None]]:
        """What each command of the registry does."""
        return {
            "help": lambda _: self.console.tell(*help_lines(PLAIN_COMMANDS)),
            "new": self.new,
            "open": self.open,
            "list": self.show_list,
            "rename": self.rename,
            "delete": lambda _: self.delete(),
            "undo": lambda _: self.undo(),
            "erase": lambda _: self.erase(),
            "pin": lambda _: self.file(filing.toggle_pin),
            "tag": lambda words: self.file(lambda store, each: filing.change_tags(store, each, words)),
            "archive": lambda _: self.file(filing.toggle_archive),
            "trash": self.show_trash,
            "search": self.search,
            "retry": lambda _: self.answer(self.talk.chat.regenerate(self.stored().id)),
            "continue": lambda _: self.answer(self.talk.chat.continue_answer(self.stored().id)),
            "system": self.system,
            "set": self.set,
            "model": self.model,
            "export": self.export,
            "stats": lambda _: self.stats(),
            "unload": lambda _: self.unload(),
            "queue": self.queue,
            "attach": self.attach,
            "find": self.find,
            "copy": self.show_answer,
            "edit": self.edit,
            "fork": self.fork,
            "branch": self.branch,
            "branches": lambda _: self.branches(),
            "prune": lambda _: self.prune(),
            "quit": lambda _: self.quit(),
        }

    def answer(self, turn: Turn) -> None:
        """Do a turn and print it; what the cache did goes to stderr."""
        finished, interrupted = follow(turn, Output(self.console.out, self.console.errors, streams=True))
        self.failed = bool(finished.error)
        self.console.note(*(f"[cache] {line}" for line in _numbers(finished, cache_lines)))
        self.console.note(*(f"[turn] {line}" for line in _numbers(finished, lambda numbers: [speed_line(numbers)])))
        if finished.message:
            self.console.note(finished.message)
        if interrupted or finished.state in {"cut", "stopped"}:
            self.console.note(f"[localkv] the answer is kept as it is ({finished.state}); /continue goes on with it")
        if finished.unsaved:
            self.console.note(f"[localkv] UNSAVED: {finished.unsaved}; it is tried again with the next message")

    def prepare(self) -> None:
        """Have the model loaded before the first question. A failure is told; the next question tries again."""
        bar = ProgressLine(self.console.errors)
        client = self.talk.client
        try:
            client.connect()
            request = Prepare(request=client.next_request(), model=self._model)
            ready = answer_to(client, request, Ready, progress=lambda reply: bar.say(progress_line(reply)))
            bar.end()
            self.console.note(f"[localkv] {ready.title} on {ready.device}", *ready.notes)
        except KeyboardInterrupt:
            self.console.note("[localkv] not waiting for the model; the first question does")
        except LocalKVError as error:
            self.console.note(str(error))
        finally:
            bar.end()

    def new(self, name: str) -> None:
        """Begin a new conversation; it is stored with its first question."""
        config = self.talk.config
        self.draft = Draft(config.model, config.sampling, config.chat.system, name, self.draft.private)
        self.opened = None
        self.console.note("[localkv] a new conversation" + (f': "{name}"' if name else ""))

    def open(self, name: str) -> None:
        """Go on with the conversation `name`; its last question and answer are shown."""
        self.opened = self.talk.find(name)
        path = self.talk.store.path(self.opened.id)
        for message in path[-2:]:
            self.console.tell(f"{'you' if message.role == 'user' else message.role}> {message.text}")
        self.console.note(f'[localkv] "{name}", {self.opened.n_messages} messages, {self.opened.model.name}')
        if self.opened.queue:
            self.console.note(
                f"[localkv] messages that wait: {len(self.opened.queue)}; /queue shows them, /queue send asks them"
            )

    def show_list(self, word: str) -> None:
        """Show all conversations, or those with `word` in name or title."""
        listed = (each for each in arranged(map(Line, self.talk.store.list())) if place_of(each.conversation) == "list")
        self._table([each.conversation for each in listed if each.has(word)])

    def show_trash(self, name: str) -> None:
        """Show what is in the trash, or bring `name` back from it."""
        if not name:
            self._table([each for each in self.talk.store.list(include_trashed=True) if place_of(each) == "trash"])
            return
        found = self.talk.store.by_name(name)
        self.talk.store.untrash(found.id)
        self.deleted = [each for each in self.deleted if each.id != found.id]
        self.open(name)

    def search(self, text: str) -> None:
        """Show messages of all conversations that have these words."""
        if not text:
            raise ConfigError(f"write /search and words of a message; filters narrow it: {FILTERS_HELP}")
        hits = self.talk.store.search(text, HITS)
        self.console.tell(*filing.hit_lines(hits, time.time()) or [filing.NOTHING_FOUND])

    def file(self, do: Callable[[ConversationStore, Conversation], str]) -> None:
        """Do something to this conversation as a whole, and say what."""
        self.console.note(f"[localkv] {do(self.talk.store, self.stored())}")
        self._refresh()

    def _table(self, conversations: Sequence[Conversation]) -> None:
        now = time.time()
        rows = [(each.name, format_age(now - each.updated), each.model.name, titled(each)) for each in conversations]
        print_table(rows, ("NAME", "AGE", "MODEL", "TITLE"), self.console.out) if rows else self.console.tell("none")

    def rename(self, title: str) -> None:
        """Give this conversation another title."""
        self.talk.store.rename(self.stored().id, title=title)
        self._refresh()

    def delete(self) -> None:
        """Move this conversation to the trash and begin a new one."""
        conversation = self.stored()
        self.talk.store.trash(conversation.id)
        self.deleted.append(conversation)
        self.new("")
        self.console.note(f'[localkv] "{conversation.name}" is in the trash; /undo brings it back')

    def erase(self) -> None:
        """Remove this conversation for good and begin a new one; a person is asked first."""
        conversation = self.stored()
        if not self.console.agrees(f'Remove "{conversation.name}" for good? [y/N] '):
            return
        logs = logs_only_in(self.talk.store, conversation.id)
        left = self.talk.store.erase(conversation.id)
        self.new("")
        self.console.note(f'[localkv] "{conversation.name}" is removed', *([f"[localkv] {left}"] if left else []))
        freed = forget_through(self.talk.client, logs)
        self.console.note(f"[localkv] its {freed.records} cached records are gone, too")

    def undo(self) -> None:
        """Bring back the conversation that was deleted last."""
        if not self.deleted:
            self.console.note("nothing was deleted")
            return
        match self.deleted.pop():
            case Conversation() as conversation:
                self.talk.store.untrash(conversation.id)
                self.open(conversation.name)
            case Message() as message:
                self.talk.store.bring_back(message.id)
                self.open(self.talk.store.get(message.conversation).name)

    def system(self, text: str) -> None:
        """Show the system prompt, or let the conversation begin with another one; what that costs is said, a person is asked."""
        if not text:
            self.console.tell((self.opened.system if self.opened else self.draft.system) or "no system prompt")
            return
        if self.opened is None:
            self.draft.system = text
            return
        self.console.note(f"[localkv] {price_of(self.path()).sentence()}")
        if self.console.agrees("Change the system prompt? [y/N] "):
            self.talk.store.set_system(self.opened.id, text)
            self._refresh()

    def set(self, argument: str) -> None:
        """Show how this conversation samples, or change one key of it."""
        key, _, value = argument.partition(" ")
        if not argument:
            self.console.tell(*(f"{name} = {show_setting(self._sampling, name)}" for name in LIMITS))
            return
        if not value and key != "stop":
            raise ConfigError("write /set KEY VALUE, such as: /set temperature 0.2")
        sampling = changed_setting(self._sampling, key, value)
        if self.opened is None:
            self.draft.sampling = sampling
        else:
            self.talk.store.set_sampling(self.opened.id, sampling)
            self._refresh()

    def model(self, name: str) -> None:
        """Show which model answers in this conversation, or let another one answer."""
        if not name:
            self.console.tell(self._model.name)
            return
        model = changed_model(self._model, {"name": name}, "/model")
        if self.opened is None:
            self.draft.model = model
        else:
            self.talk.store.set_model(self.opened.id, model)
            self._refresh()
        self.prepare()

    def export(self, path: str) -> None:
        """Write this conversation to a file."""
        self.console.note(f"[localkv] written: {export_open(self.talk.store, self.stored(), path)}")

    def stats(self) -> None:
        """Show what the engine holds and has saved."""
        client = self.talk.client
        client.connect()
        snapshot = answer_to(client, Look(request=client.next_request()), Snapshot, ANSWER_SECONDS)
        print_sections(sections(snapshot), self.console.out)

    def unload(self) -> None:
        """Have the engine let go of the model."""
        self.console.note(f"[localkv] {unload.sentence(unload_through(self.talk.client))}")

    def quit(self) -> None:
        """Leave; asks first if text would be lost. Raises _QuitError."""
        problem = self.talk.chat.retry_unsaved()
        if problem:
            self.console.note(f"[localkv] {len(self.talk.chat.unsaved)} conversation(s) cannot be saved: {problem}")
            said = self.console.read("Leave, and lose that text? [y/N] ")
            if said is not None and said.strip().lower() not in {"y", "yes"}:
                return
        raise _QuitError

    def ensure(self) -> Conversation:
        """The open conversation, stored now if it was not."""
        if self.opened is None:
            draft = self.draft
            name = draft.name or self.talk.free_name()
            self.opened = self.talk.store.create(
                name, model=draft.model, sampling=draft.sampling, system=draft.system, private=draft.private
            )
            kind = "private conversation" if draft.private else "conversation"
            self.console.note(f'[localkv] this {kind} is called "{name}"')
        return self.opened

    def _end(self) -> int:
        """Nobody is left to ask: save what can be saved; text that would be lost was told and makes the exit code 1."""
        problem = self.talk.chat.retry_unsaved()
        if problem:
            self.console.note(f"[localkv] not saved: {problem}")
        return 1 if problem or (self.failed and not self.console.source.isatty()) else 0

    def _refresh(self) -> None:
        self.opened = self.talk.store.get(self.stored().id)

    @property
    def _model(self) -> ModelSection:
        return self.opened.model if self.opened else self.draft.model

    @property
    def _sampling(self) -> SamplingSection:
        return self.opened.sampling if self.opened else self.draft.sampling


def run(setup: Setup, *, model: str | None, session: str | None, private: bool = False) -> int:
    """Chat on the standard streams; returns the exit code. Raises LocalKVError if it cannot begin."""
    with open_talk(setup) as talk:
        config = talk.config
        draft = Draft(config.model, config.sampling, config.chat.system, private=private)
        chat = PlainChat(talk, Console(sys.stdin, sys.stdout, sys.stderr), draft)
        begin(chat, model, session)
        chat.prepare()
        return chat.run()


def begin(chat: PlainChat, model: str | None, session: str | None) -> None:
    """Open `session`, or begin it if it is new; `model` is from now on the one that answers in it.

    Raises ConfigError, and UnknownConversation if it is in the trash.
    """
    if session is not None:
        if any(each.name == session for each in chat.talk.store.list(include_trashed=True)):
            chat.open(session)
        else:
            chat.draft.name = session
    if model is None:
        return
    if chat.opened is None:
        chat.draft.model = changed_model(chat.draft.model, {"name": model}, "--model")
    else:
        chat.talk.store.set_model(chat.opened.id, changed_model(chat.opened.model, {"name": model}, "--model"))
        chat.opened = chat.talk.store.get(chat.opened.id)


def _numbers(finished: Finished, lines: Callable[[Any], list[str]]) -> list[str]:
    return [] if finished.numbers is None else lines(finished.numbers)
