"""Code in fences as coloured rows.

Pure. The lexer is Pygments', found through Rich; colours are the theme's own, because Pygments' styles are made for grounds
that ours are not. Long lines wrap, and copying takes them whole.
"""

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from textual.strip import Strip

from localkv.tui.rows import Row, Span, fill, row, wrap
from localkv.tui.theme import Palette

MAX_HIGHLIGHT_CHARS = 40_000
"""Longer code stays in one colour: Pygments needs about 1 ms for 1,000 characters."""

PAD = 1
"""Cells between the edge of the block and the code."""

_KINDS = (
    ("Token.Keyword", "keyword"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "type"),
    ("Token.Name.Builtin", "type"),
    ("Token.Name.Tag", "keyword"),
    ("Token.Name.Attribute", "name"),
    ("Token.Name.Decorator", "name"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Comment", "comment"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Operator", "operator"),
)

_GOES_ON = ("Token.Literal.String", "Token.Comment")
_ENDS_WITH_LINE = ("Token.Comment.Single", "Token.Comment.Hashbang", "Token.Comment.Preproc", "Token.Comment.PreprocFile")
"""Kinds of tokens that may go on in the next line, and those of them that don't, although their newline may be theirs."""


def code_rows(code: str, language: str, width: int, palette: Palette) -> list[Row]:
    """`code` as a block `width` cells wide, with its language above it if it names one."""
    lines = code_lines(code, language, palette)
    head = [code_head(language, width, palette)] if language else []
    return [*head, *(block for line in lines for block in code_line(line, width, palette))]


def code_head(language: str, width: int, palette: Palette) -> Row:
    """The row that names the language; copying passes over it."""
    style = palette.muted + Style(bgcolor=palette.block.bgcolor)
    shown = language[: max(0, width - 2 * PAD)]
    label = " " * PAD + shown
    return Row(Strip([Segment(label.ljust(width), style)], max(width, len(label))), "", width, "")


def code_line(spans: list[Span], width: int, palette: Palette) -> list[Row]:
    """One line of code as rows filled to `width`."""
    pad = (" " * PAD, palette.block)
    rows = wrap(spans, max(4, width - 2 * PAD))
    made = []
    for inner in rows:
        parts = [pad, *((segment.text, segment.style or palette.block) for segment in inner.strip)]
        made.append(fill(row(parts, text=inner.text, gutter=PAD, glue=inner.glue), width, palette.block))
    return made


def code_lines(code: str, language: str, palette: Palette) -> list[list[Span]]:
    """The lines of `code` as coloured spans."""
    return code_part(code, language, palette)[0]


def code_part(code: str, language: str, palette: Palette) -> tuple[list[list[Span]], set[int]]:
    """The lines of `code` as coloured spans, and which of them end inside a string or comment that goes on in the next line."""
    lines: list[list[Span]] = [[]]
    inside: set[int] = set()
    for text, kind in _tokens(code, language):
        head, *more = text.split("\n")
        style = _style(kind, palette)
        if kind.startswith(_GOES_ON) and kind not in _ENDS_WITH_LINE:
            inside.update(range(len(lines) - 1, len(lines) - 1 + len(more)))
        if head:
            lines[-1].append((head, style))
        lines.extend([(part, style)] if part else [] for part in more)
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines, inside


def _tokens(code: str, language: str) -> Iterable[tuple[str, str]]:
    if not language or len(code) > MAX_HIGHLIGHT_CHARS:
        return [(code, "")]
    lexer = Syntax("", language.split(maxsplit=1)[0]).lexer
    if lexer is None:
        return [(code, "")]
    return [(text, str(kind)) for kind, text in lexer.get_tokens(code)]


def _style(kind: str, palette: Palette) -> Style:
    for prefix, name in _KINDS:
        if kind.startswith(prefix):
            return palette.syntax[name]
    return palette.block
