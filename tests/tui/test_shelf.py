"""Finding and ordering conversations on the screen: the list with its places, the switcher, search."""

import time

import pytest

from localkv.config import ModelSection, SamplingSection
from localkv.errors import NotWritable
from localkv.kv.record import pack_ids
from localkv.service.client import Resume
from localkv.tui.dialogs import Confirm, Line
from localkv.tui.search import Search
from localkv.tui.switcher import Switcher
from tests.tui.conftest import notices, play, rows_of, text_of, until

DAY = 86_400.0
WIDE = (130, 30)


def listed(screen):
    """What the list shows, row by row, without what is empty."""
    return [row.strip() for row in rows_of(screen.sessions) if row.strip()]


def names(screen):
    """The conversations in the list, headings left out."""
    return [item.title for item in screen.sessions.shown]


async def in_list(pilot):
    """The list has the focus, its cursor on the first row."""
    pilot.app.chat_screen.sessions.focus()
    await pilot.press("home")


async def write(pilot, text):
    """Type into the line of a dialog."""
    await pilot.press(*("space" if letter == " " else letter for letter in text))
    await pilot.pause()


# ---- the list ----


@pytest.mark.slow
@pytest.mark.parametrize("way", ["/new one", "/trash one", "--session"])
def test_who_writes_in_a_conversation_finds_it_in_the_list(world, way):
    """However one in the trash is opened, it comes back from it, and the list shows it."""
    one = world.talk("one", "q1", "a1")
    two = world.talk("two", "q2", "a2")
    world.store.trash(one)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        if way != "--session":
            await pilot.press(*way, "enter")
        await until(pilot, lambda: screen.desk.key == one, "the conversation")
        assert world.store.get(one).trashed is None
        assert {item.id for item in screen.sessions.shown} == {one, two}

    play(world.app(session="one" if way == "--session" else "two"), scene)


def test_groups_by_date(world):
    """Pinned, today, yesterday, 7 days and months, each named once, in the order of time."""
    ages = {"one": 60, "two": DAY, "three": 3 * DAY, "four": 20 * DAY, "five": 200 * DAY, "six": 400 * DAY}
    for title, age in ages.items():
        world.talk(title, "q", "a", age=age)
    world.store.set_pinned(world.store.by_name("four").id, True)

    async def scene(pilot):
        shown = [row.removeprefix("▌").strip().split("  ")[0] for row in listed(pilot.app.chat_screen)]
        assert shown == [
            "PINNED", "four", "TODAY", "one", "YESTERDAY", "two", "7 DAYS", "three", "NOVEMBER 2024", "five", "MAY 2024", "six",
        ]  # fmt: skip

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
def test_the_cursor_passes_over_headings(world):
    """Up and down go from conversation to conversation; the heading above the first one stays in view."""
    for index in range(40):
        world.talk(f"t{index:02}", "q", "a", age=index * DAY * 2)

    async def scene(pilot):
        sessions = pilot.app.chat_screen.sessions
        await in_list(pilot)
        assert rows_of(sessions)[0].strip() == "TODAY"
        seen = [sessions.current.title]
        for _ in range(39):
            await pilot.press("down")
            seen.append(sessions.current.title)
            assert sessions.current.title in text_of(pilot.app)
        assert seen == [f"t{index:02}" for index in range(40)]
        await pilot.press("home")
        assert rows_of(sessions)[0].strip() == "TODAY"

    play(world.app(session="t00"), scene, size=WIDE)


