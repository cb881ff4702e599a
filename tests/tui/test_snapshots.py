"""Pictures of the screens; `--snapshot-update` makes them anew, the HTML report shows what changed.

They are pictures of one exact Textual (the extra `test` pins it). Clock, rates and engine are frozen; no toast is on them.
"""

import msgspec
import pytest
from textual.events import Paste

from localkv.service.client import Resume
from localkv.service.protocol import Card
from localkv.tui.dialogs import Confirm
from localkv.tui.glyphs import DRAWN, PLAIN
from tests.tui.conftest import text_of, until
from tests.tui.fakes import INEXACT, NUMBERS, busy_hour

ANSWER = """The borrow of `v` lives until the last use of `first`, so the push on line 4 **conflicts**:

```rust
let mut v = vec![1, 2, 3];
let first = &v[0];
v.push(4); // error
println!("{}", first);
```

You can end the borrow early by *cloning* the value:

1. clone it, or
2. index again later.

| way | cost |
|---|---|
| clone | a copy |
| index | nothing |

> 漢字も <details> も、そのまま。
"""

TITLES = {
    "Imported notes": 9 * 86_400,
    "Prompt lab": 3 * 86_400,
    "Novel chapter 3": 2 * 86_400,
    "Trip to Lisbon": 7_200,
    "Tax letter": 720,
}


def furnish(world):
    for title, age in TITLES.items():
        world.talk(title, "hello", "Hi.", age=age)
    world.talk("Rust borrow checker question", "Why does this not compile?", ANSWER, age=20)


async def settled(pilot):
    await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")
    await until(pilot, lambda: not pilot.app.chat_screen._ticking._active.is_set(), "rest")


SIZES = [(60, 16), (80, 24), (120, 36), (160, 45)]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_sizes(world, snap_compare, size):
    """The main screen from the smallest size to a wide one."""
    furnish(world)
    app = world.app(session="Rust borrow checker question")
    assert snap_compare(app, terminal_size=size, run_before=settled)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["localkv-light", "localkv-high-contrast", "catppuccin-like", "nord-like", "ansi"])
def test_themes(world, snap_compare, theme):
    """The other shipped themes with all panes."""
    furnish(world)
    app = world.app(theme=theme, session="Rust borrow checker question")
    assert snap_compare(app, terminal_size=(120, 36), run_before=settled)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_generating(world, snap_compare, size):
    """An answer on its way: the open tail, the phase line, the mark in the list."""
    furnish(world)
    app = world.app(session="Rust borrow checker question")

    async def act(pilot):
        await settled(pilot)
        app.chat_screen.composer.insert("and how would I fix it with clone?")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].write("Call `clone` on it:\n\n```rust\nlet first = v[0].cl", 14)
        await until(pilot, lambda: "generating 14 tok" in text_of(app), "text")

    assert snap_compare(app, terminal_size=size, run_before=act)


def test_prefill(world, snap_compare):
    """A question that is being read: percent, rate, time left."""
    app = world.app()

    async def act(pilot):
        await settled(pilot)
        app.chat_screen.composer.insert("What did we say about chapter 2?")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].progress("prefill", 3_120, 9_800, 410.0)
        await until(pilot, lambda: "prefill 3,120/9,800" in text_of(app), "the phase")
        await until(pilot, lambda: "chapter 2" in text_of(app).splitlines()[0], "the title")

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


def test_empty(world, snap_compare):
    """The first start: nothing to show but what to do."""
    assert snap_compare(world.app(), terminal_size=(80, 24), run_before=settled)


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "size"), [
    (["f1"], (80, 24)),
    (["f2"], (60, 16)),
    (["ctrl+b"], (80, 24)),
    (["ctrl+t"], (80, 24)),
    (["ctrl+b", "ctrl+b", "slash", "l", "i", "s"], (120, 36)),
    (["ctrl+o", "l", "i", "s"], (120, 36)),
    (["ctrl+o", "t", "e"], (60, 16)),
], ids=["help", "rename", "list", "panel", "filter", "switcher", "switcher-small"])  # fmt: skip
def test_what_keys_open(world, snap_compare, keys, size):
    """Help, the rename dialog, list and panel over a narrow screen, the filter, the switcher."""
    furnish(world)
    app = world.app(session="Rust borrow checker question")

    async def act(pilot):
        await settled(pilot)
        await pilot.press(*keys)

    assert snap_compare(app, terminal_size=size, run_before=act)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=["80x24", "120x36"])
