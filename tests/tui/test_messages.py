"""How messages look: thoughts folded into a row, versions named, links that open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localkv.tui.messages import Painter
from localkv.tui.pages import Entry
from localkv.tui.rows import selected
from tests.tui.conftest import play, text_of, until
from tests.tui.samples import MARKDOWN, texts

THINKS = "<think>\nFirst this,\nthen that.\n</think>\n\nThe **answer**."


def painted(text, painter=None, **facts):
    return (painter or Painter(MARKDOWN)).rows(Entry("m", "assistant", text, **facts), 60)


def test_thoughts_are_folded_into_one_row():
    """What the model thought is a row that says how long it took; the answer follows."""
    rows = texts(painted(THINKS, thought="1.8 s (61 tok)"))
    assert rows == ["Assistant", "> Thought for 1.8 s (61 tok)", "", "The answer.", ""]


def test_unfolded_thoughts_are_all_there():
    """Nothing that a model wrote is out of reach, and copying takes it without the bar and without the row's own words."""
    rows = painted(THINKS, unfolded=True)
    assert texts(rows) == ["Assistant", "v Thoughts", "▎ First this,", "▎ then that.", "", "The answer.", ""]
    assert selected((each, 0, -1) for each in rows[1:]) == "First this,\nthen that.\n\nThe answer.\n"


@pytest.mark.parametrize(("text", "label"), [
    ("<think>\nso", "> Thinking 0.4 s (3 tok)"),
    ("<think>\nso</think>", "> Thought for 0.4 s (3 tok)"),
    ("<think>\n\n</think>\nx", "> No thoughts"),
])  # fmt: skip
def test_thoughts_in_every_state(text, label):
    """While it thinks, when it has thought, when it thought nothing."""
    assert texts(painted(text, growing=True, thought="0.4 s (3 tok)"))[1] == label


def test_a_template_that_opens_the_block_itself():
    """Of some models only the closing tag is in the text, on a line of its own."""
    assert texts(painted("hm\n</think>\nyes"))[1:4] == ["> Thoughts", "", "yes"]


@pytest.mark.parametrize("text", ["Use `</think>` to end it.", "See <think> here.", "```\n<think>\n```"])
def test_tags_in_the_middle_are_text(text):
    """An answer about thinking is not hidden."""
    rows = texts(painted(text))
    assert not any(row.startswith("> ") for row in rows)
    assert any("think>" in row for row in rows)


def test_growing_thoughts_end_as_the_whole():
    """However it came in, folded or not, what is shown at the end is what the whole text shows."""
    for unfolded in (False, True):
        painter = Painter(MARKDOWN)
        for end in range(1, len(THINKS)):
            painted(THINKS[:end], painter, growing=True, unfolded=unfolded)
        assert texts(painted(THINKS, painter, unfolded=unfolded)) == texts(painted(THINKS, unfolded=unfolded))


def test_thoughts_that_streamed_as_the_answer_are_not_it():
    """Nobody looks when a block closes that the template opened: the answer that stands then is all there and nothing else."""
    thoughts, answer = "hm, so", "The answer, longer than what was thought.\n\nIts second half."
    for growing in (True, False):
        painter = Painter(MARKDOWN)
        painted(thoughts, painter, growing=True)
        rows = texts(painted(f"{thoughts}\n</think>\n\n{answer}", painter, growing=growing))
        assert rows[3:-1] == answer.split("\n")


@given(
    st.lists(
        st.lists(st.sampled_from(["<think>", "</think>\n", "\n</think>\n", "a", "word ", "\n", "\n\n", "# h\n", "- x\n"])),
        min_size=2,
        max_size=4,
    ),
    st.booleans(),
    st.booleans(),
)
def test_what_was_painted_before_is_never_in_what_is_painted(states, growing, unfolded):
    """Whatever one message said before, longer or shorter or something else: it is shown as if it had always said this."""
    painter = Painter(MARKDOWN)
    *before, last = map("".join, states)
    for text in before:
        painted(text, painter, growing=True, unfolded=unfolded)
    facts = {"growing": growing, "unfolded": unfolded}
    assert filled(painted(last, painter, **facts)) == filled(painted(last, **facts))


def filled(rows):
    """Rows that show something."""
    return [each for each in texts(rows) if each]


def test_another_message_in_between_costs_nothing(monkeypatch):
    """Painting an old message does not throw away what is rendered of the growing one."""
    painter = Painter(MARKDOWN)
    parsed = []
    real = type(MARKDOWN).rows
    monkeypatch.setattr(
        type(MARKDOWN), "rows", lambda self, text, width: (parsed.append(len(text)), real(self, text, width))[1]
    )
    text = "closed paragraph\n\n" * 50
    for n in range(5):
        painter.rows(Entry("live", "assistant", text + "x" * n, growing=True), 60)
        painter.rows(Entry("old", "assistant", "old"), 60)
    assert sum(length > 500 for length in parsed) == 0