@pytest.mark.slow
def test_pin_tag_archive_by_key(world):
    """p, t and a in the list: what is pinned goes up, tags are found by the filter, what is archived leaves the list."""
    for index, title in enumerate(("one", "two", "three")):
        world.talk(title, "q", "a", age=60.0 * (index + 1))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await in_list(pilot)
        await pilot.press("down", "down", "p")
        await until(pilot, lambda: names(screen) == ["three", "one", "two"], "a pinned one on top")
        assert screen.sessions.current.title == "three", "the cursor stays on the conversation"
        await pilot.press("t")
        await until(pilot, lambda: isinstance(pilot.app.screen, Line), "the question for tags")
        await write(pilot, "Work rust")
        await pilot.press("enter")
        await until(pilot, lambda: world.store.by_name("three").tags == ("rust", "work"), "tags")
        assert "#rust #work" in notices(pilot.app)
        await pilot.press("slash", *"#wor")
        await until(pilot, lambda: names(screen) == ["three"], "found by tag")
        await pilot.press("escape")
        await until(pilot, lambda: len(names(screen)) == 3, "all again")
        await in_list(pilot)
        await pilot.press("down", "a")
        await until(pilot, lambda: names(screen) == ["three", "two"], "one is archived")
        await pilot.press("v")
        await until(pilot, lambda: names(screen) == ["one"] and "Archive" in text_of(pilot.app), "the archive")
        await pilot.press("a")
        await until(pilot, lambda: "nothing is archived" in text_of(pilot.app), "an empty archive")
        await pilot.press("escape")
        await until(pilot, lambda: len(names(screen)) == 3, "the list")

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
def test_tags_that_cannot_be_are_refused(world):
    """A wrong tag is a notice and changes nothing; an empty line takes all tags away."""
    key = world.talk("one", "q", "a")
    world.store.set_tags(key, ["work"])

    async def scene(pilot):
        await in_list(pilot)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(pilot.app.screen, Line), "the question")
        await write(pilot, " " + "x" * 40)
        await pilot.press("enter")
        await until(pilot, lambda: "cannot be a tag" in notices(pilot.app), "a refusal")
        assert world.store.get(key).tags == ("work",)
        await pilot.press("t")
        await until(pilot, lambda: isinstance(pilot.app.screen, Line), "the question")
        await pilot.press("ctrl+u", "enter")
        await until(pilot, lambda: world.store.get(key).tags == (), "no tags")

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
def test_one_key_never_deletes_a_conversation_for_good(world):
    """d moves to the trash, where u brings back the one under the cursor, and d removes it for good only after a yes."""
    for index, title in enumerate(("one", "two", "three")):
        world.talk(title, "q", "a", age=60.0 * (index + 1))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await in_list(pilot)
        await pilot.press("d", "d")
        await until(pilot, lambda: names(screen) == ["three"], "two in the trash")
        await pilot.press("v", "v")
        await until(pilot, lambda: names(screen) == ["one", "two"] and "Trash" in text_of(pilot.app), "the trash")
        await pilot.press("down", "u")
        await until(pilot, lambda: names(screen) == ["one"], "one is left")
        assert world.store.by_name("two").trashed is None
        await pilot.press("d")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm), "a question")
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm), "the question gone")
        assert names(screen) == ["one"], "Enter is no yes"
        await pilot.press("d")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm), "a question")
        await pilot.press("y")
        await until(pilot, lambda: "the trash is empty" in text_of(pilot.app), "an empty trash")
        assert sorted(each.title for each in world.store.list(include_trashed=True)) == ["three", "two"]

    play(world.app(session="three"), scene, size=WIDE)


@pytest.mark.slow
def test_deleting_many_is_not_one_by_one(world):
    """x marks, and the next key is meant for all that are: tags, archive, trash, back, and gone for good after one question."""
    for index in range(6):
        world.talk(f"t{index}", "q", "a", age=60.0 * (index + 1))
    world.store.set_tags(world.store.by_name("t1").id, ["old"])

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await in_list(pilot)
        await pilot.press("down", "x", "x", "x")
        await until(pilot, lambda: "3 marked" in text_of(pilot.app), "three are marked")
        assert sum(" xt" in row or row.startswith("xt") for row in listed(screen)) == 3
        await pilot.press("t")
        await until(pilot, lambda: isinstance(pilot.app.screen, Line), "the question")
        await write(pilot, "batch")
        await pilot.press("enter")
        await until(pilot, lambda: world.store.by_name("t3").tags == ("batch",), "tags")
        assert world.store.by_name("t1").tags == ("batch", "old"), "tags are added to those that were there"
        assert screen.sessions.marked == frozenset()
        await in_list(pilot)
        await pilot.press("down", "x", "x", "escape")
        await until(pilot, lambda: not screen.sessions.marked, "esc takes the marks away")
        await in_list(pilot)
        await pilot.press("x", "x", "d")
        await until(pilot, lambda: names(screen) == ["t2", "t3", "t4", "t5"], "two in the trash")
        await pilot.press("u")
        await until(pilot, lambda: len(names(screen)) == 5, "one is back")
        screen.sessions.focus()
        await pilot.press("end", "x", "up", "x", "d", "v", "v")
        await until(pilot, lambda: len(names(screen)) == 3 and "Trash" in text_of(pilot.app), "the trash")
        await pilot.press("home", "x", "x", "x", "d")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm), "one question")
        assert "3 conversations" in text_of(pilot.app)
        await pilot.press("y")
        await until(pilot, lambda: len(world.store.list(include_trashed=True)) == 3, "gone")
        assert len(names(screen)) == 0

    play(world.app(session="t2"), scene, size=WIDE)


