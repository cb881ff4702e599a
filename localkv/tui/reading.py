"""Reading the open conversation: the cursor among its messages, what is done to one, words that are looked for, copying.

The half of the chat screen that begins nothing new. It knows widgets, Acts and the Stage, and no store. Thread: the UI's. The
row for words is made when it is first asked for.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from textual.widgets import Static

from localkv.errors import LocalKVError
from localkv.tui.acts import Acts, Pick
from localkv.tui.clean import one_line
from localkv.tui.clipboard import put
from localkv.tui.desk import Desk
from localkv.tui.entries import answer_text
from localkv.tui.panes import Panes
from localkv.tui.stage import Severity, Stage
from localkv.tui.transcript import Transcript

P = ParamSpec("P")
Screen = TypeVar("Screen", bound="Reading")


def refusing(action: Callable[Concatenate[Screen, P], None]) -> Callable[Concatenate[Screen, P], None]:
    """`action`, with a failure that localkv names shown as a notice."""

    @wraps(action)
    def guarded(self: Screen, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            action(self, *args, **kwargs)
        except LocalKVError as error:
            self.say(str(error), "error")

    return guarded


class Reading(Panes):
    """A screen on which a conversation is read."""

    desk: Desk
    stage: Stage
    acts: Acts

    def say(self, text: str, severity: Severity = "information", seconds: float = 6.0) -> None:
        """A notice; text is never markup."""
        self.notify(one_line(text), severity=severity, markup=False, timeout=2 * seconds if severity == "error" else seconds)

    def copy(self, text: str, what: str) -> None:
        """Put `text` on the clipboard and say so; `what` names it."""
        if not text:
            self.say(f"there is no {what} to copy")
            return
        put(self, self.copy_tool, text, what, self.say)

    def sign(self, text: str) -> None:
        """Put another sign before the composer."""
        self.query_one("#prompt", Static).update(text)

    # Messages

    @refusing
    def on_transcript_wish(self, event: Transcript.Wish) -> None:
        """Something to be done to a message."""
        event.stop()
        self.acts.fulfil(event.wish, event.entry)

    def on_transcript_left(self, event: Transcript.Left) -> None:
        """Below the last message is the composer."""
        event.stop()
        self.composer.focus()

    def action_message(self, step: int) -> None:
        """Move the cursor among messages."""
        self.transcript.focus()
        self.transcript.step_cursor(step)

    def action_copy_or_stop(self) -> None:
        """Copy what is selected; else stop the answer; else say how to leave."""
        text = self.get_selected_text() or self.composer.selected_text
        if text:
            self.copy(text, "selection")
        elif not self.stage.stop():
            self.say(self.keyed("[quit] leaves"))

    def action_copy_answer(self) -> None:
        """Copy the newest answer."""
        self.copy(answer_text(self.transcript.entries), "answer")

    def leave_message(self) -> bool:
        """Leave the question that is being edited, or the message under the cursor; whether there was one."""
        if self.acts.leave_edit():
            self.composer.focus()
            return True
        if self.focused is self.transcript and self.transcript.chosen is not None:
            self.transcript.choose("")
            self.composer.focus()
            return True
        return False

    @refusing
    def action_branches(self) -> None:
        """Every path through the open conversation."""
        from localkv.tui.brancher import Brancher

        def done(pick: Pick | None) -> None:
            if pick is not None:
                self.take_branch(pick)

        branches = self.desk.store.branches(self.desk.key) if self.desk.key else []
        if len(branches) < 2:
            self.say(
                self.keyed("this conversation has one branch; [message.retry] or [message.edit] on a message makes another")
            )
            return
        self.app.push_screen(Brancher(self._palette, branches, self.desk.clock()), done)

    @refusing
    def take_branch(self, pick: Pick) -> None:
        """What was chosen among the branches."""
        self.acts.take_branch(pick)

    # Words

    def action_find_text(self, words: str = "") -> None:
        """Look for words in the open conversation."""
        from localkv.tui.findbar import FindBar

        for bar in self.query(FindBar):
            bar.look_for(words)
            return
        bar = FindBar(self.transcript.find, self.transcript.find_next)
        self.query_one("#main").mount(bar, before="#writing")
        self.call_after_refresh(bar.look_for, words)

    def on_find_bar_closed(self) -> None:
        """Back to writing; the view stays where the words were."""
        self.leave_find()

    @property
    def finds(self) -> bool:
        """Whether words are looked for."""
        return any(bar.display for bar in self.query("#find"))

    def leave_find(self) -> None:
        """Look for no words any more and go on writing; the view stays where they were."""
        self.close_find()
        self.composer.focus()

    def close_find(self) -> None:
        """Look for no words any more; the focus stays, unless it was there."""
        if self.finds:
            self.transcript.find("")
        for bar in self.query("#find"):
            bar.display = False  # at once; it is taken out with the next messages
            bar.remove()
