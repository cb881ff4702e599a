"""How the chat listens to a terminal: it sleeps until something is typed.

Textual's own listener wakes ten times a second to see whether a lone Esc was the beginning of a longer key; this one does so
only after an Esc. It also tells alt+enter from enter where the terminal sends Esc and Enter for it, and takes a terminal that
is gone for what it is, a hang-up: Textual would read its end over and over. POSIX only; Windows keeps Textual's listener.
Thread: `run_input_thread` has its own, as in Textual; the rest is the UI's.
"""

import codecs
import os
import re
import selectors
import signal

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

ESCAPE_SECONDS = 0.05
"""How often it is looked whether what follows an Esc is still to come."""

_CHUNK = 4096
_ALT_ENTER, _CLEAR_ALT_ENTER = "\x1b\r", "\x1b[13;3u"
"""What older terminals send for alt+enter, and the spelling that says so."""

_PASTE_MARKS = re.compile(r"(\x1b\[20[01]~)")
_PASTE_BEGINS = "\x1b[200~"


class Clearer:
    """Rewrites keys that Textual would take for others, whatever was typed right before and after; pastes stay as they are."""

    def __init__(self) -> None:
        self._pasting = False

    def understood(self, sent: str) -> str:
        """What a terminal sent, piece by piece."""
        clear = []
        for part in _PASTE_MARKS.split(sent):
            if _PASTE_MARKS.fullmatch(part):
                self._pasting = part == _PASTE_BEGINS
            clear.append(part if self._pasting else part.replace(_ALT_ENTER, _CLEAR_ALT_ENTER))
        return "".join(clear)


class RestingDriver(LinuxDriver):
    """Textual's driver with a listener that rests."""

    def __init__(
        self, app: App[object], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._stop_reading, self._stop_writing = os.pipe()

    def disable_input(self) -> None:
        """Wake the listener, so that it ends."""
        if self._key_thread is not None and self._key_thread.is_alive():
            os.write(self._stop_writing, b".")
        super().disable_input()

    def run_input_thread(self) -> None:
        """Hand on what is typed until `disable_input`, or until the terminal is gone."""
        parser = XTermParser(self._debug)
        decoder, clearer = codecs.getincrementaldecoder("utf-8")("replace"), Clearer()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._stop_reading, selectors.EVENT_READ)
            while True:
                waiting = None if parser._timeout_time is None else ESCAPE_SECONDS
                ready = {key.fileobj for key, _ in selector.select(waiting)}
                if self._stop_reading in ready:
                    os.read(self._stop_reading, 1)
                    return
                if self.fileno in ready and not self._take(parser, decoder, clearer):
                    os.kill(os.getpid(), signal.SIGHUP)
                    return
                for event in parser.tick():
                    self.process_message(event)

    def _take(self, parser: XTermParser, decoder: codecs.IncrementalDecoder, clearer: Clearer) -> bool:
        """Hand on what is there to read; whether the terminal still is."""
        try:
            data = os.read(self.fileno, _CHUNK)
        except OSError:
            return False
        if text := decoder.decode(data):
            for event in parser.feed(clearer.understood(text)):
                self.process_message(event)
        return bool(data)