def test_versions_stand_at_the_right():
    """`< 2/3 >` is at the end of the row with name and time."""
    [head, *_] = painted("x", time="14:02", versions="< 2/3 >")
    assert head.strip.text == "Assistant  14:02".ljust(53) + "< 2/3 >"


def links(text):
    return [(s.text, s.style.link) for row in MARKDOWN.rows(text, 60) for s in row.strip if s.style and s.style.link]


@pytest.mark.parametrize(("text", "target"), [
    ("[docs](https://a.example/x)", "https://a.example/x"),
    ("see https://a.example/x, please", "https://a.example/x"),
    ("(https://en.example/a_(b))", "https://en.example/a_(b)"),
    ("<https://a.example>", "https://a.example"),
    ("[mail](mailto:a@b.example)", "mailto:a@b.example"),
])  # fmt: skip
def test_links_open(text, target):
    """The terminal gets the whole target, without the punctuation around it."""
    assert {link for _, link in links(text)} == {target}


@pytest.mark.parametrize("text", [
    "[x](file:///etc/passwd)", "[x](javascript:alert(1))", "[x](ssh://host)", "[x](https://\u0430pple.example/\u202e)",
    "[x](https://a.example/" + "a" * 3_000 + ")",
])  # fmt: skip
def test_targets_that_are_not_opened(text):
    """Only the web and mail, only what cannot hide: everything else shows as text alone."""
    found = [link for _, link in links(text)]
    assert all(link.startswith("https://") and link.isascii() and len(link) <= 2_000 for link in found)
    assert "x" in "".join(texts(MARKDOWN.rows(text, 60)))


def test_a_wrapped_link_is_one_target():
    """Each of its rows opens all of it."""
    target = "https://a.example/" + "long-" * 30
    assert {link for _, link in links(f"see {target}")} == {target}
    assert len(links(f"see {target}")) > 1


def test_the_terminal_gets_the_link(world):
    """What is written to the terminal carries the target in an OSC 8 sequence."""
    world.talk("t", "q", "See [docs](https://a.example/x).")

    async def scene(pilot):
        await until(pilot, lambda: "docs" in text_of(pilot.app), "the answer")
        transcript = pilot.app.chat_screen.transcript
        height = transcript.scrollable_content_region.height
        written = "".join(transcript.render_line(y).render(pilot.app.console) for y in range(height))
        assert ";https://a.example/x\x1b\\" in written
        assert "\x1b]8;" in written

    play(world.app(session="t"), scene)


@pytest.mark.parametrize("text", [
    "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "漢字とかな", "한국어 텍스트", "👩\u200d💻 👍🏽 🇩🇪 ❤\ufe0f", "e\u0301a\u0308", "\u202eevil\u202c",
])  # fmt: skip
@pytest.mark.parametrize("width", [8, 13, 40])
def test_all_scripts_keep_the_columns(text, width):
    """Right to left, joined, combined and double-width text: no row is wider than the screen, every character is copied."""
    whole = f"{text} " * 8
    for make in (lambda: MARKDOWN.rows(whole, width), lambda: MARKDOWN.rows(f"```\n{whole}\n```", max(width, 10))):
        rows = make()
        assert all(cell_len(each.strip.text) == each.strip.cell_length <= max(width, 10) for each in rows)
    rows = MARKDOWN.rows(whole.strip(), width)
    assert selected((each, 0, -1) for each in rows) == whole.strip()


FILED = "File: src/main.rs\n```rust\nfn main() {}\n```\n\nWhy does this not compile?"


def test_files_in_a_question_are_a_row_each():
    """A file is named with its size and the words follow; unfolded, all of it is there as it was sent."""
    folded, unfolded = (texts(Painter(MARKDOWN).rows(Entry("m", "user", FILED, unfolded=each), 60)) for each in (False, True))
    assert folded == ["You", "> src/main.rs  12 B", "Why does this not compile?", ""]
    assert unfolded == ["You", "v src/main.rs  12 B", *FILED.split("\n"), ""]


def test_a_hostile_file_name_is_shown_harmless():
    """The name is a person's text, too."""
    rows = texts(Painter(MARKDOWN).rows(Entry("m", "user", FILED.replace("src/main", "a\x1b[2Jb" * 40)), 60))
    assert all("\x1b" not in each and len(each) <= 60 for each in rows)


def test_nothing_is_wrapped_before_the_width_is_known(world, monkeypatch):
    """A frame comes before the first layout: a pasted megabyte wrapped at every character took 8 s there."""
    widths = []
    paint = Painter.rows
    monkeypatch.setattr(Painter, "rows", lambda self, entry, width: widths.append(width) or paint(self, entry, width))
    world.talk("big", "word " * 1000, "an answer")
    app = world.app(session="big")

    async def scene(pilot):
        await until(pilot, lambda: "an answer" in text_of(app), "the answer")

    play(app, scene)
    assert min(widths) > 20
