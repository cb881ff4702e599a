"""The text of an answer that is still growing, as rows, at a cost that follows what is new.

Pure. Blocks that can't change any more are rendered once; only the open tail is rendered again. An open fence adds plain
lines, which are coloured some at a time, and all together when it closes. Of a list or table that is not short, only whole
lines are rendered, when one more is complete. A very long open block is shown plain until its end, each of its rows made
once. A cut is made only where the rendering of both sides is the rendering of the whole: before a fence, after one, and at a
blank line before text that is neither indented nor a list item.
"""

import re

from localkv.tui.clean import harmless
from localkv.tui.code import code_head, code_line, code_part
from localkv.tui.markdown import Markdown
from localkv.tui.rows import BLANK, Row

MAX_TAIL_CHARS = 3_000
"""A longer open block is shown without Markdown: 3,000 characters of a list take 5 ms, of a paragraph 0.7 ms."""

MAX_TABLE_CHARS = 2_000
"""The same for a table, of which 1,500 characters take 7 ms."""

SHORT_CHARS = 1_000
"""A shorter list or table is rendered with the line that is being written."""

COLOUR_LINES = 4
"""An open fence is coloured for the first time when it has so many lines."""

MAX_COLOUR_LINES = 40
"""More are not coloured at once before the fence closes: 300 lines take 50 ms. Where they begin inside a string or comment, the line
that opened it is read before them, so that they are coloured as what they are."""

_FENCE = re.compile(r"^ {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))$")
_FENCE_END = re.compile(r"^ {0,3}(`{3,}|~{3,}) *$")
_LINES = re.compile(r"^(\s*[-+*]\s|\s*\d+[.)]\s|\s*\|)")
"""Begins a block in which each line stands for itself."""
_CONTINUES = re.compile(r"^(\s|([-+*]|\d+[.)])(\s|$))")


class OpenText:
    """One growing text for one width."""

    def __init__(self, markdown: Markdown, width: int) -> None:
        self._markdown = markdown
        self.width = width
        self._raw = ""
        self._ends_with_cr = False
        self._text = ""
        self._closed = 0
        self._scanned = 0
        self._blank = False
        self._fence = ""
        self._language = ""
        self._rows: list[Row] = []
        self._code: list[Row] = []
        self._code_lines: list[tuple[int, int]] = []
        """Where in the text each line of the open fence begins, and at which of its rows."""
        self._openers: list[int] = []
        """For each line that was coloured, and the next: which line opened the string or comment in which it begins; -1: it begins in none."""
        self._code_done = 0
        self._colour_at = 0
        self._plain: list[Row] = []
        self._plain_done = 0
        self._plain_of = 0
        self._lines: list[Row] = []
        self._lines_of = (0, 0)

    def begins(self, raw: str, width: int) -> bool:
        """Whether `raw` at `width` is this text, with or without more behind it: 0.1 ms for a megabyte."""
        return self.width == width and raw.startswith(self._raw)

    def grow(self, raw: str) -> None:
        """Take in `raw`, all text so far; only what is longer than before is looked at."""
        new = raw[len(self._raw) :]
        self._raw = raw
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
            elif (match := _FENCE.match(line)) and self._begins_block(start, end):
                self._close(start)
                self._fence, self._language = match[1] or match[3], (match[2] or match[4] or "").strip()
                self._code, self._code_lines, self._code_done = [], [], end + 1
                self._openers, self._colour_at = [-1], COLOUR_LINES
            elif self._blank and line and not _CONTINUES.match(line):
                self._close(start)
            self._blank = not line.strip(" ")

    def _begins_block(self, start: int, end: int) -> bool:
        """Whether the fence in the line from `start` to `end` is in no list. Of one that is indented only the parser knows."""
        return self._text[start] != " " or self._markdown.begins_block(self._text[self._closed : end], start - self._closed)

    def _in_fence(self, line: str, end: int) -> None:
        if (match := _FENCE_END.match(line)) and match[1].startswith(self._fence):
            self._fence = ""
            self._close(end)
            return
        spans = [(line, self._markdown.palette.block)] if line else []
        self._code_lines.append((self._code_done, len(self._code)))
        self._code += code_line(spans, self.width, self._markdown.palette)
        self._code_done = end
        if len(self._code_lines) >= self._colour_at:
            self._colour()

    def _colour(self) -> None:
        """Colour the lines so far, each time there are half as many again; of a long block only those that are new."""
        palette, n_lines = self._markdown.palette, len(self._code_lines)
        step = min(max(COLOUR_LINES, n_lines // 2), MAX_COLOUR_LINES)
        first = 0 if n_lines <= MAX_COLOUR_LINES else n_lines - step
        self._colour_at = n_lines + step
        start, row = self._code_lines[first]
        opener = self._openers[first]
        before = "" if opener < 0 else self._text[self._code_lines[opener][0] : self._code_lines[opener + 1][0]]
        lines, inside = code_part(before + self._text[start : self._code_done], self._language, palette)
        skipped = min(1, len(before))
        del lines[:skipped]
        lines += [[] for _ in range(n_lines - first - len(lines))]
        del self._openers[first + 1 :]
        for at in range(first, n_lines):
            known = self._openers[at]
            self._openers.append(-1 if at - first + skipped not in inside else known if known >= 0 else at)
        self._code[row:] = [made for line in lines for made in code_line(line, self.width, palette)]

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
        size = len(self._text) - self._closed
        of_lines = _LINES.match(self._text, self._closed)
        if size > MAX_TAIL_CHARS or (size > MAX_TABLE_CHARS and of_lines and of_lines[1].endswith("|")):
            return self._plain_rows()
        if of_lines and size > SHORT_CHARS:
            return self._whole_lines()
        return self._markdown.rows(self._text[self._closed :], self.width)

    def _whole_lines(self) -> list[Row]:
        """The tail with its last line plain: the others are rendered only when one more is complete."""
        end = self._scanned
        if self._lines_of != (self._closed, end):
            self._lines = self._markdown.rows(self._text[self._closed : end], self.width)
            self._lines_of = (self._closed, end)
        rest = self._text[end:]
        return [*self._lines, *(self._markdown.plain(rest, self.width) if rest.strip() else [])]

    def _plain_rows(self) -> list[Row]:
        """The tail without Markdown. Rows stay as they are once two more stand below them in the same line."""
        if self._plain_of != self._closed:
            self._plain, self._plain_done, self._plain_of = [], self._closed, self._closed
        while (end := self._text.find("\n", self._plain_done)) >= 0:
            self._plain += self._markdown.plain(self._text[self._plain_done : end], self.width)
            self._plain_done = end + 1
        last = self._markdown.plain(self._text[self._plain_done :], self.width)
        for done in last[:-2]:
            self._plain_done += len(done.text) + len(done.glue)
        self._plain += last[:-2]
        shown = [*self._plain, *last[-2:]]
        while shown and not shown[-1].text:
            shown.pop()
        return shown
