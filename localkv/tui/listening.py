"""What a terminal sends, as events: Textual's parser, with what it takes for something else said so that it understands.

Textual tells alt+enter from enter only where the terminal spells it out. And it looks for keys inside of a paste: an escape character
in pasted text makes keys of the next characters, Enter among them, and puts them before the rest of the paste. So inside the marks of
a paste escape characters travel under another name. Knows no terminal and no widgets. Thread: the caller's.
"""

import re
from collections.abc import Iterator

from textual._xterm_parser import XTermParser
from textual.events import Paste
from textual.message import Message

ESCAPE = "\x1b"
_DISGUISED = "\udc1b"
"""Nothing that was decoded holds a lone surrogate."""

_ALT_ENTER, _CLEAR_ALT_ENTER = "\x1b\r", "\x1b[13;3u"
"""What older terminals send for alt+enter, and the spelling that says so."""

_BEGINS, _ENDS = "\x1b[200~", "\x1b[201~"
_BEGUN_END = re.compile("(\x1b(\\[(2(0(1)?)?)?)?)?$")


class Clearer:
    """Rewrites what Textual would misunderstand, wherever a read from the terminal ends."""

    def __init__(self) -> None:
        self._pasting = False
        self._passed = ""
        """The end of what came before, as long as it may be the beginning of a mark or of alt+enter."""

    def understood(self, sent: str) -> str:
        """What a terminal sent, piece by piece."""
        clear = []
        while sent:
            part, sent = self._pasted(sent) if self._pasting else self._typed(sent)
            clear.append(part)
        return "".join(clear)

    def forget(self) -> None:
        """Nothing followed in time: what was typed before begins nothing."""
        if not self._pasting:
            self._passed = ""

    def _typed(self, sent: str) -> tuple[str, str]:
        """Keys up to the mark that begins a paste, and the rest. What comes in two parts, a mark or alt+enter, is passed on in two."""
        if sent.startswith(_ALT_ENTER[1:]) and self._passed.endswith(ESCAPE):
            sent = _CLEAR_ALT_ENTER[1:] + sent[1:]
        seen = self._passed + sent
        at = seen.find(_BEGINS)
        self._pasting = at >= 0
        end = at + len(_BEGINS) - len(self._passed) if self._pasting else len(sent)
        self._passed = "" if self._pasting else seen[1 - len(_BEGINS) :]
        return sent[:end].replace(_ALT_ENTER, _CLEAR_ALT_ENTER), sent[end:]

    def _pasted(self, sent: str) -> tuple[str, str]:
        """Pasted text with the mark that ends it, and the rest. What may be the beginning of that mark waits for its end."""
        sent, self._passed = self._passed + sent, ""
        at = sent.find(_ENDS)
        if at >= 0:
            self._pasting = False
            return sent[:at].replace(ESCAPE, _DISGUISED) + _ENDS, sent[at + len(_ENDS) :]
        begun = _BEGUN_END.search(sent)
        self._passed = begun[0] if begun else ""
        return sent[: len(sent) - len(self._passed)].replace(ESCAPE, _DISGUISED), ""


class Listener:
    """The events of one terminal."""

    def __init__(self, *, debug: bool = False) -> None:
        self._clearer = Clearer()
        self._parser = XTermParser(debug)

    @property
    def waits(self) -> bool:
        """Whether an escape character came that may be the beginning of a key."""
        return self._parser._timeout_time is not None

    def feed(self, sent: str) -> Iterator[Message]:
        """The events of what was sent now."""
        if not self.waits:
            self._clearer.forget()
        if understood := self._clearer.understood(sent):  # nothing would be the end of all
            yield from map(_faithful, self._parser.feed(understood))

    def tick(self) -> Iterator[Message]:
        """The events of what nothing followed in time."""
        yield from map(_faithful, self._parser.tick())

    def end(self) -> Iterator[Message]:
        """The events of what nothing will follow."""
        yield from map(_faithful, self._parser.feed(""))


def _faithful(event: Message) -> Message:
    return Paste(event.text.replace(_DISGUISED, ESCAPE)) if isinstance(event, Paste) else event