def test_marking_reads_nothing_again(world, monkeypatch):
    """x, X and esc in the list change how many are marked and what the last row says, and ask the database for nothing."""
    for index in range(4):
        world.talk(f"t{index}", "q", "a", age=60.0 * (index + 1))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await in_list(pilot)
        await until(pilot, lambda: not screen._ticking._active.is_set(), "rest")
        read = []
        items = screen.desk.items
        monkeypatch.setattr(screen.desk, "items", lambda **sizes: (read.append(sizes), items(**sizes))[1])
        for key, said, way in (
            ("x", "1 marked", "esc unmark"), ("x", "2 marked", "esc unmark"), ("X", "4 marked", "esc unmark"),
            ("X", "4", "F1 help"), ("X", "4 marked", "esc unmark"), ("escape", "4", "F1 help"),
        ):  # fmt: skip
            await pilot.press(key)
            row, last = rows_of(screen.instruments.head)[0], text_of(pilot.app).splitlines()[-1]
            assert row.split("  ")[1].strip() == said
            assert way in last
            assert ("esc unmark" in last) == (way == "esc unmark")
        assert read == []
        await pilot.press("s")
        await until(pilot, lambda: read, "another order")

    play(world.app(session="t0"), scene, size=WIDE)


def test_opening_from_the_trash_brings_back(world):
    """What is opened is wanted: it is in the list again, where it was."""
    world.talk("one", "q", "a", age=5)
    world.store.trash(world.talk("two", "q2", "a2", age=50))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        screen.show_list("trash")
        await pilot.press("enter")
        await until(pilot, lambda: screen.desk.title == "two", "two is open")
        assert world.store.by_name("two").trashed is None
        screen.show_list("list")
        await until(pilot, lambda: names(screen) == ["one", "two"], "both in the list")

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
def test_the_list_is_not_only_by_age(world):
    """s goes from newest to name to size and round; the size is shown where the age was; the cursor stays."""
    for index, (title, n_tokens) in enumerate((("b", 12_400), ("c", 7), ("a", 500))):
        key = world.talk(title, "q", "a", age=60.0 * (index + 1))
        world.store.set_ids(world.store.path(key)[0].id, pack_ids([1] * n_tokens))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await in_list(pilot)
        assert names(screen) == ["b", "c", "a"]
        await pilot.press("s")
        await until(pilot, lambda: names(screen) == ["a", "b", "c"], "by name")
        assert screen.sessions.current.title == "b"
        assert "BY NAME" in text_of(pilot.app)
        await pilot.press("s")
        await until(pilot, lambda: names(screen) == ["b", "a", "c"], "by size")
        assert "12k" in text_of(pilot.app)
        await pilot.press("p")
        await until(pilot, lambda: "PINNED" in text_of(pilot.app), "pinned")
        assert "12k" in text_of(pilot.app), "what changes in a row keeps its size"
        await pilot.press("s")
        await until(pilot, lambda: "TODAY" in text_of(pilot.app), "newest again")

    play(world.app(session="b"), scene, size=WIDE)


def test_badges_say_where_the_cache_is(world):
    """Letter and predicted wait come from the engine; an answer on its way stands before them."""
    keys = {
        title: world.talk(title, "q", "a", age=age) for title, age in (("hot", 5), ("warm", 50), ("cold", 500), ("none", 5000))
    }
    heads = {"hot": Resume(0.0, "slot"), "warm": Resume(0.05, "ram"), "cold": Resume(0.9, "ssd"), "none": Resume(7.2, "none")}

    async def scene(pilot):
        screen = pilot.app.chat_screen
        screen.sessions.mark({}, {keys[title]: resume for title, resume in heads.items()})
        await pilot.pause()
        shown = {row.removeprefix("▌").strip()[2:6].strip(): row for row in listed(screen) if row.removeprefix("▌")[:1] != " "}
        letters = {title: row.removeprefix("▌").strip()[0] for title, row in shown.items()}
        assert {letters[title] for title in ("hot",)} == {"H"}
        assert (letters["warm"], letters["cold"], letters["none"]) == ("W", "C", "-")
        assert "~0.9s" in shown["cold"]
        assert "~7.2s" in shown["none"]
        assert "~" not in shown["hot"] + shown["warm"]

    play(world.app(session="hot"), scene, size=WIDE)


