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
    lines: list[list[Span]] = [[]]
    for text, style in _tokens(code, language, palette):
        head, *more = text.split("\n")
        if head:
            lines[-1].append((head, style))
        lines.extend([(part, style)] if part else [] for part in more)
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _tokens(code: str, language: str, palette: Palette) -> Iterable[Span]:
    if not language or len(code) > MAX_HIGHLIGHT_CHARS:
        return [(code, palette.block)]
    lexer = Syntax("", language.split(maxsplit=1)[0]).lexer
    if lexer is None:
        return [(code, palette.block)]
    return [(text, _style(str(kind), palette)) for kind, text in lexer.get_tokens(code)]


def _style(kind: str, palette: Palette) -> Style:
    for prefix, name in _KINDS:
        if kind.startswith(prefix):
            return palette.syntax[name]
    return palette.block
