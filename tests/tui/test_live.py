"""The growing text: the same rows as the whole, at a cost that follows what is new."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.tui.clean import harmless
from localkv.tui.live import OpenText
from tests.tui.samples import EVERYTHING, MARKDOWN, texts


def finished(text, cuts, width=60):
    live = OpenText(MARKDOWN, width)
    for end in [*cuts, len(text)]:
        live.grow(text[:end])
        live.rows()
    return live.finish()


@pytest.mark.parametrize("seed", range(5))
def test_the_end_is_the_whole(seed):
    """However the text came in, its rows at the end are those of the text at once."""
    source = random.Random(seed)
    cuts = sorted(source.randrange(len(EVERYTHING)) for _ in range(40))
    assert texts(finished(EVERYTHING, cuts)) == texts(MARKDOWN.rows(EVERYTHING, 60))


@given(
    st.lists(
        st.sampled_from(
            ["para\n", "\n", "- item\n", "  more\n", "1. x\n", "```\n", "code\n", "> q\n", "| a |\n|---|\n", "# h\n", "~~~\n"]
        ),
        max_size=14,
    )
)
def test_cuts_change_nothing(lines):
    """Blocks are cut only where the rows of the parts are the rows of the whole."""
    text = "".join(lines)
    whole = [row for row in texts(MARKDOWN.rows(text, 60)) if row]
    grown = [row for row in texts(finished(text, range(1, len(text)))) if row]
    assert grown == whole


def test_a_carriage_return_between_two_pieces():
    """CR LF that is torn apart is one newline."""
    live = OpenText(MARKDOWN, 60)
    live.grow("a\r")
    live.grow("a\r\nb")
    assert texts(live.finish()) == ["a", "b"]


def test_hostile_pieces_are_cleaned():
    """An escape sequence that comes in pieces is dead on arrival."""
    live = OpenText(MARKDOWN, 60)
    live.grow("x\x1b")
    live.grow("x\x1b[2J")
    assert texts(live.rows()) == ["x^[[2J"]


def test_an_open_fence_shows_its_lines():
    """Code is on screen before its fence closes, the unfinished line too."""
    live = OpenText(MARKDOWN, 40)
    live.grow("```rust\nlet a = 1;\nlet b")
    assert texts(live.rows()) == [" rust", " let a = 1;", " let b"]


def test_closed_blocks_are_rendered_once(monkeypatch):
    """Markdown is parsed again only for the open tail: work does not grow with the length of the answer."""
    seen = []
    real = type(MARKDOWN).rows
    monkeypatch.setattr(type(MARKDOWN), "rows", lambda self, text, width: (seen.append(len(text)), real(self, text, width))[1])
    live = OpenText(MARKDOWN, 60)
    text = ""
    for index in range(200):
        text += f"paragraph {index} with words\n\n"
        live.grow(text)
        live.rows()
    assert max(seen) < 100
    fence = text + "```python\n" + "x = 1\n" * 300
    seen.clear()
    live.grow(fence)
    live.rows()
    assert max(seen, default=0) < 100


def test_a_long_open_block_is_shown_plain():
    """A list too long to be rendered ten times a second shows as text until it ends."""
    text = "".join(f"- **item** {index}\n" for index in range(400))
    live = OpenText(MARKDOWN, 60)
    live.grow(text)
    assert live.rows()[0].strip.text == "- **item** 0"
    assert texts(live.finish())[0] == "- item 0"


@given(st.text(max_size=60))
def test_growing_never_fails(text):
    """Any text may arrive, character by character."""
    live = OpenText(MARKDOWN, 20)
    for end in range(len(text) + 1):
        live.grow(text[:end])
        live.rows()
    assert live._text == harmless(text)
