"""Screens over the chat that are left once.

Keys come faster than screens go: a second Enter or Esc reaches a screen that has given its answer. Textual would give the answer
again, and take the next screen away, or end with an error because there is none. Thread: the UI's.
"""

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import Screen

Answer = TypeVar("Answer")


class Once(Screen[Answer]):
    """A screen whose first answer counts."""

    answered = False

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Give the answer and go; afterwards, or beneath another screen, nothing."""
        if self.answered or self.app.screen is not self:
            return AwaitComplete()
        self.answered = True
        return super().dismiss(result)
