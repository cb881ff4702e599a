"""Finding and ordering conversations on the chat screen: the list, the switcher, search.

The part of the screen between the list, which says what the person wants, and what opens a conversation. Dialogs are
imported when they are asked for: the first frame does not wait for them. Thread: the UI's.
"""

from collections.abc import Callable

from localkv.commands.order import Place
from localkv.errors import LocalKVError
from localkv.tui.desk import Desk
from localkv.tui.reading import Reading, refusing
from localkv.tui.sessions import Sessions


class Shelf(Reading):
    """A screen on which conversations are found and put in order."""

    desk: Desk

    # What the whole screen does

    def open(self, conversation: str) -> None:
        """Look at this conversation."""

    def delete(self, conversation: str) -> None:
        """Move a conversation to the trash."""

    def take_out(self, conversation: str) -> None:
        """Move a conversation to the trash without a word, and show its neighbour if it was open."""

    def undo_delete(self) -> None:
        """Bring back what was trashed last."""

    def ask_title(self, conversation: str) -> None:
        """Ask for another title."""

    # Finding

    def action_find(self) -> None:
        """Go to another conversation by a few letters."""
        from localkv.tui.switcher import Switcher

        def done(answer: str | None) -> None:
            if answer is not None:
                self.open(answer)

        others = [item for item in self.sessions.items if item.id != self.desk.key]
        self.app.push_screen(Switcher(self._palette, others, self.stage.hints.resumes, self.desk.clock()), done)

    def action_search(self, words: str = "") -> None:
        """Find messages in all conversations."""
        from localkv.tui.search import open_search

        open_search(self, self._palette, words)

    @refusing
    def open_at(self, conversation: str, message: str) -> None:
        """Look at this message, on whatever branch it is; on another one only while no answer hangs on the open one."""
        self.open(conversation)
        if self.desk.key != conversation:
            return
        if all(message != shown.id for shown in self.desk.messages):
            self.desk.read_whole()
        if all(message != shown.id for shown in self.desk.messages):
            self.acts.refuse_while_busy()
            self.desk.look_at(message)
        self.stage.show_open()
        self.transcript.choose(message)
        self.transcript.focus()

    def show_list(self, place: Place) -> None:
        """Show what is kept in this place."""
        self.open_side()
        self.sessions.go_to(place)
        self.sessions.focus()

    def on_sessions_chosen(self, event: Sessions.Chosen) -> None:
        """Open what was chosen."""
        event.stop()
        self.open(event.conversation)

    def on_sessions_asked(self, event: Sessions.Asked) -> None:
        """Something to be done to a row."""
        event.stop()
        self.refuse(lambda: self._do(event.wish, event.conversations))

    def _do(self, wish: str, conversations: tuple[str, ...]) -> None:
        match wish, conversations:
            case "rename", (conversation,):
                self.ask_title(conversation)
            case "delete", (conversation,) if self.sessions.place != "trash":
                self.delete(conversation)
            case "undo", ():
                self.undo_delete()
            case "filter", _:
                self.show_filter()
            case _:
                from localkv.tui import filing

                filing.perform(self, wish, conversations)

    def on_sessions_rested(self, event: Sessions.Rested) -> None:
        """The person may open what the cursor rests on."""
        event.stop()
        self.stage.hints.rest(event.conversation)
        self.stage.foresight.looked_around()
        self.stage.wake()

    def on_sessions_rearranged(self, event: Sessions.Rearranged) -> None:
        """Another order, or another place."""
        event.stop()
        self.refuse(self.stage.show_list)
        self.keyline.renew()

    def on_sessions_marked(self, event: Sessions.Marked) -> None:
        """How many are marked, and what esc does about it."""
        event.stop()
        self.stage.show_facts()
        self.keyline.renew()

    def refuse(self, action: Callable[[], None]) -> None:
        """Do `action`; a failure that localkv names is a notice."""
        try:
            action()
        except LocalKVError as error:
            self.say(str(error), "error")
