"""Blocks of code in a message, for copying.

Pure. Blocks are numbered from 1 in the order of the text, as a person counts them on screen. Loads a parser of Markdown.
"""

from markdown_it import MarkdownIt

from localkv.chat.thoughts import answer_of
from localkv.chat.visible import visible


def code_blocks(text: str) -> list[str]:
    """The code in the answer `text`, each block without its fence and without the newline at its end."""
    parser = MarkdownIt("commonmark", {"html": False})
    tokens = parser.parse(visible(answer_of(text)))
    return [token.content.removesuffix("\n") for token in tokens if token.type in {"fence", "code_block"}]
