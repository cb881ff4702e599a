"""Whose state the slot holds, and how it came to be there.

Torch-free. Thread: the engine's. A turn moves a conversation in; so may, before it is asked, what is done ahead (ahead.py). What is
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

    @property
    def is_typing(self) -> bool:
        return self.typed_from >= 0

    def move_in(self, conversation: str, plan: Plan, ground: Ground | None) -> None:
        """The state that `plan` gives is in the slot now, and is this conversation's."""
        self.mixed = (plan.live and self.mixed) or plan.mixes(ground)
        self.conversation, self.typed_from, self.origin = conversation, -1, None

    def move_out(self) -> None:
        """The slot holds nobody's state."""
        self.conversation, self.mixed, self.typed_from, self.origin = "", False, -1, None

    def begin_typing(self, plan: Plan) -> None:
        """From here on the slot takes what is typed; `plan` gave what is before it."""
        if not self.is_typing:
            self.typed_from, self.origin = plan.resume_at, plan

    def end_typing(self) -> None:
        """Nothing in the slot is unsent any more."""
        self.typed_from, self.origin = -1, None

    def told(self, plan: Plan) -> Plan:
        """`plan` as a turn would have made it had nothing been read ahead: what was lost then is lost, however early it was computed."""
        if not plan.live or self.origin is None:
            return plan
        return replace(plan, exact=self.origin.exact, because=self.origin.because, lost=self.origin.lost)

    def typed_tokens(self, plan: Plan) -> int:
        """How many of the tokens that `plan` goes on from were read while they were typed."""
        return max(0, plan.resume_at - self.typed_from) if plan.live and self.is_typing else 0
