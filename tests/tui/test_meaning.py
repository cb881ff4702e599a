"""What keys mean where one is: typing is always heard, esc does what the last row says, nothing covers what is written."""

import msgspec
import pytest
from rich.cells import cell_len

from localkv.errors import EngineUnavailable
from localkv.service.protocol import Failed
from localkv.tui.completion import command_offers, offer_rows
from localkv.tui.glyphs import DRAWN
from localkv.tui.meaning import way_out
from tests.tui.conftest import play, rows_of, text_of, until
from tests.tui.fakes import EPOCH, NUMBERS
from tests.tui.samples import PALETTE


async def ready(pilot):
    await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")


def last_row(app):
    return text_of(app).splitlines()[-1]


def furnished(world):
    for n in range(3):
        world.talk(f"talk {n}", "q", "an answer with a word", age=100.0 * n)
    return world.app(session="talk 0")


@pytest.mark.slow
@pytest.mark.parametrize(("size", "keys", "then"), [
    ((80, 24), ["ctrl+b", "ctrl+t"], None),
    ((80, 24), ["ctrl+t", "f8", "ctrl+t"], None),
    ((160, 40), ["f8", "ctrl+t"], None),
    ((160, 40), ["f8"], (80, 24)),
    ((160, 40), ["f8", "f8"], (80, 24)),
    ((100, 30), ["ctrl+b", "ctrl+b", "slash", "t"], (80, 24)),
], ids=["list to panel", "panel", "wide panel", "panel in a smaller window", "list in a smaller window", "filter"])  # fmt: skip
def test_a_pane_that_goes_away_leaves_the_focus_to_the_composer(world, size, keys, then):
    """Whatever takes the pane away that had the focus: what is typed next is written."""

    async def scene(pilot):
        await ready(pilot)
        await pilot.press(*keys)
        if then is not None:
            await pilot.resize_terminal(*then)
        screen = pilot.app.chat_screen
        await until(pilot, lambda: screen.focused is screen.composer, "the focus")
        await pilot.press(*"dx")
        assert screen.composer.text == "dx"

    play(furnished(world), scene, size=size)


def test_a_click_into_the_conversation_does_not_turn_words_into_keys(world):
    """Who selects something with the mouse and then writes, writes: no letter deletes, answers again or forks."""
    talk = world.talk("t", "q", "an answer")
    path = [message.id for message in world.store.path(talk)]

    async def scene(pilot):
        await ready(pilot)
        await pilot.click("#transcript", offset=(4, 3))
        await pilot.press(*"dref")
        assert pilot.app.chat_screen.composer.text == "dref"

    play(world.app(session="t"), scene)
    assert [message.id for message in world.store.path(talk)] == path


def test_tab_indents_what_is_being_written(world):
    """In a line of code tab is a tab; with nothing written it goes to the next pane."""

    async def scene(pilot):
        await ready(pilot)
        composer = pilot.app.chat_screen.composer
        await pilot.press("a", "tab", "d")
        assert composer.text == "a    d"
        assert pilot.app.focused is composer
        composer.load_text("")
        await pilot.press("tab")
        assert pilot.app.focused is not composer

    play(furnished(world), scene)


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "word", "focus"), [
    ([], "", "composer"),
    (["ctrl+t"], "close", "composer"),
    (["ctrl+b"], "close", "composer"),
    (["ctrl+b", "x"], "unmark", "sessions"),
    (["ctrl+b", "v"], "back", "sessions"),
    (["ctrl+b", "slash", "t"], "show all", "sessions"),
    (["ctrl+b", "slash", "t", "down"], "show all", "sessions"),
    (["alt+up"], "back", "composer"),
    (["alt+up", "e"], "leave it", "composer"),
    (["f8"], "back", "composer"),
    (["ctrl+f", "w", "tab"], "close", "composer"),
])  # fmt: skip
def test_esc_does_what_the_last_row_says(world, keys, word, focus):
    """In each state the row names what esc does, or nothing where it does nothing; pressed, that state is left."""

    async def scene(pilot):
        await ready(pilot)
        await until(pilot, lambda: not pilot.app.chat_screen._ticking._active.is_set(), "rest")
        await pilot.press(*keys)
        await pilot.pause()
        screen = pilot.app.chat_screen
        assert (f"esc {word}" in last_row(pilot.app)) if word else ("esc" not in last_row(pilot.app))
        await pilot.press("escape")
        await pilot.pause()
        assert screen.focused.id == focus
        left = way_out(screen)
        assert left is None or (left.word, focus) != (word, "composer")

    play(furnished(world), scene)