def test_the_cursor_says_where_it_rests(world, monkeypatch):
    """A moment on a row is told once; passing over rows, the open conversation and a list without focus are not."""
    monkeypatch.setattr("localkv.tui.sessions.REST_SECONDS", 0.05)
    keys = [world.talk(f"t{index}", "q", "a", age=60.0 * index + 5) for index in range(4)]
    told = []
    monkeypatch.setattr("localkv.tui.sessions.Sessions.Rested.__init__", _telling(told))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await in_list(pilot)
        screen.sessions.cursor = 1
        screen.sessions.cursor = 2
        screen.sessions.cursor = 3
        await until(pilot, lambda: told == [keys[3]], "the last row alone")
        screen.sessions.cursor = 0
        await pilot.pause(0.1)
        assert told == [keys[3]], "the open conversation needs nothing"
        screen.composer.focus()
        await until(pilot, lambda: not screen.sessions.has_focus, "focus elsewhere")
        screen.sessions.cursor = 2
        await pilot.pause(0.1)
        assert told == [keys[3]], "nobody looks at the list any more"
        assert screen.sessions._resting is None

    play(world.app(session="t0"), scene, size=WIDE)


def _telling(told):
    from textual.message import Message

    def init(self, conversation):
        Message.__init__(self)
        self.conversation = conversation
        told.append(conversation)

    return init


# ---- the switcher ----


@pytest.mark.slow
def test_a_title_need_not_be_remembered_whole(world):
    """ctrl+o, letters of a title or a tag, enter; esc changes nothing; the trash is not offered, the archive is."""
    world.talk("Rust borrow checker", "q", "a", age=5)
    world.store.set_tags(world.talk("Letters home", "q2", "a2", age=50), ["family"])
    world.store.set_archived(world.talk("Tax of last year", "q3", "a3", age=500), True)
    world.store.trash(world.talk("Thrown away", "q4", "a4", age=600))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(pilot.app.screen, Switcher), "the switcher")
        shown = text_of(pilot.app)
        assert "Tax of last year" in shown
        assert "archived" in shown
        await write(pilot, "thr awa")
        assert "no conversation has these letters" in text_of(pilot.app)
        await pilot.press("enter", "escape")
        await until(pilot, lambda: pilot.app.screen is screen, "the chat")
        assert screen.desk.title == "Rust borrow checker"
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(pilot.app.screen, Switcher), "the switcher")
        await write(pilot, "fam")
        await pilot.press("enter")
        await until(pilot, lambda: screen.desk.title == "Letters home", "found by its tag")
        await pilot.press("ctrl+o", "enter")
        await until(pilot, lambda: screen.desk.title == "Rust borrow checker", "back to where one was")
        await pilot.press("ctrl+o", "up", "down", "down", "enter")
        await until(pilot, lambda: screen.desk.title == "Tax of last year", "the second of the others")

    play(world.app(session="Rust borrow checker"), scene, size=WIDE)


# ---- search ----


@pytest.mark.slow
def test_what_was_said_long_ago_is_not_lost(world):
    """F4, words, enter: the conversation opens with that message in view, though it stands far up."""
    said = [text for index in range(60) for text in (f"question {index}", "an answer\n" * 5)]
    said[10] = "where is the needle kept"
    key = world.talk("haystack", *said, age=500)
    world.talk("other", "no", "nothing", age=5)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(pilot.app.screen, Search), "search")
        assert "write words of a message" in text_of(pilot.app)
        await write(pilot, "needl whe")
        await until(pilot, lambda: "where is the needle kept" in text_of(pilot.app), "a hit")
        assert "haystack" in text_of(pilot.app)
        await pilot.press("enter")
        await until(pilot, lambda: screen.desk.key == key, "the conversation")
        await until(pilot, lambda: "where is the needle kept" in "\n".join(rows_of(screen.transcript)), "the message")
        assert not screen.transcript.following

    play(world.app(session="other"), scene, size=WIDE)


