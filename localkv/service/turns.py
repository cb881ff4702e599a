"""The face's side of one turn: what is asked, stored, sent, streamed and stored again. The same for every face.

Torch-free; talks to the engine through the client only. Threads: a Turn runs where its generator is iterated, and may be
cancelled from anywhere. Invariants: the question is durable before the engine gets it; what has arrived of an answer is
stored at least once a second, with its ids; a database that refuses writes stops no answer; an engine's death costs the
rest of the answer and nothing of what has arrived; a request that has killed two engines is not sent to a third.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import msgspec

from localkv.chat.store import ConversationStore
from localkv.chat.thoughts import ThoughtMeter
from localkv.chat.tree import Conversation, Message, State, well_formed
from localkv.config import MOST, SamplingSection
from localkv.errors import ConversationError, EngineError, EngineUnavailable, NotWritable, PathError, UnknownConversation
from localkv.kv.record import ID_BYTES, Head
from localkv.service.client import EngineClient
from localkv.service.entry import Entry
from localkv.service.protocol import (
    AnyReply,
    Cancel,
    Delta,
    Done,
    Failed,
    Line,
    Numbers,
    Progress,
    Started,
    StopReason,
    Submit,
)
from localkv.service.turn_events import Asked, EngineRestarted, Finished, Saved, TurnEvent, Unsaved

CHECKPOINT_SECONDS = 1.0
_MAX_SENDS = 2
_STATES: dict[StopReason, State] = {
    "end": "complete",
    "stop_string": "complete",
    "max_tokens": "stopped",
    "context_full": "stopped",
    "cancelled": "stopped",
    "failed": "failed",
}
"""An answer that met a limit is not complete: it can be continued."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line on the path to the question, and where its ids go if the engine renders it differently."""

    line: Line
    head: Head | None
    keep_ids: Callable[[bytes], None]