def test_esc_stops_is_said_while_there_is_something_to_stop(world):
    """The row says so from the first token to the last and not longer."""

    async def scene(pilot):
        await ready(pilot)
        pilot.app.chat_screen.composer.insert("hello")
        await pilot.press("enter")
        await until(pilot, lambda: "esc stop " in last_row(pilot.app), "the word")
        world.chat.turns[0].end()
        await until(pilot, lambda: "esc" not in last_row(pilot.app), "nothing to stop")

    play(furnished(world), scene)


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "says"), [
    ([], True),
    (["f8"], True),
    (["ctrl+f", "w", "tab"], True),
    (["ctrl+f", "w"], False),
    (["slash"], False),
    (["alt+up"], False),
    (["ctrl+b"], False),
    (["ctrl+t"], False),
])  # fmt: skip
def test_the_phase_line_says_that_esc_stops_where_it_does(world, keys, says):
    """Beside the phase stands what the key does now: with a cursor, the list or the panel in its way it stops nothing."""

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        screen.composer.insert("hello")
        await pilot.press("enter")
        await until(pilot, lambda: "esc stops" in rows_of(screen.instruments.phase)[0], "the words")
        await pilot.press(*keys)
        world.chat.turns[0].write("text")
        await until(pilot, lambda: screen.stage.runs.of(screen.desk.key).phase.doing == "generating", "text")
        await until(pilot, lambda: ("esc stops" in rows_of(screen.instruments.phase)[0]) == says, "the words of now")
        await pilot.press("escape")
        assert world.chat.turns[0].cancelled.is_set() == says
        if not says:
            await until(pilot, lambda: "esc stops" in rows_of(screen.instruments.phase)[0], "the words again")

    play(furnished(world), scene)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "sizes"), [
    ("ctrl+b", [(80, 24), (100, 24)]),
    ("ctrl+b", [(80, 24), (130, 24)]),
    ("ctrl+t", [(80, 24), (130, 24)]),
    ("ctrl+t", [(100, 24), (130, 24)]),
])  # fmt: skip
def test_what_lay_over_the_conversation_is_beside_it_in_a_wider_window(world, key, sizes):
    """List and panel that were opened in a narrow window are in nobody's way in a wide one: esc stops the answer."""
    narrow, wide = sizes

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        screen.composer.insert("hello")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        await pilot.press(key)
        screen.composer.focus()
        assert way_out(screen).word == "close"
        await pilot.resize_terminal(*wide)
        await until(pilot, lambda: "esc stop " in last_row(pilot.app), "the word")
        await pilot.press("escape")
        await until(pilot, lambda: world.chat.turns[0].cancelled.is_set(), "a stop")
        await pilot.resize_terminal(*narrow)
        await until(pilot, lambda: way_out(screen).word == "close", "the way out")

    play(furnished(world), scene, size=narrow)


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 72, 80, 100, 160])
def test_help_is_always_named(world, width):
    """However many keys a pane has and however narrow the window: F1 is in the last row, and so is the way out."""

    async def scene(pilot):
        await ready(pilot)
        into_the_list = ["ctrl+b"] * (1 if width < 100 else 2)
        for keys, way in ((["alt+up"], "esc back"), (["escape", *into_the_list], "esc"), (["escape"], "")):
            await pilot.press(*keys)
            await pilot.pause()
            assert "F1 help" in last_row(pilot.app)
            assert way in last_row(pilot.app)

    play(furnished(world), scene, size=(width, 24))


