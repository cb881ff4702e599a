"""What is done to messages of the open conversation: copied, asked in other words, answered again, gone on with, forked,
looked at in another version, taken away and brought back.

Between the transcript, which knows the message under the cursor, and the stage, which changes the conversation. Nothing here
destroys anything: another wording or answer is a version beside the old one, and what is taken away comes back. Thread: the
UI's. Refusals are LocalKVErrors for the caller to show.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from localkv.chat.thoughts import answer_of
from localkv.chat.tree import Message
from localkv.errors import ConversationError
from localkv.tui.composer import Composer
from localkv.tui.entries import first_line
from localkv.tui.pages import Entry
from localkv.tui.stage import Say, Stage
from localkv.tui.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Editing:
    """A question that is being written anew in the composer."""

    question: str
    draft: str
    """What the composer goes back to."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How acts reach the screen: a notice, the clipboard, another conversation, another sign before the composer, names of keys."""

    say: Say
    copy: Callable[[str, str], None]
    open: Callable[[str], None]
    sign: Callable[[str], None]
    keyed: Callable[[str], str]
    """A text with keys in the place of the [id] of what they do."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A branch, by the message that it ends in, and what is to become of it."""

    leaf: str
    wish: Literal["look", "take away", "keep alone"] = "look"


class Acts:
    """Acts on messages, and the two things they remember: what is being edited, and which block of code was copied."""

    def __init__(self, stage: Stage, transcript: Transcript, composer: Composer, reach: Reach) -> None:
        self._stage = stage
        self._transcript = transcript
        self._composer = composer
        self._reach = reach
        self._copied: tuple[str, int] = ("", 0)
        self.editing: Editing | None = None

    def fulfil(self, wish: str, entry: Entry) -> None:
        """Do to `entry` what a key asks for. Raises LocalKVError."""
        acts: dict[str, Callable[[Entry], None]] = {
            "fold": lambda each: self._transcript.fold(each.id),
            "copy": self.copy,
            "code": lambda each: self.copy_code(each, 0),
            "edit": lambda each: self.edit(self._question_of(each)),
            "retry": self.retry,
            "continue": self.resume,
            "fork": lambda each: self.fork(each.id),
            "previous": lambda each: self.step_version(each.id, -1),
            "next": lambda each: self.step_version(each.id, 1),
            "delete": lambda each: self.take_away(each.id),
            "undo": lambda _: self._undo(),
        }
        acts[wish](entry)

    # Copying

    def copy(self, entry: Entry) -> None:
        """Copy what is shown of it: the answer, and its thoughts if they are unfolded."""
        is_folded = entry.role == "assistant" and not entry.unfolded
        self._reach.copy(answer_of(entry.text) if is_folded else entry.text, "message")

    def copy_code(self, entry: Entry, n: int) -> None:
        """Copy block `n` of the code in it; 0 is the one after the block that was copied last."""
        from localkv.commands.blocks import code_blocks  # a parser of Markdown: not needed for the first frame

        blocks = code_blocks(entry.text)
        if not blocks:
            self._reach.say("there is no code in this message", "information")
            return
        if n == 0:
            message, last = self._copied
            n = last % len(blocks) + 1 if message == entry.id else 1
        if n > len(blocks):
            raise ConversationError(f"this message has {len(blocks)} blocks of code; write a number up to that")
        self._copied = (entry.id, n)
        self._reach.copy(blocks[n - 1], f"code {n}/{len(blocks)}")

    # Asking again

    def edit(self, question: Message) -> None:
        """Put a question into the composer; sent, it is a new version beside the old one."""
        self.refuse_while_busy()
        draft = self.editing.draft if self.editing is not None else self._composer.draft
        self.editing = Editing(question.id, draft)
        self._composer.load(question.text)
        self._show_editing(
            "edit>", self._reach.keyed("enter asks this beside the old question   [cancel] leaves it as it was")
        )
        self._composer.focus()

    def leave_edit(self) -> bool:
        """Give the composer its draft back; whether something was being edited."""
        if self.editing is None:
            return False
        self._composer.begin(self.editing.draft, self._composer.past)
        self.editing = None
        self._show_editing(">", "")
        return True

    def _show_editing(self, sign: str, hint: str) -> None:
        self._reach.sign(sign)
        self._stage.hint = hint
        self._stage.show_facts()

    def send_edit(self, text: str) -> bool:
        """Ask the edited question; whether one was being edited. Raises LocalKVError."""
        if self.editing is None:
            return False
        self.ask_instead(self.editing.question, text)
        self.leave_edit()
        return True

    def ask_instead(self, question: str, text: str) -> None:
        """Ask `text` beside the question with this id. Raises LocalKVError."""
        self.refuse_while_busy()
        self._stage.edit(question, text)

    def edit_to(self, entry: Entry, text: str) -> None:
        """Ask `text` beside the question that `entry` is or answers. Raises LocalKVError."""
        self.ask_instead(self._question_of(entry).id, text)

    def retry(self, entry: Entry) -> None:
        """Answer a question again, or the question of an answer. Raises LocalKVError."""
        self.refuse_while_busy()
        self._stage.desk.end_at(self._question_of(entry).id)
        self._leave_cursor()
        self._stage.retry()

    def resume(self, entry: Entry) -> None:
        """Go on with an answer where it ends. Raises LocalKVError."""
        self.refuse_while_busy()
        if entry.role != "assistant":
            raise ConversationError(self._reach.keyed("only an answer can be gone on with; choose one with [message.up]"))
        self._stage.desk.end_at(entry.id)
        self._leave_cursor()
        self._stage.resume()

    def _leave_cursor(self) -> None:
        self._transcript.choose("")
        self._composer.focus()

    # Branches

    def fork(self, message: str, name: str = "") -> None:
        """Go on from a message in a new conversation that shares what was said up to there, cached state too."""
        self.refuse_while_busy()
        forked = self._stage.desk.fork(message, name)
        self._stage.show_list()
        self._reach.open(forked.id)
        self._reach.say(f'"{first_line(forked.title)}" goes on from here; the old conversation is unchanged', "information")

    def step_version(self, message: str, step: int) -> None:
        """Look at a neighbour among the versions of a message, and at what follows it."""
        self.refuse_while_busy()
        other = self._stage.desk.version(message, step)
        if other is None:
            self._reach.say("there is no other version of this message", "information")
            return
        self._look_at(message, other)

    def look_at_version(self, entry: Entry, n: int) -> None:
        """Look at version `n` of a message. Raises LocalKVError."""
        self.refuse_while_busy()
        versions = self._stage.desk.store.shown_versions(entry.id)
        if n > len(versions):
            raise ConversationError(f"this message has {len(versions)} versions; write a number up to that")
        self._look_at(entry.id, versions[n - 1])

    def tell_versions(self, entry: Entry) -> None:
        """Say which version of a message is shown."""
        self._transcript.choose(entry.id)
        shown = f"version {entry.versions.strip('<> ')}" if entry.versions else "the only version"
        keys = self._reach.keyed("[version.previous] and [version.next]")
        self._reach.say(f"this is {shown} of the message under the cursor; {keys} show the others", "information")

    def _look_at(self, message: str, other: str) -> None:
        self._stage.desk.look_at(other)
        self._transcript.swap(self._stage.entries(), message, other)

    def take_away(self, *messages: str) -> None:
        """Take messages and everything below them away; they come back together with `bring_back`."""
        self.refuse_while_busy()
        n_messages = self._stage.desk.take_away([*messages])
        self._transcript.choose("")
        self._transcript.sync(self._stage.entries())
        what = "one message is" if n_messages == 1 else f"{n_messages:,} messages are"
        undo = self._reach.keyed("[message.undo] in the conversation or /undo")
        self._reach.say(f"{what} taken away. {undo} brings them back.", "information")

    def take_branch(self, pick: Pick) -> None:
        """Look at a branch, take it away, or take all others away. Raises LocalKVError."""
        self.refuse_while_busy()
        desk = self._stage.desk
        if pick.wish == "take away":
            self.take_away(desk.store.branch_top(pick.leaf))
            return
        desk.end_at(pick.leaf)
        self._transcript.show(self._stage.entries())
        if pick.wish == "keep alone" and (others := desk.store.beside(pick.leaf)):
            self.take_away(*others)

    def bring_back(self) -> bool:
        """Bring back the branch that was taken away last, in its conversation, if nothing was trashed since; whether there is one."""
        desk = self._stage.desk
        last = desk.last_removed()
        if last is None or not last.messages:
            return False
        if last.conversation != desk.key:
            was_read = self._transcript.has_focus
            self._reach.open(last.conversation)
            if was_read:  # the next key is meant for its messages, too
                self._transcript.focus()
        if last.conversation == desk.key:
            self.refuse_while_busy()
            message = desk.bring_back()
            self._transcript.sync(self._stage.entries())
            self._transcript.choose(message)
        return True

    def _undo(self) -> None:
        self.refuse_while_busy()
        if not self.bring_back():
            self._reach.say("nothing was taken away", "information")

    def _question_of(self, entry: Entry) -> Message:
        """The question that `entry` is, or that it answers. Raises ConversationError."""
        message = self._stage.desk.store.message(entry.id)
        if message.role == "assistant" and message.parent is not None:
            message = self._stage.desk.store.message(message.parent)
        if message.role != "user":
            raise ConversationError("this is the system prompt; /system TEXT changes it")
        return message

    def refuse_while_busy(self) -> None:
        """Raises ConversationError while an answer is on its way or not saved: what it hangs on must stay as it is."""
        run = self._stage.runs.of(self._stage.desk.key)
        if run is not None:
            waits = "still being written; [cancel] stops it" if not run.over else "not saved yet; it is tried again by itself"
            raise ConversationError(self._reach.keyed(f"the answer is {waits}"))
