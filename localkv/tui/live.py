"""The text of an answer that is still growing, as rows, at a cost that follows what is new.

Pure. Blocks that can't change any more are rendered once; only the open tail is rendered again. An open fence adds plain
lines and is coloured when it closes; a long open list or table is shown plain until its end. A cut is made only where the
rendering of both sides is the rendering of the whole: before a fence, after one, and at a blank line before text that is
neither indented nor a list item.
"""

import re

from localkv.tui.clean import harmless
from localkv.tui.code import code_head, code_line
from localkv.tui.markdown import Markdown
from localkv.tui.rows import BLANK, Row

MAX_TAIL_CHARS = 3_000
"""A longer open block is shown without Markdown: 3,000 characters take about 5 ms, ten times a second."""

_FENCE = re.compile(r"^(`{3,}|~{3,})(.*)$")
_CONTINUES = re.compile(r"^(\s|[-+*]\s|\d+[.)]\s|[-+*]$)")


class OpenText:
    """One growing text for one width."""

    def __init__(self, markdown: Markdown, width: int) -> None:
        self._markdown = markdown
        self.width = width
        self.raw_length = 0
        self._ends_with_cr = False
        self._text = ""
        self._closed = 0
        self._scanned = 0
        self._blank = False
        self._fence = ""
        self._language = ""
        self._rows: list[Row] = []
        self._code: list[Row] = []
        self._code_done = 0

    def grow(self, raw: str) -> None:
        """Take in `raw`, all text so far; only what is longer than before is looked at."""
        new = raw[self.raw_length :]
        self.raw_length = len(raw)
        if not new:
            return
        head = new.removeprefix("\n") if self._ends_with_cr else new
        self._ends_with_cr = new.endswith("\r")
        self._text += harmless(head)
        self._scan()

    def rows(self) -> list[Row]:
        """Everything as rows now."""
        tail = self._tail()
        return [*self._rows, *([BLANK] if self._rows and tail else []), *tail]

    def finish(self) -> list[Row]:
        """Everything as rows, now that nothing follows."""
        self._close(len(self._text))
        return self._rows

    def _scan(self) -> None:
        """Look at the lines that became complete."""
        while (end := self._text.find("\n", self._scanned)) >= 0:
            line = self._text[self._scanned : end]
            start, self._scanned = self._scanned, end + 1
            if self._fence:
                self._in_fence(line, end + 1)
            elif match := _FENCE.match(line):
                self._close(start)
                self._fence, self._language = match[1], match[2].strip()
                self._code, self._code_done = [], end + 1
            elif self._blank and line and not _CONTINUES.match(line):
                self._close(start)
            self._blank = not line.strip()

    def _in_fence(self, line: str, end: int) -> None:
        bare = line.strip()
        if bare.startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""
            self._close(end)
            return
        spans = [(line, self._markdown.palette.block)] if line else []
        self._code += code_line(spans, self.width, self._markdown.palette)
        self._code_done = end

    def _close(self, end: int) -> None:
        """What stands before `end` will not change any more."""
        made = self._markdown.rows(self._text[self._closed : end], self.width)
        if made:
            self._rows += [BLANK, *made] if self._rows else made
        self._closed = end

    def _tail(self) -> list[Row]:
        if self._fence:
            head = [code_head(self._language, self.width, self._markdown.palette)] if self._language else []
            rest = self._text[self._code_done :]
            last = code_line([(rest, self._markdown.palette.block)], self.width, self._markdown.palette) if rest else []
            return [*head, *self._code, *last]
        tail = self._text[self._closed :]
        if len(tail) > MAX_TAIL_CHARS:
            return self._markdown.plain(tail.rstrip("\n"), self.width)
        return self._markdown.rows(tail, self.width)
