"""The chat screen: what people do to conversations and with words. What is shown and what moves is the Stage's.

Thin: every method here takes what a person did and hands it on. Thread: the UI's. Two timers at most: the stage's ticks,
which rest when nothing moves, and the one of Writing. Dialogs and commands are imported when they are asked for: the first
frame does not wait for them.
"""

from collections.abc import Callable, Mapping

from textual.message import Message
from textual.timer import Timer

from localkv.commands.introduction import Introduction
from localkv.commands.keymap import DEFAULT_KEYMAP, Keymap
from localkv.errors import LocalKVError, UnknownConversation
from localkv.tui.acts import Acts, Reach
from localkv.tui.arguments import argument_offers, sources_of
from localkv.tui.clean import one_line
from localkv.tui.composer import Composer
from localkv.tui.desk import Desk
from localkv.tui.entries import first_line
from localkv.tui.glyphs import Glyphs
from localkv.tui.listing import UNTITLED, Item, to_item
from localkv.tui.meaning import way_out, words
from localkv.tui.pages import Place
from localkv.tui.ports import Chat, Client
from localkv.tui.reading import refusing
from localkv.tui.scrolling import use_plain_bars
from localkv.tui.shelf import Shelf
from localkv.tui.stage import Signals, Stage, Widgets
from localkv.tui.theme import Palette
from localkv.tui.welcome import Welcome
from localkv.tui.writing import Writing

TICKS_PER_SECOND = 10
UNDO_SECONDS = 10.0