def test_search_opens_the_branch_of_the_message(world):
    """A hit on another branch shows that branch, and what was said last below it."""
    key = world.talk("tree", "first", "answer one", age=500)
    first = world.store.path(key)[0]
    other = world.store.ask(key, None, "an edited needle")
    answer = world.store.begin_answer(key, other.id)
    world.store.finish_answer(answer.id, text="about it", ids=b"", state="complete", head=None, numbers=None)
    world.store.look_at(first.id)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        assert "answer one" in text_of(pilot.app)
        screen.composer.load_text("/search needle")
        await pilot.press("enter")
        await until(pilot, lambda: "an edited needle" in text_of(pilot.app), "a hit")
        await pilot.press("enter")
        await until(pilot, lambda: "about it" in "\n".join(rows_of(screen.transcript)), "the other branch")
        assert [message.text for message in screen.desk.messages] == ["an edited needle", "about it"]

    play(world.app(session="tree"), scene, size=WIDE)


def _two_branches(world):
    """A conversation that is looked at on one of two branches; its id, and the question of the other one."""
    key = world.talk("tree", "first", "answer one", age=500)
    first = world.store.path(key)[0]
    other = world.store.ask(key, None, "an edited needle")
    world.store.look_at(first.id)
    return key, other.id


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [True, False])
def test_a_found_branch_waits_for_the_answer_on_the_open_one(world, is_open):
    """While an answer hangs on the branch that is looked at, a hit on another one says so; a hit on this one is shown."""
    key, other = _two_branches(world)
    world.talk("elsewhere", "q", "a", age=5)
    shown = world.store.path(key)[0].id

    async def scene(pilot):
        screen = pilot.app.chat_screen
        screen.composer.load_text("go on")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        if not is_open:
            screen.open_like("elsewhere")
        leaf = world.store.get(key).leaf
        screen.open_at(key, other)
        await pilot.pause()
        assert "still being written" in notices(pilot.app)
        assert world.store.get(key).leaf == leaf
        assert screen.desk.key == key
        screen.open_at(key, shown)
        assert screen.transcript.chosen.text == "first"
        world.chat.turns[0].end()
        await until(pilot, lambda: not screen.stage.runs.moving, "the end of the answer")
        screen.open_at(key, other)
        assert [message.text for message in screen.desk.messages] == ["an edited needle"]

    play(world.app(session="tree"), scene, size=WIDE)


@pytest.mark.slow
def test_a_hit_that_cannot_be_opened_changes_nothing(world, monkeypatch):
    """If its conversation does not open, the open one stays as it is, on its branch, and the reason is said once."""
    key, other = _two_branches(world)
    here = world.talk("here", "q", "a", age=5)

    def refuse(_):
        raise NotWritable("the database is locked")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        monkeypatch.setattr(screen.desk, "open", refuse)
        leaf = world.store.get(key).leaf
        screen.open_at(key, other)
        await pilot.pause()
        assert notices(pilot.app) == "the database is locked"
        assert screen.desk.key == here
        assert world.store.get(key).leaf == leaf
        assert screen.transcript.chosen is None

    play(world.app(session="here"), scene, size=WIDE)


def test_search_shows_hostile_text_as_text(world):
    """Nothing in a hit steers the terminal or is read as markup."""
    world.talk("bad", "needle \x1b[2J [bold]x[/] \u202e", "a")

    async def scene(pilot):
        pilot.app.chat_screen.action_search("needle")
        await until(pilot, lambda: "[bold]x[/]" in text_of(pilot.app), "the hit")
        shown = text_of(pilot.app)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        await pilot.press("escape")

    play(world.app(session="bad"), scene, size=WIDE)


def test_a_system_prompt_that_was_found_opens(world):
    """Its conversation opens on the branch that it stands above, from the start."""
    key = world.talk("one", "first question", "an answer", age=500)
    world.store.set_system(key, "answer like a walrus")
    world.store.set_system(key, "answer like a heron")
    world.talk("other", "no", "nothing", age=5)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        screen.action_search("role:system walrus")
        await until(pilot, lambda: "like a walrus" in text_of(pilot.app), "the hit")
        await pilot.press("enter")
        await until(pilot, lambda: screen.desk.key == key, "the conversation")
        assert screen.desk.system == "answer like a walrus"
        await until(pilot, lambda: "first question" in "\n".join(rows_of(screen.transcript)), "its beginning")
        assert notices(pilot.app) == ""

    play(world.app(session="other"), scene, size=WIDE)


