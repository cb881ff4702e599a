"""Links that a terminal opens: which targets are safe to hand to it, and addresses that stand in plain text.

Pure. A terminal that knows OSC 8 opens the whole target, however it wraps; others show the text as it is. Targets come from
models and strangers: only the web and mail are linked, and only printable ASCII gets into the escape sequence.
"""

import re

from rich.style import Style

from localkv.tui.rows import Span

_SCHEMES = ("https://", "http://", "mailto:")
_BARE = re.compile(r"https?://[^\s<>\"'`\u2018-\u201f]+")
_ENDS = ".,;:!?"
MAX_TARGET = 2_000


def linked(style: Style, target: str) -> Style:
    """`style`, opening `target` where a terminal may do so."""
    if not target.lower().startswith(_SCHEMES) or len(target) > MAX_TARGET or not target.isascii() or not target.isprintable():
        return style
    return style + Style(link=target)


def with_links(text: str, style: Style, link: Style) -> list[Span]:
    """`text` in `style`, the addresses in it as links."""
    if "://" not in text:
        return [(text, style)]
    spans: list[Span] = []
    done = 0
    for match in _BARE.finditer(text):
        target = _trimmed(match[0])
        end = match.start() + len(target)
        spans += [(text[done : match.start()], style), (target, linked(style + link, target))]
        done = end
    spans.append((text[done:], style))
    return [(part, each) for part, each in spans if part]


def _trimmed(target: str) -> str:
    """Without the punctuation of the sentence around it."""
    target = target.rstrip(_ENDS)
    while target.endswith(")") and target.count(")") > target.count("("):
        target = target[:-1].rstrip(_ENDS)
    return target
