"""The growing text: the same rows as the whole, at a cost that follows what is new."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localkv.tui import live as live_module
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


LINES = [
    "para\n", "\n", "- item\n", "  more\n", "1. x\n", "2.\n", "- \n", "   y\n", "```\n", "code\n", "> q\n", "| a |\n|---|\n", "# h\n",
    "~~~\n", "```x```\n", "~~~ a`b\n", "````\n", " ```\n", "  ```\n", "   ```\n", "    ```\n", "- ```\n", "  ~~~\n", "``` \n", "```\u00a0\n",
    "\u00a0\n", ">\n", "after *b*\n", "---\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(LINES), max_size=14))
def test_cuts_change_nothing(lines):
    """Blocks are cut only where the rows of the parts are the rows of the whole."""
    text = "".join(lines)
    assert texts(finished(text, range(1, len(text)))) == texts(MARKDOWN.rows(text, 60))


@pytest.mark.parametrize("text", [
    "```x```\n\npara\n\n```\ncode\n```\n\nafter *b*",
    "``` a`b\n\n```\n*code*\n```\n\nafter *b*",
    " ```\n*code*\n\nmore\n ```\n\nafter *b*",
    " ```\n*code*\n```\n\nafter *b*",
    "```\n*code*\n    ```\n\nmore\n```\n\nafter *b*",
    "```\n*code*\n```\u00a0\n\nmore\n```\n\nafter *b*",
    "~~~ a`b\n*code*\n~~~\n\nafter *b*",
    "- item\n\n  ```\n  *code*\n\n  more\n  ```\n\nafter *b*",
    "1. item\n  ```\n*code*\n\nmore\n  ```\n\nafter *b*",
])  # fmt: skip
def test_what_is_a_fence_the_parser_says(text):
    """Backticks in a line, fences that are indented, in lists and out of them, and ends that are none: text after them is no code."""
    rows = finished(text, range(1, len(text)))
    assert texts(rows) == texts(MARKDOWN.rows(text, 60))
    assert texts(rows)[-1] == "after b"


def test_fences_in_a_list_cost_little(monkeypatch):
    """Of a list with fences in it only the blocks are looked at again, at its fences; it is rendered as any other."""
    looked = []
    real = type(MARKDOWN).begins_block
    monkeypatch.setattr(type(MARKDOWN), "begins_block", lambda *facts: (looked.append(len(facts[1])), real(*facts))[1])
    live = OpenText(MARKDOWN, 60)
    text = "1. step\n\n   ```sh\n   run\n   ```\n\n" * 50
    for end in range(len(text)):
        live.grow(text[:end])
    assert len(looked) <= 100


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


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["word ", "  ", "漢字、", "a-very-long-word-that-breaks", "\n", "👩\u200d💻", "x"]), min_size=1),
    st.integers(8, 40),
    st.integers(1, 7),
)
def test_a_long_open_block_is_the_plain_text(parts, width, step):
    """However it comes in, its rows are those of the text without Markdown, each made once."""
    text = "b" + "".join(parts) * 3
    live = OpenText(MARKDOWN, width)
    for end in [*range(1, len(text), step), len(text)]:
        live.grow(text[:end])
        shown = live._plain_rows()
        whole = MARKDOWN.plain(text[live._closed : end].rstrip("\n"), width)
        while whole and not whole[-1].text:
            whole.pop()
        assert [(row.strip.text, row.text, row.glue) for row in shown] == [
            (row.strip.text, row.text, row.glue) for row in whole
        ]


@pytest.mark.slow
@pytest.mark.parametrize(("head", "line"), [
    ("", "- an item of a list with words\n"),
    ("| a | b |\n|---|---|\n", "| cell one | cell two |\n"),
    ("", "1. a step with a few words\n"),
    ("", "plain words of one paragraph "),
])  # fmt: skip
def test_an_open_block_costs_what_is_new(monkeypatch, head, line):
    """A list, table or paragraph of any length: text that is rendered again does not grow with it."""
    seen = []
    for name in ("rows", "plain"):
        real = getattr(type(MARKDOWN), name)
        monkeypatch.setattr(
            type(MARKDOWN), name, lambda self, text, width, real=real: (seen.append(len(text)), real(self, text, width))[1]
        )
    live = OpenText(MARKDOWN, 60)
    text = head + line * 400
    for end in range(len(head), len(text), 7):
        live.grow(text[:end])
        live.rows()
    assert max(seen) <= 3_000 + len(line) + 7
    late = len(seen) // 2
    assert sum(seen[late:]) / len(seen[late:]) < 300


def test_the_last_line_of_a_list_is_there_at_once():
    """What is being written is on screen before its line ends, also in a list that is not short."""
    live = OpenText(MARKDOWN, 60)
    text = "- an item of a list with words\n" * 40 + "- the newest wor"
    live.grow(text)
    assert texts(live.rows())[-1] == "- the newest wor"
    assert len(texts(live.rows())) == 41


def colours(rows):
    return {segment.style.color for row in rows[1:] for segment in row.strip if segment.text.strip()}


def test_an_open_fence_is_coloured_as_it_grows(monkeypatch):
    """Code has its colours before its fence closes, and all that is coloured on the way is a few times its length."""
    seen = []
    real = live_module.code_part
    monkeypatch.setattr(live_module, "code_part", lambda code, *facts: (seen.append(len(code)), real(code, *facts))[1])
    live = OpenText(MARKDOWN, 60)
    code = "def f(x):  # comment\n    return 'a' + 1\n\n" * 100
    text = "```python\n" + code
    for end in range(0, len(text), 11):
        live.grow(text[:end])
        rows = live.rows()
    assert len(colours(rows)) > 3
    assert sum(seen) <= 4 * len(code)
    assert max(seen) <= 41 * max(len(line) + 1 for line in code.split("\n"))
    assert len(colours(rows[-20:])) > 3
    live.grow(text)
    assert [row.strip.text for row in live.rows()[1:]] == [row.strip.text for row in MARKDOWN.rows(text, 60)[1:]] + [" " * 60]


OPENINGS = {
    "python": ('text = """', "if for while 12", '"""', "for x in range(12): pass"),
    "javascript": ("const text = `", "if for while 12", "`;", "for (const x of y) { return 12; }"),
    "c": ("/* a comment", "if for while 12", "*/", "for (;;) return 12;"),
    "rust": ('let text = "', "if for while 12", '";', "for x in y { return 12; }"),
}


@pytest.mark.slow
@pytest.mark.parametrize("language", OPENINGS)
@pytest.mark.parametrize(("before", "within"), [(0, 30), (3, 200), (100, 150), (60, 400)])
def test_a_string_over_many_lines_is_coloured_as_one(language, before, within):
    """Wherever the colouring of a growing fence begins: what a string has in it is no keyword, and what comes after it is no string."""
    opening, inner, closing, after = OPENINGS[language]
    live = OpenText(MARKDOWN, 60)
    lines = [f"```{language}", *["x = 1;"] * before, opening, *[inner] * within, closing, *[after] * 100]
    syntax, text = MARKDOWN.palette.syntax, ""
    wrong = {syntax["keyword"].color, syntax["number"].color}
    for line in lines:
        text += line + "\n"
        live.grow(text)
        if line == inner:
            assert not wrong & colours_of(live.rows(), inner)
    found = colours_of(live.rows(), after)
    assert syntax["keyword"].color in found
    assert not {syntax["string"].color, syntax["comment"].color} & found


def colours_of(rows, line):
    """The colours of all rows that show `line`."""
    shown = [row for row in rows if row.text.strip() == line]
    assert shown
    return {segment.style.color for row in shown for segment in row.strip if segment.text.strip()}