@pytest.mark.slow
def test_search_is_narrowed_and_says_what_it_did_not_understand(world):
    """Filters are shown before anything is typed; a mistake is a whole sentence, and leaves when it is mended."""
    key = world.talk("one", "needle of mine", "needle of the answer")
    world.store.fork(world.store.path(key)[0].id, "fork", "Forked")

    async def scene(pilot):
        await pilot.press("f4")
        await until(pilot, lambda: "before:2026-01-31" in text_of(pilot.app), "the filters")
        assert "model:qwen" in text_of(pilot.app), "the sentence goes on in the next row"
        await write(pilot, "needle role:use")
        await until(pilot, lambda: "did you mean role:user?" in text_of(pilot.app), "the sentence")
        await write(pilot, "r")
        await until(pilot, lambda: "also in 1 other conversation" in text_of(pilot.app), "the hit and where its copy is")
        assert "needle of the answer" not in "\n".join(rows_of(pilot.app.screen.choices))
        await pilot.press("escape")

    play(world.app(session="one"), scene, size=WIDE)


@pytest.mark.slow
def test_a_search_that_fails_is_said(world):
    """A database that refuses is a sentence in the place of the hits; typing goes on."""
    from localkv.errors import ConversationError

    world.talk("one", "needle", "a")

    async def scene(pilot):
        screen = pilot.app.chat_screen

        def refuse(words, limit):
            raise ConversationError("the disk is gone")

        pilot.app.push_screen(Search(screen._palette, refuse, 0.0, "needle"))
        await until(pilot, lambda: "the disk is gone" in text_of(pilot.app), "the sentence")
        await pilot.press("escape")

    play(world.app(session="one"), scene, size=WIDE)


def test_only_what_was_typed_last_is_shown(world):
    """A slow search that ends late never overwrites the hits of newer words."""
    import threading

    world.talk("one", "alpha beta", "a")
    gate = threading.Event()
    asked = []

    async def scene(pilot):
        screen = pilot.app.chat_screen

        def find(words, limit):
            asked.append(words)
            if len(asked) == 1:
                gate.wait(30)
            return world.store.search(words, limit) if words != "al" else world.store.search("beta", limit)

        pilot.app.push_screen(Search(screen._palette, find, 0.0))
        await until(pilot, lambda: isinstance(pilot.app.screen, Search), "search")
        await write(pilot, "alx")
        gate.set()
        await until(pilot, lambda: "no message has these words" in text_of(pilot.app), "the answer to the last words")
        assert asked == ["a", "alx"], "words typed while a search runs are asked for once, after it"
        assert "alpha" not in text_of(pilot.app)
        await pilot.press("escape")

    play(world.app(session="one"), scene, size=WIDE)


# ---- many ----


@pytest.mark.slow
def test_ten_thousand_conversations_do_not_freeze_the_list(world):
    """Of 10,000 conversations the list draws what is in view; a key in the filter draws the screen once, not them all."""
    connection = world.store._database._connection
    base = world.store.create("base", model=ModelSection(), sampling=SamplingSection()).id
    columns = "model, sampling, created, pinned, trashed, n_messages, draft, system, private"
    connection.execute("BEGIN")
    connection.executemany(
        f"INSERT INTO conversations (id, name, title, updated, {columns}) SELECT ?, ?, ?, ?, {columns} FROM conversations"
        " WHERE id = ?",
        ((f"{i:032x}", f"talk {i}", f"about {i % 97} number {i}", 1.75e9 - i * 3600.0, base) for i in range(10_000)),
    )
    connection.execute("COMMIT")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        drawn = []
        render = type(screen.sessions).render_line

        def counting(self, y):
            drawn.append(y)
            return render(self, y)

        type(screen.sessions).render_line = counting
        try:
            began = time.perf_counter()
            screen.show_filter()
            await write(pilot, "9999")
            await until(pilot, lambda: names(screen) == ["about 8 number 9999"], "one left")
            assert time.perf_counter() - began < 60
            assert len(drawn) < 40 * 30
        finally:
            type(screen.sessions).render_line = render
        assert screen.sessions.count == 10_001

    play(world.app(session="base"), scene, size=WIDE)


def test_only_what_is_in_view_is_asked_about(world):
    """Of many conversations the engine is asked about a few screens: it works out a plan for each, after every answer."""
    for index in range(200):
        world.talk(f"t{index:03}", "q", "a", age=60.0 * index)

    async def scene(pilot):
        sessions = pilot.app.chat_screen.sessions
        near = sessions.near()
        assert len(near) < 100
        assert near[:20] == [item.id for item in sessions.shown[:20]]
        await in_list(pilot)
        await pilot.press("end")
        await until(pilot, lambda: sessions.shown[-1].id in sessions.near(), "the end in view")
        assert sessions.shown[0].id not in sessions.near()

    play(world.app(session="t000"), scene, size=WIDE)
