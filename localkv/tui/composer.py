"""Where messages are written: a TextArea in which Enter sends.

It knows no conversation: it is given a draft and earlier questions, and says what was sent and what changed. Files named
with "@" are read where they are named. `text` is what is seen, with labels of chips; `message` is what is sent. A subclass of TextArea, because that places
the terminal's cursor for input method editors. Thread: the UI's.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual.document._document import EditResult, Location, Selection
from textual.document._edit import Edit
from textual.events import Key, Paste
from textual.message import Message
from textual.widgets import TextArea

from localkv.chat.attachments import read_attachment
from localkv.errors import UnusableFile
from localkv.tui.chips import Chip, beside, file_label, fold, is_long, labels_in, pack, paste_label, unpack, whole, widen
from localkv.tui.completion import Completion
from localkv.tui.keys import bindings

MAX_ROWS = 8


class Composer(TextArea):
    """A text that grows from one to eight rows."""

    BINDINGS = bindings("composer")
    COMPONENT_CLASSES: ClassVar[set[str]] = {"composer--chip"}
    DEFAULT_CSS = """
    Composer {
        height: auto;
        min-height: 1;
        max-height: 8;
        border: none;
        padding: 0 1;
        background: $background;
        color: $foreground;
        scrollbar-size-vertical: 1;
        &:focus { border: none; }
        & .text-area--placeholder { color: $muted; }
        & .text-area--cursor { background: $foreground; color: $background; }
        & .composer--chip { color: $primary; text-style: bold; }
    }
    """

    class Sent(Message):
        """The person sends the message `text`, which may be empty; the composer is empty already. `draft` was written."""

        def __init__(self, text: str, draft: str) -> None:
            super().__init__()
            self.text = text
            self.draft = draft

    class TakenBack(Message):
        """With nothing written, the person wants the message back that waits last."""

    class Paged(Message):
        """The person wants to scroll the conversation by `step` screens."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Refused(Message):
        """A file that was named cannot be attached."""

        def __init__(self, problem: str) -> None:
            super().__init__()
            self.problem = problem

    class Ended(Message):
        """ctrl+d with nothing written."""

    def __init__(self, *, placeholder: str = "", id: str | None = None) -> None:  # noqa: A002  textual's name
        self._chips: dict[str, Chip] = {}
        super().__init__(
            id=id, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False, compact=True, placeholder=placeholder
        )
        self.cursor_blink = False
        self.past: Sequence[str] = ()
        """Earlier questions, oldest first."""
        self.completion: Completion | None = None
        """What offers endings for what is being written."""
        self.waits = False
        """Whether messages wait that can be taken back."""
        self._kept: tuple[str, dict[str, Chip]] = ("", {})
        self._back = 0
        """How many questions ago the one was asked that is shown; 0: none is."""
        self._written: dict[int, str] = {}
        """By `_back`: what was written there before another question was shown; at 0 the draft."""
        self._shown: tuple[str, dict[str, Chip]] = ("", {})
        """The earlier question that was put here last, as it was asked."""

    @property
    def message(self) -> str:
        """What would be sent now: all that is written, with what chips stand for."""
        return whole(self.text, self._chips)

    @property
    def characters(self) -> int:
        """About how long the message is; what chips stand for is not put together for it."""
        lines = self.document.lines
        found = [label for line in lines for _, label in labels_in(line, self._chips)]
        return sum(map(len, lines)) + len(lines) - 1 + sum(len(self._chips[label].text) - len(label) for label in found)

    @property
    def changed(self) -> bool:
        """Whether there is something to be stored since `begin` and the last `keep`."""
        return self._kept != (self.text, self._chips)

    @property
    def draft(self) -> str:
        """What is written, as it can be stored and begun with; an earlier question that is only looked at is not."""
        if self._looks_back:
            return next((self._written[back] for back in sorted(self._written) if self._written[back]), "")
        return pack(self.text, self._chips)

    def keep(self) -> None:
        """What is written is stored."""
        self._kept = (self.text, dict(self._chips))

    async def _on_key(self, event: Key) -> None:
        """Keys that are bound, by the screen or here, act in the order of typing; the rest is text.

        Textual lets a bound key bubble up to the app before it acts. Characters typed after it would overtake it: in a fast
        "a backspace b" the b would be deleted, and what is typed after Enter would be sent or lost.
        """
        if self.completion is not None and (text := self.completion.take_key(event.key, self.before_cursor)) is not None:
            event.stop()
            event.prevent_default()
            self._become(text)
            return
        if event.key == "space":
            self._attach_named()
        if event.key == "tab" and self.text:
            # Elsewhere letters are keys: who indents a line and goes on writing must not be taken there.
            event.stop()
            event.prevent_default()
            self._replace_via_keyboard(" " * self.indent_width, *self.selection)
            return
        for node in (self.screen, self):
            for binding in node._bindings.key_to_bindings.get(event.key, ()):
                event.stop()
                event.prevent_default()
                await node.run_action(binding.action)
                return
        if event.character and unicodedata.category(event.character[0]) == "Cf":
            # Joiners of emoji and of several scripts: Textual takes them for control characters and drops them.
            event.stop()
            event.prevent_default()
            self._replace_via_keyboard(event.character, *self.selection)
            return
        await super()._on_key(event)

    @property
    def before_cursor(self) -> str:
        """What may be completed: the text before the cursor, if it does not stand inside a word."""
        row, column = self.cursor_location
        after = self.document.get_line(row)[column : column + 1]
        return "" if after.strip() else self.get_text_range((0, 0), (row, column))

    def _become(self, text: str) -> None:
        """Put a completion in the place of what it completes; a file that is named whole now is attached."""
        before = self.before_cursor
        if text != before:
            same = next((n for n, (one, other) in enumerate(zip(text, before, strict=False)) if one != other), len(before))
            lines = text[:same].split("\n")
            self.replace(text[same:], (len(lines) - 1, len(lines[-1])), self.cursor_location)
            self._attach_named(after=" ")

    def _attach_named(self, after: str = "") -> None:
        """If the word before the cursor names a file, make it a chip. Other words that begin with "@" are words."""
        row, column = self.cursor_location
        line = self.document.get_line(row)[:column]
        if "@" not in line:
            return
        from localkv.tui.filenames import is_file, named_file  # not needed for the first frame

        found = named_file(line)
        if found is None or not is_file(found[1]):
            return
        try:
            label = self._take_file(found[1])
        except UnusableFile as error:
            self.post_message(self.Refused(str(error)))
        else:
            self.history.checkpoint()  # undo gives the name back
            self.replace(label + after, (row, found[0]), (row, column), maintain_selection_offset=False)

    def attach(self, path: str) -> None:
        """Put a file where the cursor is, as a chip. Raises UnusableFile."""
        self._replace_via_keyboard(self._take_file(path) + " ", *self.selection)

    def _take_file(self, path: str) -> str:
        """The label of a file that is read now."""
        file = read_attachment(path)
        chip = Chip(file.text, file.name)
        label = next((label for label, known in self._chips.items() if known == chip), "")
        if not label:
            label = file_label(file, self._chips)
            self._chips[label] = chip
        return label

    def begin(self, draft: str, past: Sequence[str]) -> None:
        """Another conversation: its draft, and its earlier questions, oldest first."""
        self._write(*unpack(draft))
        self._kept = (self.text, dict(self._chips))
        self.past = past

    def load(self, message: str) -> None:
        """Write a message that was sent or waited once more, in place of what is written."""
        self._write(*fold(message))

    def action_send(self) -> None:
        """Send the text; after a backslash, start a new line instead."""
        row, column = self.cursor_location
        if self.document.get_line(row)[:column].endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column))
            return
        self._attach_named()
        message, draft = self.message, pack(self.text, self._chips)
        self._write("", {})
        self.post_message(self.Sent(message if message.strip() else "", draft))

    def give_back(self, draft: str) -> None:
        """Put what could not be sent before what has been typed since."""
        text, chips = beside(*unpack(draft), self._chips)
        self._chips |= chips
        self.insert(text, (0, 0))
        self.move_cursor(self.document.end)

    def add(self, label: str, chip: Chip) -> None:
        """Put a chip where the cursor is, in place of what is selected."""
        self._chips[label] = chip
        self._replace_via_keyboard(label, *self.selection)

    @property
    def labels(self) -> Sequence[str]:
        """Labels that are taken."""
        return list(self._chips)

    async def _on_paste(self, event: Paste) -> None:
        """A long paste becomes a chip: written out, it would make each key slow."""
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        if is_long(text):
            self.add(paste_label(text, self._chips), Chip(text))
        else:
            self._replace_via_keyboard(text, *self.selection)

    def action_expand(self) -> None:
        """Write out what the chip at the cursor stands for; the only chip if there is one."""
        row, column = self.cursor_location
        places = [(row, *span, label) for span, label in labels_in(self.document.get_line(row), self._chips)]
        here = [place for place in places if place[1] <= column <= place[2]] or self._only_chip()
        for at, start, end, label in here[:1]:
            self.replace(self._chips[label].text, (at, start), (at, end))

    def _only_chip(self) -> list[tuple[int, int, int, str]]:
        lines = enumerate(self.document.lines)
        all_of_them = [(row, *span, label) for row, line in lines for span, label in labels_in(line, self._chips)]
        return all_of_them if len(all_of_them) == 1 else []

    def undo(self) -> None:
        """Take the last edits back."""
        self._leave_rows()
        super().undo()

    def redo(self) -> None:
        """Do them again."""
        self._leave_rows()
        super().redo()

    def _leave_rows(self) -> None:
        """Textual (8.2.8) measures the cursor's place before it has put it into the document that undo left: rows that are gone."""
        if self.history.undo_stack or self.history.redo_stack:
            self.set_reactive(TextArea.selection, Selection.cursor((0, 0)))

    def edit(self, edit: Edit) -> EditResult:
        """Chips are deleted whole, and nothing is written into them."""
        if self._chips:
            top, bottom = self._widened(edit.top, edit.bottom)
            edit = replace(edit, from_location=top, to_location=bottom)
        return super().edit(edit)

    def _widened(self, top: Location, bottom: Location) -> tuple[Location, Location]:
        first, last = self.document.get_line(top[0]), self.document.get_line(bottom[0])
        if top[0] == bottom[0]:
            start, end = widen(first, self._chips, top[1], bottom[1])
        else:
            start, end = widen(first, self._chips, top[1], len(first))[0], widen(last, self._chips, 0, bottom[1])[1]
        return (top[0], start), (bottom[0], end)

    def _validate_selection(self, selection: Selection) -> Selection:
        """The cursor steps over chips."""
        start, end = super()._validate_selection(selection)
        if not self._chips:
            return Selection(start, end)
        return Selection(self._outside(start, self.selection.start), self._outside(end, self.selection.end))

    def _outside(self, place: Location, before: Location) -> Location:
        row, column = place
        for (low, high), _ in labels_in(self.document.get_line(row), self._chips):
            if low < column < high:
                return (row, low if before > place else high)
        return place

    def get_line(self, line_index: int) -> Text:
        """The line, with its chips in another colour."""
        line = super().get_line(line_index)
        for span, _ in labels_in(line.plain, self._chips):
            line.stylize(self.get_component_rich_style("composer--chip", partial=True), *span)
        return line

    def _write(self, text: str, chips: Mapping[str, Chip]) -> None:
        """Write something else than an earlier question: what is recalled after it begins with the last one."""
        self._back = 0
        self._written = {}
        self._put(text, chips)

    def _put(self, text: str, chips: Mapping[str, Chip]) -> None:
        self._chips = dict(chips)
        self.load_text(text)
        self.move_cursor(self.document.end)

    def action_newline(self) -> None:
        """Start a new line."""
        self.insert("\n")

    def action_page(self, step: int) -> None:
        """Scroll the conversation."""
        self.post_message(self.Paged(step))

    def action_cursor_up(self, select: bool = False) -> None:
        """One row up; from the first row to an earlier question."""
        if self.waits and not self.text and not select:
            self.post_message(self.TakenBack())
            return
        if select or not self.cursor_at_first_line or self._back >= len(self.past):
            super().action_cursor_up(select)
            return
        self._recall(self._back + 1)

    def action_cursor_down(self, select: bool = False) -> None:
        """One row down; from the last row to a later question, and at last to the draft."""
        if select or not self._back or not self.cursor_at_last_line:
            super().action_cursor_down(select)
            return
        self._recall(min(self._back - 1, len(self.past)))

    def action_delete_right(self) -> None:
        """Delete a character; with nothing written, leave."""
        if self.text:
            super().action_delete_right()
        else:
            self.post_message(self.Ended())

    @property
    def _looks_back(self) -> bool:
        """Whether an earlier question is shown as it was asked."""
        return self._back > 0 and self._shown == (self.text, self._chips)

    def _recall(self, back: int) -> None:
        """Show another question, or the draft, as it was left; what is written now is kept for coming back."""
        if not self._looks_back:
            self._written[self._back] = self.draft
        self._back = back
        self._put(*(unpack(self._written[back]) if back in self._written else fold(self.past[-back])))
        if back and back not in self._written:
            self._shown = (self.text, dict(self._chips))
        if back:
            self.move_cursor((0, len(self.document.get_line(0))))