class Chat:
    """Makes turns, and remembers which of them the database does not have yet."""

    def __init__(self, store: ConversationStore, client: EngineClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._unsaved: list[Entry] = []

    @property
    def unsaved(self) -> tuple[str, ...]:
        """The conversations that would lose text if this process ended now; a face asks before it quits."""
        with self._lock:
            return tuple(dict.fromkeys(entry.conversation for entry in self._unsaved))

    def retry_unsaved(self) -> str:
        """Try to save what is not saved; empty if nothing is left, else why the database refuses."""
        with self._lock:
            entries = tuple(self._unsaved)
        problems = [self.save(entry) for entry in entries]
        return next(filter(None, problems), "")

    def ask(self, conversation_id: str, text: str) -> "Turn":
        """A turn that asks `text` below the message that the person looks at. Raises UnknownConversation."""
        conversation = self._store.get(conversation_id)
        after = self._newest_unsaved(conversation_id) or conversation.leaf
        entry = Entry(self._store, conversation_id, after=after, question=well_formed(text))
        return self._turn(conversation, entry, conversation.sampling)

    def edit(self, conversation_id: str, message_id: str, text: str) -> "Turn":
        """A turn that asks `text` instead of the question `message_id`, on a branch of its own."""
        conversation = self._store.get(conversation_id)
        after = self._store.message(message_id).parent
        entry = Entry(self._store, conversation_id, after=after, question=well_formed(text))
        return self._turn(conversation, entry, conversation.sampling)

    def regenerate(self, conversation_id: str) -> "Turn":
        """A turn that answers the last question again, as a sibling of the answer it has. Raises ConversationError."""
        conversation, path = self._saved_path(conversation_id)
        if path and path[-1].role == "assistant":
            path.pop()
        if not path or path[-1].role != "user":
            raise ConversationError(f'"{conversation.name}" has no question that could be answered again')
        question = path[-1].id
        tries = len(self._store.children(question, conversation_id))
        # Draws follow from seed and position alone: with the same seed the same answer would come again.
        sampling = msgspec.structs.replace(conversation.sampling, seed=(conversation.sampling.seed + tries) % MOST)
        return self._turn(conversation, Entry(self._store, conversation_id, after=question), sampling)

    def continue_answer(self, conversation_id: str) -> "Turn":
        """A turn that goes on with the last answer where it stands. Raises ConversationError."""
        conversation, path = self._saved_path(conversation_id)
        if not path or path[-1].role != "assistant":
            raise ConversationError(f'"{conversation.name}" does not end in an answer that could be continued')
        entry = Entry(self._store, conversation_id, after=path[-1].parent, resumed=path[-1])
        return self._turn(conversation, entry, conversation.sampling)

    def save(self, entry: Entry) -> str:
        """Save `entry`, or remember that it is not saved and return why."""
        problem = ""
        try:
            entry.save()
        except ConversationError as error:
            problem = str(error)
            lost = isinstance(error, UnknownConversation)  # erased elsewhere: there is nowhere to save it
        with self._lock:
            if problem and not lost and entry not in self._unsaved:
                self._unsaved.append(entry)
            elif (not problem or lost) and entry in self._unsaved:
                self._unsaved.remove(entry)
        return problem

    def forks_at(self, head: Head, entry: Entry) -> bool:
        """Whether another branch or conversation goes on from `head`, the newest above the answer of `entry`: its record is
        still wanted then.
        """
        if self._store.is_forked(head):
            return True
        if entry.question_id is None:
            return False
        path = self._store.path(entry.conversation, entry.question_id)
        newest = max((i for i, message in enumerate(path) if message.head is not None), default=len(path))
        return any(len(self._store.children(message.id, entry.conversation)) > 1 for message in path[newest:])

    def steps(self, entry: Entry) -> list[Step]:
        """The path from the root to what `entry` asks: from the database, then from entries that are not there yet."""
        waiting: list[Entry] = []
        before = entry.after
        while isinstance(before, Entry):
            if before.saved:
                before = before.answer_id
            else:
                waiting.append(before)
                before = before.after
        path = [] if before is None else self._store.path(entry.conversation, before)
        steps = [_stored_step(message, entry) for message in path]
        for each in reversed(waiting):
            steps += _question_steps(each)
            steps.append(_answer_step(each))
        steps += _question_steps(entry)
        return [*steps, _answer_step(entry)] if entry.resumes else steps

    def _turn(self, conversation: Conversation, entry: Entry, sampling: SamplingSection) -> "Turn":
        return Turn(self, self._client, conversation, entry, sampling, self._clock)

    def _newest_unsaved(self, conversation_id: str) -> Entry | None:
        with self._lock:
            return next((entry for entry in reversed(self._unsaved) if entry.conversation == conversation_id), None)

    def _saved_path(self, conversation_id: str) -> tuple[Conversation, list[Message]]:
        """Conversation and path, once everything in it is saved. Raises NotWritable."""
        if conversation_id in self.unsaved and (problem := self.retry_unsaved()):
            raise NotWritable(f"the last answer is not saved yet: {problem}")
        return self._store.get(conversation_id), self._store.path(conversation_id)


class Turn:
    """One question on its way to its answer."""

    def __init__(
        self,
        chat: Chat,
        client: EngineClient,
        conversation: Conversation,
        entry: Entry,
        sampling: SamplingSection,
        clock: Callable[[], float],
    ) -> None:
        self.conversation = conversation
        self._chat = chat
        self._client = client
        self._entry = entry
        self._sampling = sampling
        self._clock = clock
        self._steps: list[Step] = []
        self._request: int | None = None
        self._cancelled = False
        self._streamed = False
        self._problem = ""
        self._checkpoint_at = 0.0
        self._thinking = ThoughtMeter()

    def run(self) -> Iterator[TurnEvent]:
        """Do the turn; blocks between events. Abandoning the iterator stops the answer and keeps what has arrived."""
        try:
            yield from self._save()
            yield Asked(self._entry.question_id, self._entry.answer_id)
            yield from self._answer()
        finally:
            if self._entry.state == "streaming":
                self._abandon()

    def cancel(self) -> None:
        """Stop within one prefill chunk or token; what has arrived stays. Any thread; never blocks."""
        self._cancelled = True
        if self._request is not None:
            self._client.send(Cancel(request=self._client.next_request(), target=self._request))

    def give_up(self) -> None:
        """Stop waiting for an engine that does not even react to `cancel`. Any thread; never blocks."""
        self.cancel()
        if self._request is not None:
            self._client.give_up(self._request)

    def _answer(self) -> Iterator[TurnEvent]:
        self._steps = self._chat.steps(self._entry)
        for sends_left in reversed(range(_MAX_SENDS)):
            death = yield from self._send_once()
            if death is None:
                return
            if self._streamed or self._cancelled or not sends_left:
                yield from self._survive(death)
                return
            yield from self._restart(death, repeated=True)

    def _send_once(self) -> Generator[TurnEvent, None, Failed | None]:
        """Ask the engine and follow it to the end of the answer. Returns the reply that says it died, if it did."""
        try:
            self._client.connect()
            if self._cancelled:
                yield from self._finish("stopped")
                return None
            request = self._client.next_request()
            self._client.send(self._submit(request))
        except (EngineError, PathError) as error:
            yield from self._finish("failed", error=type(error).__name__, message=str(error))
            return None
        self._request = request
        if self._cancelled:  # while it was on its way
            self.cancel()
        while (reply := self._client.next_reply(request, self._seconds_to_checkpoint())) is None or not _is_end(reply):
            yield from self._follow(reply)
        self._request = None
        return (yield from self._conclude(reply))

    def _submit(self, request: int) -> Submit:
        heads = [step.head for step in self._steps if step.head is not None]
        return Submit(
            request=request,
            conversation=self.conversation.id,
            model=self.conversation.model,
            lines=tuple(step.line for step in self._steps),
            sampling=self._sampling,
            private=self.conversation.private,
            resident=self.conversation.pinned,
            head=heads[-1] if heads else None,
            keep_head=bool(heads) and self._chat.forks_at(heads[-1], self._entry),
        )

    def _follow(self, reply: AnyReply | None) -> Iterator[TurnEvent]:
        match reply:
            case Delta():
                self._streamed = True
                self._entry.append(reply.text, reply.ids)
                self._thinking.take(self._entry.text, len(reply.text), len(reply.ids) // ID_BYTES, self._clock())
                yield reply
            case Started():
                for step, ids in zip(self._steps, reply.line_ids, strict=False):
                    if ids != step.line.ids:
                        step.keep_ids(ids)
                yield reply
            case Progress():
                yield reply
        if self._clock() >= self._checkpoint_at:
            yield from self._save()

    def _conclude(self, reply: AnyReply) -> Generator[TurnEvent, None, Failed | None]:
        match reply:
            case Done():
                self._entry.replace(reply.text, reply.ids)
                self._entry.head = reply.head or self._entry.head
                yield from self._finish(_STATES[reply.reason], reason=reply.reason, numbers=self._with_thoughts(reply.numbers))
            case Failed(error="EngineDied"):
                return reply
            case Failed(error="Cancelled"):
                yield from self._finish("stopped", reason="cancelled")
            case Failed():
                yield from self._finish("failed", error=reply.error, message=reply.message)
        return None

    def _with_thoughts(self, numbers: Numbers) -> Numbers:
        """`numbers` with what was thought, in an answer that went on what was thought before, too."""
        tokens, seconds = self._thinking.so_far(self._entry.text)
        before = self._entry.thought_before
        return msgspec.structs.replace(numbers, thought_tokens=tokens + before[0], thought_seconds=seconds + before[1])

    def _survive(self, death: Failed) -> Iterator[TurnEvent]:
        """The engine died and this turn ends with what has arrived: store that first, then care for the engine."""
        state: State = "stopped" if self._cancelled else "cut"
        self._entry.finish(state)
        yield from self._save()
        yield from self._restart(death, repeated=False)
        yield from self._finish(state, error=death.error, message=death.message)

    def _restart(self, death: Failed, *, repeated: bool) -> Iterator[TurnEvent]:
        try:
            self._client.restart()
        except (EngineUnavailable, PathError):
            return  # said when it is needed: by this turn if it is repeated, else by the next one
        yield EngineRestarted(death.message, repeated)

    def _finish(
        self,
        state: State,
        *,
        reason: StopReason | None = None,
        numbers: Numbers | None = None,
        error: str = "",
        message: str = "",
    ) -> Iterator[TurnEvent]:
        entry = self._entry
        entry.finish(state, numbers=None if numbers is None else msgspec.to_builtins(numbers))
        yield from self._save()
        yield Finished(
            state, entry.text, entry.ids, entry.question_id, entry.answer_id, reason, numbers, error, message, self._problem
        )

    def _save(self) -> Iterator[TurnEvent]:
        began = self._clock()
        problem = self._chat.save(self._entry)
        ended = self._clock()
        # A locked database is waited for at each try: the answer must flow most of the time.
        self._checkpoint_at = ended + max(CHECKPOINT_SECONDS, 4 * (ended - began) if problem else 0.0)
        if problem and problem != self._problem:
            yield Unsaved(problem)
        elif self._problem and not problem:
            yield Saved()
        self._problem = problem

    def _seconds_to_checkpoint(self) -> float | None:
        return None if self._entry.saved else max(0.0, self._checkpoint_at - self._clock())

    def _abandon(self) -> None:
        """The face does not listen any more."""
        self.cancel()
        if self._request is not None:
            self._client.forget(self._request)
        self._entry.finish("stopped")
        self._chat.save(self._entry)


def _is_end(reply: AnyReply) -> bool:
    return isinstance(reply, Done | Failed)


def _stored_step(message: Message, entry: Entry) -> Step:
    line = Line(role=message.role, text=message.text, ids=message.ids)
    return Step(line, message.head, lambda ids: entry.set_ids(message.id, ids))


def _question_steps(entry: Entry) -> list[Step]:
    if entry.question is None:
        return []
    return [Step(Line(role="user", text=entry.question, ids=entry.question_ids), None, entry.set_question_ids)]


def _answer_step(entry: Entry) -> Step:
    line = Line(role="assistant", text=entry.text, ids=entry.ids)
    return Step(line, entry.head, lambda ids: entry.replace(entry.text, ids))
