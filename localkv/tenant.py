"""Whose state the slot holds, and how it came to be there.

Torch-free. Thread: the engine's; `head` is read by any. A turn moves a conversation in; so may, before it is asked, what is done ahead (ahead.py). What is
typed and not sent is in the slot from `typed_from` on. Its blocks have no names and no records: nothing of them can be saved, found
or shown before the message is sent, and what is sent otherwise was never there.
"""

from dataclasses import dataclass, replace

from localkv.placement.plan import Ground, Plan


@dataclass(slots=True)
class Tenant:
    """The conversation in the slot."""

    conversation: str = ""
    """Empty: none, or one that is typed and not stored yet."""
    mixed: bool = False
    """Some of its state was restored from records of another fingerprint."""
    typed_from: int = -1
    """The position from which on the slot holds what is typed and not sent; -1: nothing of that kind."""
    origin: Plan | None = None
    """How the state before what is typed came about."""
    parked: bool = False
    """The slot was emptied, to grow: what was typed went into records as far as it filled any, and comes back from there."""
    head: str = ""
    """The newest record of this conversation if its state, whole, is what the slot holds; empty while that is being changed."""

    @property
    def is_typing(self) -> bool:
        return self.typed_from >= 0

    def move_in(self, conversation: str, plan: Plan, ground: Ground | None) -> None:
        """The state that `plan` gives is in the slot now, and is this conversation's."""
        self.mixed = (plan.live and self.mixed) or plan.mixes(ground)
        self.conversation, self.head = conversation, ""
        self.end_typing()

    def move_out(self) -> None:
        """The slot holds nobody's state."""
        self.conversation, self.mixed, self.head = "", False, ""
        self.end_typing()

    def begin_typing(self, plan: Plan) -> None:
        """From here on the slot takes what is typed; `plan` gave what is before it."""
        if not self.is_typing:
            self.typed_from, self.origin = plan.resume_at, plan

    def end_typing(self) -> None:
        """Nothing in the slot is unsent any more."""
        self.typed_from, self.origin, self.parked = -1, None, False

    def told(self, plan: Plan) -> Plan:
        """`plan` as a turn would have made it had nothing been read ahead: what was lost then is lost, however early it was computed."""
        if self.origin is None or not self._goes_on_from(plan):
            return plan
        return replace(plan, exact=self.origin.exact, because=self.origin.because, lost=self.origin.lost)

    def typed_tokens(self, plan: Plan) -> int:
        """How many of the tokens that `plan` goes on from were read while they were typed."""
        return max(0, plan.resume_at - self.typed_from) if self._goes_on_from(plan) else 0

    def _goes_on_from(self, plan: Plan) -> bool:
        """Whether `plan` goes on from what was typed."""
        return self.is_typing and (plan.live or (self.parked and plan.resume_at > self.typed_from))