def test_search(world, snap_compare, size):
    """Messages that were found, the words set apart."""
    furnish(world)

    async def act(pilot):
        await settled(pilot)
        pilot.app.chat_screen.action_search("clone borrow")
        await until(pilot, lambda: pilot.app.screen.choices._choices, "the hits")

    assert snap_compare(world.app(session="Rust borrow checker question"), terminal_size=size, run_before=act)


def test_the_list_in_full(world, snap_compare):
    """Badges, waits, pins, tags, dates: everything that a row can say, and the cursor."""
    furnish(world)
    world.store.set_tags(world.store.by_name("Tax letter").id, ["2026"])
    world.store.set_tags(world.store.by_name("Prompt lab").id, ["rust", "prompts"])
    world.store.set_pinned(world.store.by_name("Novel chapter 3").id, True)
    places = {"Rust borrow checker question": (0.0, "slot"), "Tax letter": (0.05, "ram"), "Novel chapter 3": (0.9, "ssd")}

    async def act(pilot):
        await settled(pilot)
        sessions = pilot.app.chat_screen.sessions
        ids = {item.title: item.id for item in sessions.items}
        resumes = {ids[title]: Resume(*facts) for title, facts in places.items()} | {ids["Prompt lab"]: Resume(7.2, "none")}
        sessions.mark({ids["Trip to Lisbon"]: "*", ids["Imported notes"]: "+"}, resumes)
        sessions.focus()
        await pilot.pause()

    assert snap_compare(world.app(session="Tax letter"), terminal_size=(120, 36), run_before=act)


def test_leaving_with_unsaved_answers(world, snap_compare):
    """The question before text is lost, and UNSAVED in the phase line beneath it."""
    conversation = world.talk("first", "hello", "Hi.")
    world.chat.unsaved = (conversation,)
    app = world.app(session="first")

    async def act(pilot):
        await settled(pilot)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(app.screen, Confirm), "the question")

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


def test_cut_and_not_exact(world, snap_compare, monkeypatch):
    """A cut answer says so and how it goes on; numbers that are not exact say why."""
    monkeypatch.setattr("tests.tui.conftest.NUMBERS", INEXACT)
    world.talk("first", "Tell me a story.", "Once upon a ti", state="cut")
    assert NUMBERS.exact
    assert snap_compare(world.app(session="first"), terminal_size=(120, 30), run_before=settled)


@pytest.mark.slow
@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN], ids=["drawn", "ascii"])
def test_no_colour(world, snap_compare, monkeypatch, glyphs):
    """NO_COLOR, with and without drawn characters: everything is told by words, letters, bold and reverse."""
    monkeypatch.setenv("NO_COLOR", "1")
    furnish(world)
    app = world.app(session="Rust borrow checker question", glyphs=glyphs)

    async def act(pilot):
        await settled(pilot)
        await pilot.press("ctrl+o", "escape", "down")

    assert snap_compare(app, terminal_size=(120, 36), run_before=act)


@pytest.mark.slow
def test_palette(world, snap_compare):
    """The palette over the chat: what fits, its slash command, its key, the marked one."""
    furnish(world)
    app = world.app(session="Rust borrow checker question")

    async def act(pilot):
        await settled(pilot)
        await pilot.press("ctrl+p", *"save and leave")
        await until(pilot, lambda: "Save and leave" in text_of(app), "the palette")

    assert snap_compare(app, terminal_size=(120, 36), run_before=act)


def test_completion(world, snap_compare):
    """Slash commands over the composer while one is being written."""
    app = world.app()

    async def act(pilot):
        await settled(pilot)
        await pilot.press(*"/er")
        await until(pilot, lambda: "> /erase" in text_of(app), "the offers")

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 16), (120, 36)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_waiting_messages_and_a_chip(world, snap_compare, size):
    """Messages that wait over the composer, and a long paste in it that takes one row."""
    furnish(world)
    app = world.app(session="Rust borrow checker question")

    async def act(pilot):
        await settled(pilot)
        for text in ("how would I fix it?", "and in Rust 2024?", "thanks\nfor\nall of it"):
            app.chat_screen.composer.insert(text)
            await pilot.press("enter")
        await until(pilot, lambda: "2 messages wait" in text_of(app), "the queue")
        app.chat_screen.composer.insert("why does ")
        app.post_message(Paste("error[E0502]\n" * 40))
        await until(pilot, lambda: "[pasted 41 lines]" in text_of(app), "the chip")

    assert snap_compare(app, terminal_size=size, run_before=act)


