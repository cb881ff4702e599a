"""An engine inside the test process for the plain faces: the real service, and answers that say what the cache did."""

import contextlib

import msgspec

from localkv.config import ModelSection
from localkv.service.protocol import Fallback, Numbers, Source
from tests.service.conftest import LocalEngine
from tests.service.fakes import FakeRuntime

NUMBERS = Numbers(
    prompt_tokens=100, restored=Source(ram=60, ssd=30), prefilled_tokens=10, generated_tokens=2,
    fallbacks=(Fallback("evicted", 4),), exact=False, inexact_because="evicted", restore_seconds=0.25, ttft_ms=400.0,
    tokens_per_second=24.5,
)  # fmt: skip


class CountingRuntime(FakeRuntime):
    """Does what the script in the question says and counts as NUMBERS does; remembers what it was asked."""

    def __init__(self, **changes):
        super().__init__()
        self.numbers = msgspec.structs.replace(NUMBERS, **changes)
        self.requests = []
        self.flush_gate = None
        self.problem = ""

    def turn(self, request, emit, cancelled):
        self.requests.append(request)

        def counted(reply):
            if type(reply).__name__ == "Done":
                reply = msgspec.structs.replace(reply, numbers=self.numbers)
            emit(reply)

        super().turn(request, counted, cancelled)

    def flush(self, deadline_seconds):
        if self.flush_gate is not None:
            self.flush_gate.wait(30)
        return msgspec.structs.replace(super().flush(deadline_seconds), problem=self.problem)


@contextlib.contextmanager
def serving(home, runtime):
    """`runtime` answers below `home` until its last face has left."""
    home.prepare()
    engine = LocalEngine(home, runtime)
    try:
        yield runtime
    finally:
        runtime.gate.set()
        runtime.load_gate.set()
        engine.server.stop()
        engine.wait_end()


STARTER = ModelSection()
