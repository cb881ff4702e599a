"""How the chat listens to a terminal: it sleeps until something is typed.

Textual's own listener wakes ten times a second to see whether a lone Esc was the beginning of a longer key; this one does so
only after an Esc. It takes a terminal that is gone for what it is, a hang-up: Textual would read its end over and over. And it
believes the terminal about its size: Textual believes $COLUMNS and $LINES, which stay what they were when the window changes.
POSIX only; Windows keeps Textual's listener.
Thread: `run_input_thread` has its own, as in Textual; the rest is the UI's.
"""

import codecs
import os
import selectors
import signal

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from localkv.tui.listening import Listener

ESCAPE_SECONDS = 0.05
"""How often it is looked whether what follows an Esc is still to come."""

_CHUNK = 4096


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
        listener = Listener(debug=self._debug)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._stop_reading, selectors.EVENT_READ)
            while True:
                waiting = ESCAPE_SECONDS if listener.waits else None
                ready = {key.fileobj for key, _ in selector.select(waiting)}
                if self._stop_reading in ready:
                    os.read(self._stop_reading, 1)
                    return
                if self.fileno in ready and not self._take(listener, decoder):
                    os.kill(os.getpid(), signal.SIGHUP)
                    return
                for event in listener.tick():
                    self.process_message(event)

    def _take(self, listener: Listener, decoder: codecs.IncrementalDecoder) -> bool:
        """Hand on what is there to read; whether the terminal still is."""
        try:
            data = os.read(self.fileno, _CHUNK)
        except OSError:
            return False
        if text := decoder.decode(data):
            for event in listener.feed(text):
                self.process_message(event)
        return bool(data)

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self.fileno)
        except OSError:
            columns = rows = 0  # the terminal is gone
        return (columns, rows) if columns and rows else super()._get_terminal_size()  # a serial line knows no size
