"""All that a person can tell a chat to do, once: keys, slash commands, palette, help, footer and plain mode read this table.

Only names, keys, arguments and help; what an action does is the face's. Knows no widgets. Pure. `id` is an action's name in
the section [keys] of config.toml; it never changes.

ctrl+i, ctrl+m, ctrl+h and ctrl+[ are Tab, Enter, Backspace and Esc in many terminals and so are never bound. ctrl+j is the
newline that works everywhere. The composer keeps the readline meaning of ctrl+a, e, k, u, w. No character that can be
written is bound where people write, with or without alt, so that input methods and dead keys compose undisturbed.
"""

from dataclasses import dataclass
from typing import Literal

Place = Literal[
    "anywhere", "composer", "list", "message", "queue", "text", "find", "dialog", "branches", "question", "reading"
]  # fmt: skip

LIVE: tuple[frozenset[Place], ...] = (
    frozenset(("anywhere", "composer")),
    frozenset(("anywhere", "list", "text")),
    frozenset(("anywhere", "message", "text")),
    frozenset(("anywhere", "queue")),
    frozenset(("anywhere", "find")),
    frozenset(("dialog", "branches")),
    frozenset(("question",)),
    frozenset(("reading",)),
)
"""The places whose keys act at the same time: one set for each pane that can have the focus, and for screens over the chat."""

OVER_THE_CHAT: frozenset[Place] = frozenset(("dialog", "branches", "question", "reading"))
"""Places on screens that cover the chat: what acts anywhere in it doesn't act there."""

ALWAYS = frozenset(("quit", "cancel"))
"""Actions whose keys act there all the same; "cancel" closes what is open."""

PLACES: dict[Place, str] = {
    "composer": "Writing",
    "anywhere": "Anywhere",
    "list": "In the list",
    "message": "On a message",
    "queue": "Among messages that wait",
    "text": "In panes that scroll",
    "find": "While finding words",
    "dialog": "In dialogs",
    "branches": "Among branches",
    "question": "When asked yes or no",
    "reading": "In help and statistics",
}
"""Their titles in help, in its order."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do, by key, by slash command, or both."""

    id: str
    help: str
    keys: str = ""
    """Keys by default, with commas; the first is the one that is shown."""
    run: str = ""
    """What a key and the palette run: an action of the place's widget. Empty: the slash command, if there is one."""
    place: Place = "anywhere"
    """Where the keys act."""
    label: str = ""
    """Its word in the footer; empty keeps it out of there."""
    slash: str = ""
    """Its name after "/"; empty for none."""
    arguments: str = ""
    """What comes after the name, as help shows it; in brackets where it may be left out."""
    plain: bool = True
    """Whether plain mode has the slash command, too."""

    @property
    def usage(self) -> str:
        """The slash command as help shows it."""
        return f"/{self.slash} {self.arguments}".rstrip()

    @property
    def act(self) -> str:
        """What to run at its place; empty if its key is not to be had from outside the widget."""
        return self.run or (f"slash('{self.slash}')" if self.slash else "")

    @property
    def needs_words(self) -> bool:
        """Whether the slash command means nothing alone."""
        return bool(self.arguments) and not self.arguments.startswith("[")