class ChatScreen(Shelf, Writing):
    """The main screen."""

    class Listening(Message):
        """The screen is filled and the composer gets the focus: the app hears of this after the change of focus."""

    def __init__(
        self,
        desk: Desk,
        chat: Chat,
        client: Client,
        palette: Palette,
        glyphs: Glyphs,
        ticks: Callable[[], float],
        *,
        panel: bool,
        keymap: Keymap = DEFAULT_KEYMAP,
    ) -> None:
        """`ticks` is the clock that measures rates; `panel`: the cache panel is open where there is room."""
        super().__init__(palette, glyphs, desk.clock, panel=panel, keymap=keymap)
        self.desk = desk
        self.welcome = Welcome(keymap)
        self.stage = Stage(
            desk,
            chat,
            client,
            Widgets(self.transcript, self.sessions, self.composer, self.queue, self.instruments),
            Signals(self.say, self._begin_ticks, self.set_timer, self.call_after_refresh, self.ring, self._stops),
            palette,
            ticks,
            self.welcome,
        )
        self.acts = Acts(
            self.stage, self.transcript, self.composer, Reach(self.say, self.copy, self.open, self.sign, self.keyed)
        )
        sources = sources_of(self)
        self.completion.more = lambda text: argument_offers(text, sources)
        self._places: dict[str, Place] = {}
        """By conversation, where the person was reading above its end."""
        self.bell = False
        """Whether an answer that nobody watches rings."""
        self._ticking: Timer | None = None

    def on_mount(self) -> None:
        """Fill the screen from the store; the engine starts after the first frame."""
        if self.has_class("-ascii"):
            use_plain_bars(self)
        if self.keymap is not DEFAULT_KEYMAP:
            self.take_keys()
        self._ticking = self.set_interval(1 / TICKS_PER_SECOND, self._tick, pause=True)
        self.stage.show_list()
        self.stage.show_open()
        self.composer.focus()
        self.post_message(self.Listening())
        self.call_after_refresh(self.stage.prepare)

    def on_unmount(self) -> None:
        """Read the store no more."""
        self.stage.hints.close()

    def introduce(self, first: Introduction) -> None:
        """Tell in an empty conversation what this machine can do."""
        self.welcome.first = first
        self.stage.show_welcome()

    def show_facts(self) -> None:
        """Bring what stands around the conversation up to date."""
        self.stage.show_facts()

    def _begin_ticks(self) -> None:
        if self._ticking is not None:
            self._ticking.resume()

    def restyle(self, palette: Palette) -> None:
        """Paint in another palette."""
        super().restyle(palette)
        self.stage.restyle(palette)

    def ring(self, conversation: str) -> None:
        """An answer is over: ring if nobody sees it and the person wants that."""
        if self.bell and (conversation != self.desk.key or not self.app.app_focus):
            self.app.bell()

    def _tick(self) -> None:
        if not self.stage.tick() and self._ticking is not None:
            self._ticking.pause()
        self.keyline.renew()
        if self.stage.engine.left:
            self.app.exit()

    # Conversations

    @refusing
    def open(self, conversation: str) -> None:
        """Look at this conversation; one in the trash comes back from it."""
        self._leave()
        self.desk.open(conversation)
        if self.desk.opened is not None and self.desk.opened.trashed is not None:
            self.sessions.change(to_item(self.desk.untrash(conversation)))
        place = self._places.get(conversation)
        if place is not None:
            self.desk.read_whole()
        self.stage.show_open()
        if place is not None:
            self.transcript.go_to(place)
            self.show_facts()
        self.close_overlays()
        self.composer.focus()

    @refusing
    def begin(self, system: str | None = None) -> None:
        """Look at a new conversation."""
        self._leave()
        self.desk.begin(system)
        self.stage.show_open()
        self.close_overlays()
        self.composer.focus()

    def _leave(self) -> None:
        """Before another conversation is looked at: keep what is written, and where this one is read."""
        self.close_find()
        self.leave_words()
        if (place := self.transcript.place) is not None:
            self._places[self.desk.key] = place
        else:
            self._places.pop(self.desk.key, None)

    def begin_named(self, name: str) -> None:
        """Look at a new conversation that will be called `name`, or at the one that is."""
        self.begin()
        if name:
            self.desk.open_named(name)
            if self.desk.opened is not None:
                self.sessions.change(to_item(self.desk.opened))
            self.stage.show_open()

    def open_like(self, words: str) -> None:
        """Look at the first conversation whose title or name has these words."""
        item = self.sessions.first(words)
        if item is None:
            raise UnknownConversation(f'no conversation has "{words}" in its title or name; /list shows all')
        self.open(item.id)

    def filter_list(self, words: str) -> None:
        """Show the list with those conversations that have these words."""
        self.show_filter()
        self.filter.value = words

    @refusing
    def rename(self, conversation: str, title: str) -> None:
        """Give a conversation another title."""
        self.sessions.change(to_item(self.desk.rename(conversation, title)))
        self.stage.show_facts()

    def rename_open(self, title: str) -> None:
        """Give the open conversation another title."""
        self.rename(self.stage.ensure(), title)

    @refusing
    def delete(self, conversation: str) -> None:
        """Move a conversation to the trash, and say how it comes back."""
        title = one_line(self.desk.store.get(conversation).title) or UNTITLED
        self.take_out(conversation)
        undo = self.keyed("[undo] in the list or /undo")
        self.say(f'"{first_line(title)}" is in the trash. {undo} brings it back.', seconds=UNDO_SECONDS)
        self.stage.show_facts()

    def take_out(self, conversation: str) -> None:
        """Move a conversation to the trash and show its neighbour if it was open."""
        run = self.stage.runs.of(conversation)
        if run is not None:
            run.stop()
        neighbour = self._next_to(conversation)
        was_open = self.desk.key == conversation
        if was_open:
            self._leave()
        self.desk.trash(conversation)
        self.sessions.change(to_item(self.desk.store.get(conversation)))
        if was_open and neighbour is not None:
            self.desk.open(neighbour.id)
        if was_open:
            self.stage.show_open()

    def _next_to(self, conversation: str) -> Item | None:
        """What is looked at when `conversation` goes: the one below it or else above it, nothing from the trash."""
        items = (self.sessions.neighbour(step) for step in (1, -1))
        return next((item for item in items if item is not None and item.id != conversation and item.place != "trash"), None)

    def delete_open(self) -> None:
        """Move the open conversation to the trash."""
        if self.desk.key:
            self.delete(self.desk.key)

    @refusing
    def undo_delete(self) -> None:
        """Bring back what was taken away or trashed last."""
        in_the_list = self.focused is self.sessions
        if not self.acts.bring_back() and not self._untrash():
            self.say("nothing was deleted")
        elif in_the_list:  # the next key is meant for it, too
            self.open_side()
            self.sessions.focus()

    def _untrash(self) -> bool:
        """Bring back what was trashed last, and look at it; whether there was something."""
        conversation = self.desk.undo()
        if conversation is None:
            return False
        self.sessions.change(to_item(conversation))
        self.open(conversation.id)
        return True

    def ask_title(self, conversation: str) -> None:
        """Ask for another title."""
        title = one_line(self.desk.store.get(conversation).title)

        def done(answer: str | None) -> None:
            if answer:
                self.rename(conversation, answer)

        from localkv.tui.dialogs import Rename

        self.app.push_screen(Rename(title), done)

    # Words

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """A message, a command, or with nothing written: what waits."""
        event.stop()
        try:
            refusal = self._act_on(event.text)
        except LocalKVError as error:
            refusal = str(error)
        if refusal:
            self.composer.give_back(event.draft)
            self.say(refusal, "warning")

    def _act_on(self, text: str) -> str:
        """Do what a sent text says; why it can't be done, or nothing. Raises LocalKVError."""
        from localkv.commands.registry import Mistake, message_of, parse
        from localkv.tui import slash

        line = text.strip()
        call = parse(line) if "\n" not in line else None
        if isinstance(call, Mistake):
            return call.message
        if call is not None:
            slash.perform(self, call)
        elif line:
            self.send(message_of(text))
            self.composer.past = [*self.composer.past, text]
        else:
            self.send_waiting()
        return ""

    @refusing
    def action_slash(self, name: str) -> None:
        """Do a slash command; if it needs words, begin to write it."""
        from localkv.commands.registry import Call, parse
        from localkv.tui import slash

        call = parse(f"/{name}")
        if isinstance(call, Call):
            slash.perform(self, call)
            return
        self.composer.insert(f"/{name} ", (0, 0))
        self.composer.focus()

    def on_composer_ended(self, event: Composer.Ended) -> None:
        """ctrl+d with nothing written leaves."""
        event.stop()
        self.action_quit()

    # Keys

    def action_cancel(self) -> None:
        """Leave or stop what the last row says."""
        way = way_out(self)
        if way is not None:
            way.go()
        self.keyline.renew()

    def _stops(self) -> bool:
        way = way_out(self)
        return way is not None and way.word == "stop" and not self.completion.is_open

    def say_keys(self) -> Mapping[str, str]:
        """The words of the last row."""
        return words(self)

    def action_new(self) -> None:
        """Start a conversation."""
        self.begin()

    @refusing
    def action_rename(self) -> None:
        """Rename the open conversation."""
        if self.desk.key:
            self.ask_title(self.desk.key)
        else:
            self.say("a new conversation takes its title from its first message")

    def action_step(self, step: int) -> None:
        """Open a neighbour in the list; what is in the trash stays there."""
        item = self.sessions.neighbour(step) if self.sessions.place != "trash" else None
        if item is not None:
            self.open(item.id)

    @refusing
    def action_continue(self) -> None:
        """Go on with the answer under the cursor, else with the last one."""
        if (entry := self.transcript.chosen) is not None:
            self.acts.resume(entry)
        elif self.stage.runs.busy(self.desk.key):
            self.acts.refuse_while_busy()
        else:
            self.stage.resume()

    @refusing
    def action_retry(self) -> None:
        """Answer the question under the cursor again, else the last one."""
        if (entry := self.transcript.chosen) is not None:
            self.acts.retry(entry)
        elif self.stage.runs.busy(self.desk.key):
            self.acts.refuse_while_busy()
        else:
            self.stage.retry()

    def end(self) -> None:
        """Leave without asking: nobody is there to answer. The second time at once."""
        if self.stage.engine.state == "leaving":
            self.app.exit()
        else:
            self.store_words()
            self.stage.leave()

    def action_quit(self) -> None:
        """Leave; ask first if text would be lost; the second time leave at once."""
        if self.stage.engine.state == "leaving":
            self.app.exit()
            return
        self.store_words()
        unsaved = self.stage.unsaved
        if not unsaved:
            self.stage.leave()
            return
        from localkv.tui.dialogs import Confirm

        where = "one conversation" if unsaved == 1 else f"{unsaved} conversations"
        question = f"The database refuses writes, and answers in {where} are not saved. They are lost if you leave now."
        self.app.push_screen(
            Confirm(question, "leave and lose them", "stay"), lambda sure: self.stage.leave() if sure else None
        )
