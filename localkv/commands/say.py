"""`localkv say`: one question in a named conversation, its answer on standard output as it streams.

Made for scripts: with --json exactly one JSON document comes at the end, also if the turn failed. When the command
returns, text and (if no other face is open) cache are durable. Thread: main.
"""

import contextlib
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from localkv.chat.attachments import read_attachment, with_files
from localkv.chat.tree import Conversation
from localkv.commands.output import ProgressLine, for_stream, print_json, say_to
from localkv.commands.sentences import plan_line, progress_line
from localkv.commands.setup import Setup
from localkv.commands.talk import Talk, changed_model, changed_sampling, interruptible, open_talk
from localkv.errors import ConfigError, ConversationExists, UnknownConversation
from localkv.kv.record import unpack_ids
from localkv.models.reference import STARTER, locate
from localkv.service.protocol import Delta, Numbers, Progress, Started
from localkv.service.turn_events import EngineRestarted, Finished, TurnEvent, Unsaved
from localkv.service.turns import Turn

INTERRUPTED = 130
_SOURCE = "the command line"


@dataclass(frozen=True, slots=True)
class Wish:
    """The command line. None: as the conversation has it, or as the settings say."""

    text: str
    session: str
    new: bool = False
    system: str | None = None
    model: str | None = None
    quant: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    private: bool = False
    attach: tuple[str, ...] = ()
    """Files that go with the message."""

    @property
    def model_changes(self) -> dict[str, Any]:
        return _given(name=self.model, quant=self.quant)

    @property
    def sampling_changes(self) -> dict[str, Any]:
        return _given(max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed)


FORETOLD_SECONDS = 0.5
"""Shorter waits are over before their forecast is read."""


@dataclass(slots=True)
class Output:
    """Where a turn's events go: text to `out`, all else to `errors`."""

    out: TextIO
    errors: TextIO
    streams: bool
    ends_line: bool = True

    def show(self, event: TurnEvent, bar: ProgressLine) -> None:
        """Print what is to be seen of `event`."""
        match event:
            case Delta() if self.streams:
                bar.end()
                self.out.write(for_stream(event.text, self.out))
                self.out.flush()
                self.ends_line = event.text.endswith("\n") if event.text else self.ends_line
            case Progress():
                bar.say(progress_line(event))
            case Started() if event.restore_seconds + event.prefill_seconds >= FORETOLD_SECONDS:
                bar.end()
                say_to(self.errors, f"[plan] {plan_line(event)}")
            case Unsaved():
                say_to(self.errors, f"[localkv] UNSAVED: {event.problem}")
            case EngineRestarted():
                again = "the question is asked again" if event.repeated else "the answer so far is kept"
                say_to(self.errors, f"[localkv] {event.problem}; {again}")

    def finish(self) -> None:
        """End the last line."""
        if not self.ends_line:
            self.out.write("\n")
            self.out.flush()
            self.ends_line = True


def run(setup: Setup, wish: Wish, *, as_json: bool) -> int:
    """Say it; returns the exit code. Raises ConfigError, UnknownConversation, ConversationExists, UnusableFile, other LocalKVErrors."""
    text = sys.stdin.read() if wish.text == "-" else wish.text
    if not text.strip():
        raise ConfigError('there is nothing to say; give a text, or "-" and the text on standard input')
    text = with_files([read_attachment(path) for path in wish.attach], text)
    with open_talk(setup) as talk:
        conversation = choose(talk, wish)
        turn = talk.chat.ask(conversation.id, text)
        finished, interrupted = follow(turn, Output(sys.stdout, sys.stderr, streams=not as_json))
        unsaved = talk.chat.retry_unsaved() if finished.unsaved else ""
        if as_json:
            print_json(document(wish.session, finished))
        for problem in filter(None, (finished.message, unsaved and f"the answer is not saved: {unsaved}")):
            say_to(sys.stderr, f"localkv: {problem}")
    if interrupted:
        return INTERRUPTED
    return 1 if finished.error or unsaved else 0


def choose(talk: Talk, wish: Wish) -> Conversation:
    """The conversation to speak in, made if --new, with what the command line changes. Raises ConfigError and others."""
    if wish.new:
        return _begin(talk, wish)
    if wish.system is not None:
        raise ConfigError("--system belongs to a new conversation; give --new too, and a name that is not taken")
    conversation = _known(talk, wish.session)
    if wish.private and not conversation.private:
        raise ConfigError("--private belongs to a new conversation; give --new too, and a name that is not taken")
    model = changed_model(conversation.model, wish.model_changes, _SOURCE)
    sampling = changed_sampling(conversation.sampling, wish.sampling_changes, _SOURCE)
    if model != conversation.model:
        talk.store.set_model(conversation.id, model)
    if sampling != conversation.sampling:
        talk.store.set_sampling(conversation.id, sampling)
    return talk.store.get(conversation.id)


def follow(turn: Turn, output: Output) -> tuple[Finished, bool]:
    """Do the turn; how it ended, and whether Ctrl+C was pressed. The first stops the answer and keeps what has come."""
    finished: Finished | None = None
    bar = ProgressLine(output.errors)
    with interruptible(turn) as interrupt, contextlib.closing(events_of(turn)) as events:
        try:
            for event in events:
                output.show(event, bar)
                if isinstance(event, Finished):
                    finished = event
        finally:
            bar.end()
            output.finish()
    assert finished is not None, "a turn ends with Finished"
    return finished, interrupt.happened


def document(session: str, finished: Finished) -> dict[str, Any]:
    """What --json prints. Restored and prefilled tokens add up to prompt_tokens, always."""
    numbers = finished.numbers or Numbers(exact=False, inexact_because=finished.error or "cancelled")
    answer: dict[str, Any] = {
        "session": session,
        "answer": finished.text,
        "answer_ids": unpack_ids(finished.ids),
        "prompt_tokens": numbers.prompt_tokens,
        "restored_tokens": {tier: getattr(numbers.restored, tier) for tier in ("slot", "vram", "ram", "ssd")},
        "prefilled_tokens": numbers.prefilled_tokens,
        "generated_tokens": numbers.generated_tokens,
        "fallbacks": msgspec.to_builtins(numbers.fallbacks),
        "ttft_ms": numbers.ttft_ms,
        "tokens_per_second": numbers.tokens_per_second,
        "exact": numbers.exact,
        "inexact_because": numbers.inexact_because,
        "stop_reason": finished.reason or finished.state,
    }
    if finished.error:
        answer |= {"error": finished.error, "message": finished.message}
    return answer


def _known(talk: Talk, name: str) -> Conversation:
    try:
        talk.store.by_name(name)
    except UnknownConversation as error:
        raise UnknownConversation(f"{error}; --new begins one") from error
    return talk.find(name)


def _begin(talk: Talk, wish: Wish) -> Conversation:
    if any(each.name == wish.session for each in talk.store.list(include_trashed=True)):
        raise ConversationExists(f'there is a conversation "{wish.session}" already; leave out --new to go on with it')
    model = changed_model(talk.config.model, wish.model_changes, _SOURCE)
    if model.name != STARTER:
        locate(model.name, talk.setup.home.models_dir)  # before a conversation is made that could not be begun again
    sampling = changed_sampling(talk.config.sampling, wish.sampling_changes, _SOURCE)
    system = talk.config.chat.system if wish.system is None else wish.system
    return talk.store.create(wish.session, model=model, sampling=sampling, system=system, private=wish.private)


def events_of(turn: Turn) -> Generator[TurnEvent, None, None]:
    """The turn's events; closing this stops the answer."""
    yield from turn.run()


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
