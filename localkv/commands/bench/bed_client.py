"""The test bed of benches that measure what a face sees: a real client, and an engine process of its own in a scratch home.

Torch-free. Thread: main. The clock runs in the face: from sending Submit to receiving the first Delta.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from localkv.config import Config, ModelSection, SamplingSection
from localkv.errors import EngineDied
from localkv.kv.record import Head
from localkv.paths import Home
from localkv.service.client import EngineClient
from localkv.service.protocol import Delta, Done, Failed, Line, Look, Prepare, Snapshot, Started, Submit

MODEL = ModelSection()
WAIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn as a face saw it."""

    first_delta_s: float
    sent_at: float
    """Wall clock."""
    lines: tuple[Line, ...]
    """The conversation with its answer, as it is stored."""
    done: Done

    @property
    def head(self) -> Head | None:
        return self.done.head


@contextmanager
def open_client(home: Home, config: Config) -> Iterator[EngineClient]:
    """A client of an engine with the starter model loaded, which ends with it."""
    client = EngineClient(home, config)
    client.connect()
    try:
        prepare = Prepare(request=client.next_request(), model=MODEL)
        client.send(prepare)
        list(client.replies(prepare.request, WAIT_SECONDS))
        yield client
    finally:
        client.leave(WAIT_SECONDS)


def ask(client: EngineClient, conversation: str, lines: Sequence[Line], head: Head | None, n_tokens: int = 1) -> Asked:
    """One greedy turn. Raises EngineDied if there is no answer."""
    submit = Submit(
        request=client.next_request(), conversation=conversation, model=MODEL, lines=tuple(lines), head=head, keep_head=True,
        sampling=SamplingSection(temperature=0, max_tokens=n_tokens),
    )  # fmt: skip
    sent_at, began, first, fed = time.time(), time.perf_counter(), 0.0, tuple(lines)
    client.send(submit)
    for reply in client.replies(submit.request, WAIT_SECONDS):
        match reply:
            case Started():
                fed = tuple(
                    Line(role=line.role, text=line.text, ids=ids) for line, ids in zip(lines, reply.line_ids, strict=True)
                )
            case Delta():
                first = first or time.perf_counter() - began
            case Done():
                answer = Line(role="assistant", text=reply.text, ids=reply.ids)
                return Asked(first, sent_at, (*fed, answer), reply)
            case Failed():
                raise EngineDied(f"the measured turn failed: {reply.message}")
    raise EngineDied("the measured turn was not answered")


def look(client: EngineClient) -> Snapshot:
    """What the engine says of itself now."""
    request = Look(request=client.next_request())
    client.send(request)
    *_, snapshot = client.replies(request.request, WAIT_SECONDS)
    assert isinstance(snapshot, Snapshot)
    return snapshot


def wait_for_saves(client: EngineClient) -> None:
    """Until all records are on SSD."""
    while look(client).unsaved_records:
        time.sleep(0.05)
