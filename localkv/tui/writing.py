"""Writing: messages that are sent or wait to be sent, and the draft, which is stored a second after the last key.

The part of the chat screen between composer, queue and stage. Nothing written is lost between two places: a text is stored
where it goes before it is taken from where it was. Thread: the UI's.
"""

from textual.timer import Timer
from textual.widgets import TextArea

from localkv.commands.waiting import number_in
from localkv.errors import ConfigError, ConversationError
from localkv.tui.composer import Composer
from localkv.tui.counting import characters_per_token, count_label, free_tokens
from localkv.tui.desk import Desk
from localkv.tui.queue import Queue
from localkv.tui.reading import Reading, refusing

DRAFT_SECONDS = 1.0


class Writing(Reading):
    """A screen on which messages are written."""

    desk: Desk
    _draft_timer: Timer | None = None
    _behind: int | None = None
    """How many messages waited behind the one in the composer before it was taken back; it goes before them again."""
    _counted: tuple[str, bool] = ("", False)
    """How long the message is, as it is shown, and whether it is too long."""

    def send(self, message: str) -> None:
        """Ask now, or let the message wait for its turn. Raises LocalKVError."""
        if not self.acts.send_edit(message):
            if self.stage.runs.busy(self.desk.key) or self.stage.waiting.shown or self._behind is not None:
                self.stage.waiting.add(message, self._behind)
            else:
                self.stage.ask(message)
        self._behind = None
        self.send_waiting()
        self._begin_draft_timer()  # once it has run out, the message is durable elsewhere

    def send_waiting(self) -> None:
        """Ask what waits first, if the model is free. Raises LocalKVError."""
        if not self.stage.runs.busy(self.desk.key):
            self.stage.ask_next(self.desk.key)
        self.stage.show_facts()

    def attach(self, path: str) -> None:
        """Put a file into the message. Raises UnusableFile."""
        self.composer.attach(path)
        self.composer.focus()

    def action_editor(self) -> None:
        """Write the message in the person's editor."""
        from localkv.tui.drafting import edit_draft  # not needed for the first frame

        edit_draft(self)

    def on_composer_refused(self, event: Composer.Refused) -> None:
        """Say why a file is not attached."""
        event.stop()
        self.say(event.problem, "warning")

    # What waits

    @refusing
    def on_queue_edited(self, event: Queue.Edited) -> None:
        """Write a message that waits again."""
        event.stop()
        self.edit_waiting(event.index, event.text)

    @refusing
    def on_queue_dropped(self, event: Queue.Dropped) -> None:
        """Forget a message that waits."""
        event.stop()
        self.drop_waiting(event.index, event.text)

    @refusing
    def on_composer_taken_back(self, event: Composer.TakenBack) -> None:
        """Write the message again that waits last."""
        event.stop()
        if waits := self.stage.waiting.shown:
            self.edit_waiting(len(waits) - 1, waits[-1])

    def edit_waiting(self, index: int, text: str) -> None:
        """Take the message `text` that waits into the composer; sent, it takes its place again. Raises LocalKVError."""
        if self.composer.text.strip() or self.acts.editing is not None:
            raise ConversationError("something is being written; send it or clear it, then edit the message that waits")
        place = self.stage.waiting.place(text, index)
        self.composer.load(text)
        self.store_draft()
        self.stage.waiting.take(place)
        self._behind = len(self.stage.waiting.shown) - place
        self.composer.focus()
        self.stage.show_facts()

    def drop_waiting(self, index: int, text: str) -> None:
        """Forget the message `text` that waits; up brings its text back while the chat is open. Raises LocalKVError."""
        self.stage.waiting.forget(self.stage.waiting.place(text, index))
        self.composer.past = [*self.composer.past, text]
        self.say("the message is forgotten; up in the composer brings its text back")
        self.stage.show_facts()
        if not self.stage.waiting.shown:
            self.composer.focus()

    def order_queue(self, argument: str) -> None:
        """Do what "/queue `argument`" says. Raises LocalKVError."""
        waits = self.stage.waiting.shown
        match argument.partition(" ")[0]:
            case "" if waits:
                self.queue.focus()
            case "":
                self.say("no message waits; what is sent while an answer is written waits here")
            case "send":
                self.send_waiting()
            case "edit":
                self.edit_waiting(index := number_in(argument, waits), waits[index])
            case "delete":
                self.drop_waiting(index := number_in(argument, waits), waits[index])
            case "clear":
                for text in waits:
                    self.drop_waiting(0, text)
            case word:
                raise ConfigError(f"/queue {word}: write /queue, /queue send, /queue edit N, /queue delete N or /queue clear")

    # The draft

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """The draft is stored a second after the last key, and the engine may read it."""
        event.stop()
        if self.acts.editing is None and self._behind is None and not self.stage.waiting.shown:
            self.stage.foresight.typed()
        self.completion.suggest(self.composer.before_cursor)
        self._show_count()
        if self.composer.changed:
            self._begin_draft_timer()

    def _show_count(self) -> None:
        """How long the message is, if it is long; whether it fits."""
        ready, messages = self.stage.engine.ready, self.desk.messages
        free = free_tokens(ready.context_tokens, messages) if ready is not None and ready.model == self.desk.model else None
        label, over = count_label(self.composer.characters, characters_per_token(messages), free)
        if (label, over) != self._counted:  # the whole screen is laid out again
            self._counted = label, over
            self.count.set_class(bool(label), "-shown")
            self.count.set_class(over, "-over")
            self.count.update(label)

    def _begin_draft_timer(self) -> None:
        if self._draft_timer is None:
            self._draft_timer = self.set_timer(DRAFT_SECONDS, self.store_draft)

    @refusing
    def store_draft(self) -> None:
        """Store what is written now."""
        if self._draft_timer is not None:
            self._draft_timer.stop()
            self._draft_timer = None
        editing = self.acts.editing
        self.desk.keep_draft(self.composer.draft if editing is None else editing.draft)
        self.composer.keep()

    @refusing
    def store_words(self) -> None:
        """Before the chat ends: what is written here, and all that could not be stored when it was written."""
        self.store_draft()
        known = self.desk.key
        self.desk.store_drafts()
        if self.desk.key != known:
            self.stage.show_list()

    def leave_words(self) -> None:
        """Before another conversation is looked at."""
        self.acts.leave_edit()
        self.store_draft()
        self._behind = None
