"""What a face sees of a turn, in the order of the turn: frozen events, some of them the engine's own replies.

Asked, then any of Progress, Started, Delta, Unsaved, Saved, EngineRestarted, and Finished at the end.
"""

from dataclasses import dataclass

from localkv.chat.tree import State
from localkv.service.protocol import Delta, Numbers, Progress, Started, StopReason


@dataclass(frozen=True, slots=True)
class Asked:
    """The question is stored and its answer is begun. The ids are None while the database refuses writes."""

    question_id: str | None
    answer_id: str | None


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The database refuses writes; the answer goes on and saving is tried again."""

    problem: str


@dataclass(frozen=True, slots=True)
class Saved:
    """What was unsaved is saved now."""


@dataclass(frozen=True, slots=True)
class EngineRestarted:
    """The engine died during this turn and another one is up. `repeated`: it is asked the same again, by itself."""

    problem: str
    repeated: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a turn. `error` is a class name of errors.py if it did not end well."""

    state: State
    text: str
    ids: bytes
    question_id: str | None
    answer_id: str | None
    reason: StopReason | None = None
    numbers: Numbers | None = None
    error: str = ""
    message: str = ""
    unsaved: str = ""
    """Why the database does not have it; empty if it does."""


TurnEvent = Asked | Progress | Started | Delta | Unsaved | Saved | EngineRestarted | Finished
