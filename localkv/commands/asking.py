"""A question to an engine that is started if none runs; how far it is stands on one line of stderr. Thread: main."""

import sys
from collections.abc import Callable
from typing import TypeVar

from localkv.commands.output import ProgressLine
from localkv.commands.sentences import progress_line
from localkv.commands.setup import Setup
from localkv.config import Config
from localkv.service.answers import answer_to
from localkv.service.client import EngineClient
from localkv.service.protocol import AnyRequest, Reply

_LEAVE_SECONDS = 15.0

R = TypeVar("R", bound=Reply)


def ask_engine(setup: Setup, config: Config, question: Callable[[int], AnyRequest], wanted: type[R], seconds: float) -> R:
    """The answer to `question`, which is given its request id. Each sign of life starts `seconds` anew.

    Raises LocalKVError if the engine cannot start, load the model, or answer.
    """
    client = EngineClient(setup.home, config)
    client.connect()
    bar = ProgressLine(sys.stderr)
    try:
        request = question(client.next_request())
        return answer_to(client, request, wanted, seconds, progress=lambda reply: bar.say(progress_line(reply)))
    finally:
        bar.end()
        client.leave(_LEAVE_SECONDS)