def test_the_row_says_where_v_goes_and_that_the_trash_is_for_good(world):
    """From the list to the archive, the trash and back; in the trash d and u are named for what they do there."""

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("ctrl+b")
        for word in ("v archive", "v trash", "v list"):
            await until(pilot, lambda word=word: word in last_row(pilot.app), word)
            assert ("d remove u bring back" in last_row(pilot.app)) == (word == "v list")
            await pilot.press("v")

    play(furnished(world), scene)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 40)])
def test_notices_cover_neither_what_is_written_nor_the_keys(world, size):
    """After a command that is refused, its line can be read and mended at once, and the title and phase stay in view."""

    async def scene(pilot):
        await ready(pilot)
        await pilot.press(*"/foo", "enter")
        pilot.app.chat_screen.say("another notice, " * 9)
        await until(pilot, lambda: "there is no command" in text_of(pilot.app), "the notice")
        rows = text_of(pilot.app).splitlines()
        screen = pilot.app.chat_screen
        beneath = screen.instruments.phase.region.y
        assert any("/foo" in part for part in rows[beneath:])
        assert not any("notice" in part or "no command" in part for part in (rows[0], *rows[beneath:]))

    play(furnished(world), scene, size=size)


@pytest.mark.parametrize("width", [20, 40, 58, 78, 158])
def test_offers_that_do_not_fit_say_so(width):
    """A row is never wider than the window, and a text that is cut ends in a mark of that."""
    found = command_offers("/")
    for offer, shown in zip(found, offer_rows(found, 0, PALETTE, DRAWN, width), strict=True):
        assert cell_len(shown.strip.text) <= width
        assert offer.about in shown.strip.text or shown.strip.text.rstrip().endswith(DRAWN.ellipsis)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "named", "unnamed"), [
    ("plain words", ["y copy", "r again"], ["fold", "code", "version"]),
    ("<think>\nhm\n</think>\n\nwords", ["space fold"], ["code", "version"]),
    ("```\nx = 1\n```", ["b code"], ["fold", "version"]),
])  # fmt: skip
def test_keys_that_do_nothing_to_a_message_are_not_named(world, answer, named, unnamed):
    """The row on a message has what can be done to this very message."""
    world.talk("t", "q", answer)

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up")
        await pilot.pause()
        shown = last_row(pilot.app)
        assert all(word in shown for word in named)
        assert not any(word in shown for word in unnamed)

    play(world.app(session="t"), scene, size=(120, 30))


def test_versions_are_named_where_there_are_some(world):
    """An answer that was written twice has a key for the other one in the row."""
    talk = world.talk("t", "q", "a")
    world.store.begin_answer(talk, world.store.path(talk)[0].id)
    world.store.finish_answer(world.store.get(talk).leaf, text="b", ids=b"", state="complete", head=None, numbers=None)

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("alt+up")
        await until(pilot, lambda: "] version" in last_row(pilot.app), "the key")

    play(world.app(session="t"), scene)


@pytest.mark.slow
def test_reading_goes_on_where_it_was_left(world):
    """Another conversation and back: the rows that were read are there; one that was followed is at its end."""
    world.talk("long", *(f"row {n}\n" * 9 for n in range(80)), age=10.0)
    other = world.talk("other", "q", "a", age=20.0)
    talk = world.store.by_name("long").id

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press(*["pageup"] * 20)
        read = rows_of(screen.transcript)
        for _ in range(2):
            screen.open(other)
            await pilot.pause()
            assert rows_of(screen.transcript) != read
            screen.open(talk)
            await pilot.pause()
            assert rows_of(screen.transcript) == read
        assert "more below" in text_of(pilot.app)
        await pilot.press("ctrl+l")
        end = rows_of(screen.transcript)
        screen.open(other)
        screen.open(talk)
        await pilot.pause()
        assert rows_of(screen.transcript) == end

    play(world.app(session="long"), scene)


