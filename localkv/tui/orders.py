"""Slash commands about a message: which message they mean, and what their argument says. What is done, Acts do.

Thread: the UI's. Refusals are LocalKVErrors for the caller to show.
"""

from collections.abc import Callable, Sequence

from localkv.commands.waiting import brief
from localkv.errors import ConfigError, UnknownConversation
from localkv.tui.acts import Acts
from localkv.tui.pages import Entry
from localkv.tui.transcript import Transcript
from localkv.units import whole_number


def give(acts: Acts, transcript: Transcript, name: str, argument: str) -> None:
    """Do what "/`name` `argument`" says. Raises LocalKVError."""
    orders: dict[str, Callable[[Entry], None]] = {
        "fold": lambda entry: acts.fulfil("fold", entry),
        "copy": lambda entry: acts.copy_code(entry, number(argument)) if argument else acts.copy(entry),
        "edit": lambda entry: acts.edit_to(entry, argument) if argument else acts.fulfil("edit", entry),
        "fork": lambda entry: acts.fork(entry.id, argument),
        "branch": lambda entry: acts.look_at_version(entry, number(argument)) if argument else acts.tell_versions(entry),
        "prune": lambda entry: acts.take_away(entry.id),
    }
    orders[name](transcript.chosen or meant(transcript.entries, name))


def meant(entries: Sequence[Entry], name: str) -> Entry:
    """The message that a command means where the cursor is on none. Raises UnknownConversation for an empty conversation.

    Versions are the last ones there are; copied and unfolded is the last answer; edited, forked at and pruned the last message.
    """
    fits = {"branch": _has_versions, "copy": _is_answer, "fold": _is_answer}.get(name, _is_any)
    found = next((entry for entry in reversed(entries) if fits(entry)), None)
    if found is None and name == "branch":
        raise UnknownConversation("no message of this conversation has another version; /retry or /edit TEXT makes some")
    if found is None:
        raise UnknownConversation("nothing was said in this conversation yet")
    return found


def number(text: str) -> int:
    """The number that `text` is. Raises ConfigError."""
    found = whole_number(text)
    if not found:
        raise ConfigError(f'"{brief(text)}" is no number; write 1, 2 and so on')
    return found


def _has_versions(entry: Entry) -> bool:
    return bool(entry.versions)


def _is_answer(entry: Entry) -> bool:
    return entry.role == "assistant"


def _is_any(entry: Entry) -> bool:
    return bool(entry.id)
