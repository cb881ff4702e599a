"""Files named with "@": offered while they are written, attached when they are named whole, refused with a sentence."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localkv.chat.attachments import MAX_BYTES
from localkv.tui.filenames import file_offers, is_file, named_file
from tests.tui.conftest import notices, play, rows_of, text_of, until

CODE = "fn main() {}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to be started in, with files to be named."""
    place = tmp_path / "place"
    (place / "src").mkdir(parents=True)
    (place / "src" / "main.rs").write_text(CODE)
    (place / "README.md").write_text("# readme\n")
    (place / "my notes.txt").write_text("notes\n")
    (place / ".hidden").write_text("x")
    (place / "binary.bin").write_bytes(b"\0" * 100)
    (place / "large.txt").write_text("a" * (MAX_BYTES + 1))
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(("text", "found"), [
    ("@", (0, "")),
    ("see @src/ma", (4, "src/ma")),
    ("see\n@x", (4, "x")),
    ('see @"my no', (4, "my no")),
    ('see @"my notes.txt"', (4, "my notes.txt")),
    ("me@example.org", None),
    ("@name and", None),
    ("", None),
])  # fmt: skip
def test_which_word_names_a_file(text, found):
    """A word that begins with @, with quotes for spaces; an address is none."""
    assert named_file(text) == found


@given(st.text(alphabet='@"/. ab\n\0~', max_size=10))
@example("@~no-such-user/")
@example("@~no-such-user")
def test_nothing_that_is_typed_breaks_the_offers(text):
    """Every text gives offers that go on from it, or none."""
    for offer in file_offers(text):
        start, _ = named_file(text)
        assert offer.text.startswith(text[:start] + "@")
        assert named_file(offer.text) is not None
    named = named_file(text)
    assert named is None or is_file(named[1]) in {True, False}


def test_offers(folder):
    """Names that begin with what is written, else those that have it; folders; hidden files only if asked for."""
    assert [offer.shown for offer in file_offers("@")] == ["binary.bin", "large.txt", "my notes.txt", "README.md", "src/"]
    assert [offer.text for offer in file_offers("see @s")] == ["see @src/"]
    assert [offer.text for offer in file_offers("@src/")] == ["@src/main.rs"]
    assert [offer.text for offer in file_offers("@notes")] == ['@"my notes.txt"']
    assert [offer.shown for offer in file_offers("@.h")] == [".hidden"]
    assert file_offers("@nowhere/") == []
    assert [offer.text for offer in file_offers(f"@{folder}/REA")] == [f"@{folder}/README.md"]


@pytest.mark.slow
def test_a_file_is_chosen_and_goes_with_the_message(world, folder):
    """@, a few letters, enter: a chip with its size; the model gets the file before the words, and the words as written."""

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"why does @s")
        await until(pilot, lambda: screen.completion.is_open, "offers")
        assert rows_of(screen.completion)[0].startswith("> src/")
        await pilot.press("tab")
        await until(pilot, lambda: "main.rs" in text_of(pilot.app), "the file")
        await pilot.press("enter")
        assert screen.composer.text == "why does [src/main.rs 12 B] "
        await pilot.press(*"not run?", "enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert world.chat.turns[0].question == "File: src/main.rs\n```rust\nfn main() {}\n```\n\nwhy does src/main.rs not run?"

    play(world.app(), scene)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["space", "enter"])
def test_a_name_that_is_written_whole_is_attached(world, folder, end):
    """Who knows the name needs no list; other words with an @ are words."""

    async def scene(pilot):
        await pilot.press(*"@nobody thinks @README.md", "escape", end)
        if end == "space":
            assert pilot.app.chat_screen.composer.text == "@nobody thinks [README.md 8 B] "
            await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        question = world.chat.turns[0].question
        assert question.startswith("File: README.md\n```markdown\n# readme\n```\n\n@nobody thinks README.md")

    play(world.app(), scene)


@pytest.mark.slow
def test_the_file_of_the_moment_is_what_is_sent(world, folder):
    """What was attached is what is sent, also if the file changes or goes before."""

    async def scene(pilot):
        await pilot.press(*"@README.md", "escape", "space")
        (folder / "README.md").unlink()
        await pilot.press(*"ok", "enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert "# readme" in world.chat.turns[0].question

    play(world.app(), scene)


@pytest.mark.slow
def test_completing_inside_a_text_keeps_what_follows(world, folder):
    """The rest of the message stays behind the cursor, and undo takes the chip back."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"look  here", "left", "left", "left", "left", "left", *"@RE", "tab")
        await until(pilot, lambda: composer.text == "look [README.md 8 B]  here", "the chip")
        await pilot.press("ctrl+underscore")
        await until(pilot, lambda: composer.text == "look @README.md here", "the name again")

    play(world.app(), scene)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "reason"), [("binary.bin", "zero bytes"), ("large.txt", "too large")])
def test_no_binary_or_huge_file_gets_into_a_message(world, folder, name, reason):
    """A file that is no text or too large is refused with a sentence, and the words stay."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*f"see @{name}", "escape", "space")
        await until(pilot, lambda: reason in notices(pilot.app), "a sentence")
        assert composer.text == f"see @{name} "
        composer.clear()
        await pilot.press(*f"/attach {name}", "enter")
        await until(pilot, lambda: composer.text == f"/attach {name}", "the command back")

    play(world.app(), scene)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["@~no-such-user ok", "see @~no-such-user/x ok", "/attach ~no-such-user/x", "/export ~no-such-user/x"]
)
def test_the_name_of_nobody_is_a_word(world, folder, line):
    """A "~" before a name that no user has neither ends the chat nor names a file."""
    world.talk("first", "q", "a")

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*line, "escape", "enter")
        if line.startswith("/"):
            await until(pilot, lambda: composer.text == line, "the command back")
        else:
            await until(pilot, lambda: world.chat.turns, "a turn")
            assert world.chat.turns[0].question == line

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_attach_command(world, folder):
    """/attach does the same as @ and a name, with spaces as they are."""

    async def scene(pilot):
        await pilot.press(*"/attach my notes.txt", "enter")
        await until(pilot, lambda: pilot.app.chat_screen.composer.text == "[my notes.txt 5 B] ", "the chip")

    play(world.app(), scene)


def test_a_question_with_files_is_edited_with_its_chips(world, folder):
    """Edit and resend shows the file as a chip again and sends what was sent."""
    message = "File: a.py\n```python\nx = 1\n```\n\nwhat is x?"
    world.talk("first", message, "1")

    async def scene(pilot):
        await pilot.press("up")
        assert pilot.app.chat_screen.composer.text == "[a.py 5 B] what is x?"
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert world.chat.turns[0].question == message

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_words_in_a_file_of_a_question_are_found(world):
    """A file is folded away, and find opens it where the words are."""
    world.talk("first", "File: a.py\n```python\nneedle = 1\n```\n\nwhat is it?", "1")

    async def scene(pilot):
        transcript = pilot.app.chat_screen.transcript
        assert "needle" not in "\n".join(rows_of(transcript))
        await pilot.press(*"/find needle", "enter")
        await until(pilot, lambda: "needle = 1" in "\n".join(rows_of(transcript)), "the file")

    play(world.app(session="first"), scene)