ACTIONS = (
    Action("send", "send the message", "enter", "send", "composer", "send"),
    Action("newline", "start a new line", "ctrl+j,shift+enter,alt+enter", "newline", "composer", "newline"),
    Action("edit.undo", "undo what was typed or deleted last", "ctrl+underscore", "undo", "composer"),
    Action("history", "on the first row: earlier questions; down comes back", "up", "", "composer"),
    Action("page.up", "scroll the conversation up", "pageup", "page(-1)", "composer"),
    Action("page.down", "scroll the conversation down", "pagedown", "page(1)", "composer"),
    Action("chip.expand", "write out the pasted text or file at the cursor", "f7", "expand", "composer"),
    # Anywhere
    Action("cancel", "stop the answer; else close what is open, else go to the composer", "escape", "cancel", label="stop"),
    Action("help", "show all keys and commands", "f1", "help", label="help", slash="help"),
    Action("palette", "find anything that can be done, and do it", "ctrl+p", "palette", label="commands"),
    Action("quit", "save and leave", "ctrl+q", "quit", label="quit", slash="quit"),
    Action("session.new", "start a new conversation", "ctrl+n", "new", label="new", slash="new", arguments="[NAME]"),
    Action("session.switch", "find a conversation by its title", "ctrl+o", "find", label="find"),
    Action("session.open", "go on with another conversation", slash="open", arguments="NAME"),
    Action("session.list", "show all conversations, or those with WORD in name or title", slash="list", arguments="[WORD]"),
    Action("sidebar", "show or hide the list of conversations", "ctrl+b", "sidebar", label="list"),
    Action("panel", "show or hide the cache panel", "ctrl+t", "panel", label="cache"),
    Action("session.rename", "give this conversation another title", "f2", "rename", slash="rename", arguments="TITLE"),
    Action("session.next", "open the next conversation of the list", "ctrl+pagedown", "step(1)"),
    Action("session.previous", "open the previous conversation of the list", "ctrl+pageup", "step(-1)"),
    Action("session.delete", "move this conversation to the trash; /undo brings it back", slash="delete"),
    Action("session.undo", "bring back what was deleted last", slash="undo"),
    Action("session.erase", "remove this conversation for good, with the cached state that is its alone", slash="erase"),
    Action("session.pin", "keep this conversation on top of the list, or no longer", slash="pin"),
    Action("session.tag", "show the tags of this conversation, add some, take away those with a minus", slash="tag",
           arguments="[TAG -TAG]"),
    Action("session.archive", "put this conversation into the archive, or back into the list", slash="archive"),
    Action("session.trash", "show what is in the trash, or bring NAME back from it", slash="trash", arguments="[NAME]"),
    Action("search", "find messages in all conversations by their words; also role: after: before: tag: title: model:", "f4", "search",
           slash="search", arguments="[TEXT]"),
    Action("retry", "answer the last question again; the old answer is kept beside it", "ctrl+r", "retry", slash="retry"),
    Action("continue", "go on with an answer that was cut or stopped", "f5", "continue", slash="continue"),
    Action("system", "show or change the system prompt of this conversation; the price is said first", slash="system",
           arguments="[TEXT]"),
    Action("sampling", "show or change how this conversation samples, such as: /set temperature 0.2", slash="set",
           arguments="[KEY VALUE]"),
    Action("model", "show or change the model of this conversation", slash="model", arguments="[NAME]"),
    Action("stats", "show what the cache did; on the screen with plots over time", "f3", "statistics", slash="stats"),
    Action("unload", "let the model go from memory; the next message loads it again", slash="unload"),
    Action("export", "write this conversation to FILE: .md, .json with all branches, or .txt", slash="export", arguments="[FILE]"),
    Action("settings", "open the settings in $EDITOR", "", "settings", slash="config", plain=False),
    Action("editor", "write the message in $EDITOR", "ctrl+g", "editor", slash="editor", plain=False),
    Action("theme", "show the themes, or look at this chat in another one", slash="theme", arguments="[NAME]", plain=False),
    Action("copy", "copy what is selected; else stop the answer", "ctrl+c", "copy_or_stop"),
    Action("copy.answer", "copy the newest answer", "f6", "copy_answer"),
    Action("latest", "go to the newest text and follow it", "ctrl+l", "latest"),
    Action("suspend", "go back to the shell for a while; fg returns here", "ctrl+z", "suspend"),
    Action("pane.next", "go to the next pane (also tab, while nothing is written)", "f8", "next_pane"),
    Action("message.up", "go to the message above; keys then act on it", "alt+up", "message(-1)"),
    Action("message.down", "go to the message below; from the last one back to the composer", "alt+down", "message(1)"),
    Action("find", "find words in this conversation", "ctrl+f", "find_text", slash="find", arguments="[WORDS]"),
    Action("prune", "take this message and all below it away; /undo brings them back", slash="prune"),
    Action("branch", "show the versions of this message, or look at version N", slash="branch", arguments="[N]"),
    Action("branches", "all branches: look at one, take it or all others away", "", "branches", slash="branches"),
    # On a message
    Action("message.fold", "show or hide what the model thought", "space,enter", "wish('fold')", "message", "fold", "fold",
           plain=False),
    Action("message.copy", "copy this message, or its Nth block of code", "y", "wish('copy')", "message", "copy", "copy", "[N]"),
    Action("message.code", "copy the next block of code in it", "b", "wish('code')", "message", "code"),
    Action("message.edit", "ask the question in other words; the old path is kept", "e", "wish('edit')", "message", "edit",
           "edit", "[TEXT]"),
    Action("message.retry", "answer it again; the old answer is kept", "r", "wish('retry')", "message", "again"),
    Action("message.continue", "go on with this answer", "c", "wish('continue')", "message", "go on"),
    Action("message.fork", "go on from here in a new conversation", "f", "wish('fork')", "message", "fork", "fork", "[NAME]"),
    Action("version.previous", "look at the version before", "left_square_bracket,left", "wish('previous')", "message"),
    Action("version.next", "look at the next version of it", "right_square_bracket,right", "wish('next')", "message", "version"),
    Action("message.delete", "take it and all below it away", "d,delete", "wish('delete')", "message", "delete"),
    Action("message.undo", "bring back what was taken away last", "u", "wish('undo')", "message", "undo"),
    Action("attach", "put a text file into the message; @ and a name do the same", slash="attach", arguments="PATH"),
    Action("queue", "show the messages that wait for the model, or change them", slash="queue",
           arguments="[send | edit N | delete N | clear]"),
    # Among messages that wait
    Action("queue.up", "the message above", "up", "move(-1)", "queue"),
    Action("queue.down", "the message below", "down", "move(1)", "queue"),
    Action("queue.edit", "write it again", "enter,e", "edit", "queue", "edit"),
    Action("queue.delete", "forget it; its text goes to the composer's history", "d,delete", "drop", "queue", "delete"),
    # In panes that scroll
    Action("text.up", "one row up", "up", "scroll_up", "text"),
    Action("text.down", "one row down", "down", "scroll_down", "text"),
    Action("text.page.up", "one screen up", "pageup", "page_up", "text"),
    Action("text.page.down", "one screen down", "pagedown", "page_down", "text"),
    Action("text.home", "the beginning", "home", "scroll_home", "text"),
    Action("text.end", "the end", "end", "scroll_end", "text"),
    # While finding words
    Action("find.next", "the next place that has them", "enter,down", "go(1)", "find", "next"),
    Action("find.previous", "the place before", "up,shift+enter", "go(-1)", "find", "previous"),
    # On screens over the chat; "cancel" closes them, "quit" leaves
    Action("dialog.up", "one line up", "up", "move(-1)", "dialog"),
    Action("dialog.down", "one line down", "down", "move(1)", "dialog"),
    Action("dialog.page.up", "one screen up", "pageup", "page(-1)", "dialog"),
    Action("dialog.page.down", "one screen down", "pagedown", "page(1)", "dialog"),
    Action("branches.take", "take the branch away; /undo brings it back", "f8", "choose('take away')", "branches"),
    Action("branches.keep", "take all other branches away", "f9", "choose('keep alone')", "branches"),
    Action("question.yes", "yes", "y", "agree", "question"),
    Action("question.no", "no", "n,enter", "leave", "question"),
    Action("reading.close", "close it", "q,enter", "leave", "reading"),
    Action("reading.up", "one row up", "up,k", "scroll(-1)", "reading"),
    Action("reading.down", "one row down", "down,j", "scroll(1)", "reading"),
    Action("reading.page.up", "ten rows up", "pageup", "scroll(-10)", "reading"),
    Action("reading.page.down", "ten rows down", "pagedown,space", "scroll(10)", "reading"),
    Action("reading.home", "the beginning", "home", "scroll(-10000)", "reading"),
    Action("reading.end", "the end", "end", "scroll(10000)", "reading"),
    Action("reading.span", "statistics of another part of the time", "t", "span", "reading"),
    # In the list
    Action("open", "open the conversation", "enter", "open", "list", "open"),
    Action("filter", "show only titles with these words; esc shows all", "slash", "filter", "list", "filter"),
    Action("rename", "rename it", "r", "rename_row", "list", "rename"),
    Action("delete", "move it to the trash; in the trash: remove it for good", "d,delete", "delete_row", "list", "delete"),
    Action("undo", "bring back what was deleted last; in the trash: this one", "u", "undo", "list", "undo"),
    Action("pin", "keep it on top, or no longer", "p", "pin_row", "list"),
    Action("tags", "change its tags", "t", "tag_row", "list"),
    Action("archive", "put it into the archive, or back into the list", "a", "archive_row", "list"),
    Action("mark", "mark it; p, t, a, d and u then mean all that are marked", "x", "mark_row", "list"),
    Action("mark.all", "mark all that are shown, or none of them", "X", "mark_all", "list"),
    Action("sort", "sort by another thing: newest, name, size", "s", "sort", "list"),
    Action("place", "go to the next place: list, archive, trash", "v", "next_place", "list", "place"),
)  # fmt: skip