THINKS = """<think>
The person wants to end the borrow early.
Cloning copies the value, so nothing is borrowed.
</think>

Clone it, see [the book](https://doc.rust-lang.org/book/):

```rust
let first = v[0].clone();
```
"""


def converse(world):
    """A conversation whose last answer has thoughts and two versions."""
    talk = world.talk("Rust", "Why does this not compile?", "It borrows `v`.", "And with clone?", "No idea.", age=20)
    world.store.begin_answer(talk, world.store.path(talk)[2].id)
    world.store.finish_answer(world.store.get(talk).leaf, text=THINKS, ids=b"", state="complete", head=None, numbers=NUMBERS)


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "size"), [
    (["alt+up"], (80, 24)),
    (["alt+up", "space"], (80, 24)),
    (["alt+up", "alt+up", "e"], (80, 24)),
    (["ctrl+f", "c", "l", "o", "n", "e"], (100, 30)),
], ids=["cursor", "thoughts", "editing", "find"])  # fmt: skip
def test_what_is_done_to_messages(world, snap_compare, keys, size):
    """The cursor on an answer with versions, its thoughts, a question that is edited, words that are found."""
    converse(world)
    app = world.app(session="Rust")

    async def act(pilot):
        await settled(pilot)
        await pilot.press(*keys)

    assert snap_compare(app, terminal_size=size, run_before=act)


def test_branches(world, snap_compare):
    """All paths through a conversation, the one that is looked at marked."""
    converse(world)
    path = world.store.path(world.store.by_name("Rust").id)
    world.store.ask(path[0].conversation, path[1].id, "What is a borrow?")
    app = world.app(session="Rust")

    async def act(pilot):
        await settled(pilot)
        app.chat_screen.action_branches()
        await until(pilot, lambda: "3 branches" in text_of(app), "the dialog")

    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


@pytest.mark.slow
@pytest.mark.parametrize(("line", "size"), [("/set", (60, 16)), ("/system", (80, 24))], ids=["sampling", "system"])
def test_settings_of_a_conversation(world, snap_compare, line, size):
    """The dialogs for sampling, on the smallest screen, and for the system prompt, with its price."""
    furnish(world)
    app = world.app(session="Rust borrow checker question")

    async def act(pilot):
        await settled(pilot)
        app.chat_screen.composer.insert(line)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is not app.chat_screen, "the dialog")

    assert snap_compare(app, terminal_size=size, run_before=act)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 36)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN], ids=["drawn", "ascii"])
def test_statistics(world, snap_compare, size, glyphs):
    """Plots over an hour and tables beside, with what matters most at the top of a small screen."""
    furnish(world)
    world.client.latest_snapshot = None
    app = world.app(session="Rust borrow checker question", glyphs=glyphs)
    busy_hour(app.chat_screen.instruments.history)

    async def act(pilot):
        await settled(pilot)
        await pilot.press("f3")
        await until(pilot, lambda: "415 ms" in text_of(app), "the plots")

    assert snap_compare(app, terminal_size=size, run_before=act)


class Near(dict):
    """The open conversation is near, and of no other one anything is known."""

    def get(self, key, default=None):
        return Resume(0.2, "ram") if key else default


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_panel_of_a_busy_hour(world, snap_compare, monkeypatch, size):
    """A card and what takes it, this conversation, the last turn, swaps drawn, totals, events: first what matters first."""
    furnish(world)
    monkeypatch.setattr("localkv.service.hints.Hints.resumes", Near())
    app = world.app(session="Rust borrow checker question")
    history = app.chat_screen.instruments.history
    busy_hour(history)
    world.client.latest_snapshot = msgspec.structs.replace(
        history.newest, card=Card(total_bytes=24 << 30, used_bytes=21 << 30)
    )

    async def act(pilot):
        await settled(pilot)
        if size[0] < 120:
            await pilot.press("ctrl+t")

    assert snap_compare(app, terminal_size=size, run_before=act)