def test_words_are_not_looked_for_in_the_next_conversation(world):
    """Another conversation is opened: the row for words and its count, which was the other one's, are gone."""

    async def scene(pilot):
        await ready(pilot)
        await pilot.press("ctrl+f", *"word")
        await until(pilot, lambda: "1/1" in text_of(pilot.app), "the count")
        await pilot.press("ctrl+pagedown")
        await until(pilot, lambda: "talk 1" in text_of(pilot.app).splitlines()[0], "the next one")
        assert "1/1" not in text_of(pilot.app)
        await pilot.press(*"dx")
        assert pilot.app.chat_screen.composer.text == "dx"

    play(furnished(world), scene)


@pytest.mark.slow
def test_many_are_marked_at_once(world):
    """X marks all that the filter left and nothing else; d moves them to the trash together; X again marks none."""
    for n in range(12):
        world.talk(f"old {n}", "q", "a", age=1e6 + n)

    async def scene(pilot):
        await ready(pilot)
        sessions = pilot.app.chat_screen.sessions
        await pilot.press("ctrl+b", "slash", *"old", "down", "X")
        await until(pilot, lambda: "12 marked" in text_of(pilot.app), "the count")
        await pilot.press("X")
        assert not sessions.marked
        await pilot.press("X", "d")
        await until(pilot, lambda: sessions.count == 3, "the others")
        assert {item.title for item in sessions.items if item.place == "trash"} == {f"old {n}" for n in range(12)}

    play(furnished(world), scene)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "said"), [
    (0.5, ""), (0.84, ""), (0.865, "context 86 % full"), (0.96, "95 % full, 1,311 tok left: fork above or /new"), (1.0, "100 % full"),
])  # fmt: skip
def test_a_context_that_fills_is_told_in_time(world, monkeypatch, share, said):
    """From 85 % on the phase line says how much is left, from 95 % on what can be done, also in the smallest window."""
    used = round(share * 32_768)
    numbers = msgspec.structs.replace(NUMBERS, prompt_tokens=used - 100, generated_tokens=100)
    monkeypatch.setattr("tests.tui.conftest.NUMBERS", numbers)

    async def scene(pilot):
        await ready(pilot)
        shown = text_of(pilot.app)
        assert said in shown
        assert ("context" in shown) == bool(said)

    play(furnished(world), scene, size=(60, 16))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["connect", "load"])
def test_why_there_is_no_engine_stays_in_view(world, how):
    """The notice goes after some seconds; the phase line keeps saying it until an engine works."""
    if how == "connect":
        world.client.connect_problem = EngineUnavailable("no such engine")
    else:
        world.client.replies_to_prepare = [Failed(request=1, epoch=EPOCH, error="ModelMissing", message="no such engine")]
    app = furnished(world)

    async def scene(pilot):
        await until(pilot, lambda: "off" in text_of(app).splitlines()[0], "the state")
        app.clear_notifications()
        screen = app.chat_screen
        await until(pilot, lambda: not screen._ticking._active.is_set(), "rest")
        line = rows_of(screen.instruments.phase)[0]
        assert "no such engine" in line
        world.client.connect_problem = world.client.replies_to_prepare = None
        world.client.alive = True
        screen.composer.insert("are you there?")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].end()
        await until(pilot, lambda: "ready" in text_of(app).splitlines()[0], "an engine")
        assert "no such engine" not in rows_of(screen.instruments.phase)[0]

    play(app, scene)


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_keys_in_the_list_stay_keys_of_the_list(world, width):
    """Two are deleted and brought back with four keys; none of them is written into a message."""

    async def scene(pilot):
        await ready(pilot)
        screen = pilot.app.chat_screen
        await pilot.press(*["ctrl+b"] * (1 if width < 100 else 2), "down", "d", "d")
        assert screen.sessions.count == 1
        await pilot.press("u", "u")
        await until(pilot, lambda: screen.sessions.count == 3, "all of them")
        assert screen.composer.text == ""
        assert screen.focused is screen.sessions
        assert screen.sessions.is_on_screen

    play(furnished(world), scene, size=(width, 24))
