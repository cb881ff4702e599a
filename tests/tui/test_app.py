"""The chat screen as a person uses it: keys in, rows out, with a scripted engine behind it."""

import msgspec
import pytest
from textual.events import Key, Paste, Resize
from textual.geometry import Size

from localkv.config import ModelSection
from localkv.errors import EngineUnavailable, NotWritable
from localkv.service.protocol import Failed
from localkv.service.turn_events import EngineRestarted, Unsaved
from localkv.tui.dialogs import Confirm, Help, Rename
from localkv.tui.glyphs import PLAIN
from localkv.tui.listing import UNTITLED
from localkv.tui.prompting import SystemPrompt
from localkv.tui.rows import selected
from localkv.tui.transcript import Transcript
from tests.tui.conftest import notices, play, rows_of, text_of, until
from tests.tui.fakes import EPOCH, NUMBERS


async def ask(pilot, world, text):
    """Type and send a question; the turn that it became."""
    turns = len(world.chat.turns)
    pilot.app.chat_screen.composer.insert(text)
    await pilot.press("enter")
    await until(pilot, lambda: len(world.chat.turns) > turns, "a turn")
    await until(pilot, lambda: text[:20].split("\n")[0] in text_of(pilot.app), "the question on screen")
    return world.chat.turns[-1]


def idle(app):
    """Whether no timer of the screen ticks."""
    return not app.chat_screen._ticking._active.is_set()


def test_send_stream_finish(world):
    """A question appears, its answer grows on screen, and what is stored takes its place with its numbers."""

    async def scene(pilot):
        turn = await ask(pilot, world, "Why is the sky blue?")
        assert pilot.app.chat_screen.composer.text == ""
        turn.write("Because of **scatter", 4)
        await until(pilot, lambda: "Because of **scatter" in text_of(pilot.app), "the open tail")
        assert "generating 4 tok" in text_of(pilot.app)
        turn.write("ing**.", 2)
        turn.end()
        await until(pilot, lambda: "restored 12,288, computed 122" in text_of(pilot.app), "the numbers")
        assert "Because of scattering." in text_of(pilot.app)
        assert "generating" not in text_of(pilot.app)
        [conversation] = world.store.list()
        assert [m.text for m in world.store.path(conversation.id)] == ["Why is the sky blue?", "Because of **scattering**."]
        assert not world.chat.turns[0].cancelled.is_set()

    play(world.app(), scene)


def test_the_first_words_are_the_title_at_once(world):
    """A new conversation has its title in header and list while its first answer is being written."""

    async def scene(pilot):
        await ask(pilot, world, "Plan a trip to Lisbon")
        await until(pilot, lambda: "Plan a trip to Lisbon" in text_of(pilot.app).splitlines()[0], "the header")
        assert [item.title for item in pilot.app.chat_screen.sessions.shown] == ["Plan a trip to Lisbon"]

    play(world.app(), scene)


def test_two_unsaved_answers_stay_on_screen(world):
    """While the database refuses writes, the next question does not push the last answer off the screen."""
    world.chat.stores = False

    async def scene(pilot):
        turn = await ask(pilot, world, "first question")
        turn.write("first answer")
        turn.end("complete", unsaved="disk full")
        await until(pilot, lambda: "UNSAVED" in text_of(pilot.app), "the mark")
        turn = await ask(pilot, world, "second question")
        turn.write("second answer")
        await until(pilot, lambda: "second answer" in text_of(pilot.app), "the second answer")
        assert "first question" in text_of(pilot.app)
        assert "first answer" in text_of(pilot.app)

    play(world.app(), scene)


def test_nothing_is_stored_before_the_first_question(world):
    """Looking around and starting new conversations leaves no empty ones behind."""

    async def scene(pilot):
        await pilot.press("ctrl+n", "ctrl+n")
        assert UNTITLED in text_of(pilot.app)
        assert world.store.list() == []

    play(world.app(), scene)


@pytest.mark.slow
def test_escape_stops_and_f5_goes_on(world):
    """Esc keeps what arrived and marks it; F5 writes on in the same answer."""

    async def scene(pilot):
        turn = await ask(pilot, world, "Count")
        turn.write("one two")
        await until(pilot, lambda: "one two" in text_of(pilot.app), "text")
        await pilot.press("escape")
        await until(pilot, lambda: "Stopped. F5 goes on." in text_of(pilot.app), "the mark")
        assert turn.cancelled.is_set()
        await pilot.press("f5")
        await until(pilot, lambda: len(world.chat.turns) == 2, "another turn")
        world.chat.turns[1].write(" three")
        await until(pilot, lambda: "one two three" in text_of(pilot.app), "more text")
        assert "Stopped" not in text_of(pilot.app)
        world.chat.turns[1].end()
        await until(pilot, lambda: idle(pilot.app), "rest")
        assert text_of(pilot.app).count("one two") == 1

    play(world.app(), scene)


def test_a_question_asked_while_the_engine_loads_is_queued(world):
    """The composer works before the engine is there; the phase line says what the question waits for."""
    world.client.hold.clear()

    async def scene(pilot):
        await until(pilot, lambda: "loading Qwen3-4B 50 %" in text_of(pilot.app), "the loading phase")
        turn = await ask(pilot, world, "Are you there?")
        assert "loading Qwen3-4B 50 %" in text_of(pilot.app)
        world.client.hold.set()
        await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")
        assert "queued" in text_of(pilot.app)
        turn.progress("restoring", 1 << 20, 4 << 20)
        await until(pilot, lambda: "restoring 25 %" in text_of(pilot.app), "restoring")
        turn.progress("prefill", 3_120, 9_800, 410.0)
        await until(pilot, lambda: "prefill 3,120/9,800 31 %  410.0 tok/s  ~16.3 s left" in text_of(pilot.app), "prefill")
        turn.end()
        await until(pilot, lambda: idle(pilot.app), "rest")

    play(world.app(), scene)


def test_the_list_is_there_before_the_engine(world):
    """The first frame shows the conversations; nothing has been asked of the engine by then."""
    world.talk("Trip to Lisbon", "hi", "hello")
    app = world.app()
    seen = []
    prepare = app.chat_screen.stage.prepare
    app.chat_screen.stage.prepare = lambda: (seen.append(text_of(app)), prepare())

    async def scene(pilot):
        await until(pilot, lambda: world.client.sent, "the engine")
        assert "Trip to Lisbon" in seen[0]

    play(app, scene, size=(120, 30))


def test_an_engine_that_cannot_start_is_said(world):
    """The reason is a notice, and reading goes on."""
    world.client.connect_problem = EngineUnavailable("no engine answered within 60 s")
    world.talk("old", "hi", "hello")

    async def scene(pilot):
        await until(pilot, lambda: "no engine answered" in text_of(pilot.app), "the notice")
        await until(pilot, lambda: "off" in text_of(pilot.app).splitlines()[0], "the state")
        await pilot.press("ctrl+pagedown")
        await until(pilot, lambda: "hello" in text_of(pilot.app), "the old answer")

    play(world.app(), scene)


def test_an_engine_that_dies_while_idle_is_off(world):
    """The header does not say ready of an engine that is gone, and says it again after the next answer."""

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(pilot.app).splitlines()[0], "ready")
        world.client.alive = False
        pilot.app.chat_screen.show_facts()
        await until(pilot, lambda: "off" in text_of(pilot.app).splitlines()[0], "off")
        turn = await ask(pilot, world, "hello")
        world.client.alive = True
        turn.end()
        await until(pilot, lambda: "ready" in text_of(pilot.app).splitlines()[0], "ready again")

    play(world.app(), scene)


def test_a_model_that_cannot_be_loaded_is_said(world):
    """The engine's sentence is shown word for word, brackets included."""
    world.client.replies_to_prepare = [Failed(request=1, epoch=EPOCH, error="ModelMissing", message="no model [red]x[/]")]

    async def scene(pilot):
        await until(pilot, lambda: "no model [red]x[/]" in text_of(pilot.app), "the notice")

    play(world.app(), scene)


def test_switching_keeps_drafts_and_answers(world):
    """A draft waits where it was typed, an answer goes on in the background, and the list says so."""
    first = world.talk("first", "q1", "a1", age=10)
    second = world.talk("second", "q2", "a2", age=20)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        screen.open(first)
        turn = await ask(pilot, world, "go on")
        screen.composer.insert("half a thought")
        await pilot.press("ctrl+pagedown")
        await until(pilot, lambda: "a2" in text_of(pilot.app), "the second conversation")
        assert screen.composer.text == ""
        assert "half a thought" not in text_of(pilot.app)
        assert any("* first" in row for row in rows_of(screen.sessions))
        turn.write("background text")
        turn.end()
        await until(pilot, lambda: any("+ first" in row for row in rows_of(screen.sessions)), "the mark")
        await pilot.press("ctrl+pageup")
        await until(pilot, lambda: "background text" in text_of(pilot.app), "the answer")
        assert screen.composer.text == "half a thought"
        assert not any("+ first" in row for row in rows_of(screen.sessions))
        assert world.store.get(second).draft == ""

    play(world.app(), scene, size=(120, 30))


@pytest.mark.slow
def test_the_draft_survives_the_program(world):
    """What was typed and not sent is there after leaving and coming back."""
    world.talk("first", "q", "a")

    async def write(pilot):
        await pilot.press(*"not yet")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: world.client.left, "leaving")

    async def read(pilot):
        assert pilot.app.chat_screen.composer.text == "not yet"

    play(world.app(session="first"), write)
    play(world.app(session="first"), read)


def test_rename(world):
    """F2 asks for a title; Enter keeps it, in the header and in the list."""
    world.talk("old name", "q", "a")

    async def scene(pilot):
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(pilot.app.screen, Rename), "the dialog")
        await pilot.press("ctrl+a", "ctrl+k", *"new", "enter")
        await until(pilot, lambda: pilot.app.screen is pilot.app.chat_screen, "the end of the dialog")
        assert text_of(pilot.app).count("new") >= 2
        assert world.store.list()[0].title == "new"

    play(world.app(session="old name"), scene, size=(120, 30))


def test_rename_is_left_with_escape(world):
    """Esc changes nothing."""
    world.talk("old name", "q", "a")

    async def scene(pilot):
        await pilot.press("f2", *"xyz", "escape")
        await until(pilot, lambda: pilot.app.screen is pilot.app.chat_screen, "the end of the dialog")
        assert world.store.list()[0].title == "old name"

    play(world.app(session="old name"), scene)


def test_delete_and_undo(world):
    """d moves a conversation to the trash and shows the next one; u brings it back."""
    world.talk("first", "q1", "a1", age=10)
    world.talk("second", "q2", "a2", age=20)

    async def scene(pilot):
        await pilot.press("ctrl+b", "d")
        await until(pilot, lambda: "is in the trash" in text_of(pilot.app), "the toast")
        assert [c.title for c in world.store.list()] == ["second"]
        assert [item.title for item in pilot.app.chat_screen.sessions.shown] == ["second"]
        assert pilot.app.chat_screen.desk.title == "second"
        await pilot.press("u")
        await until(pilot, lambda: len(world.store.list()) == 2, "its return")
        assert pilot.app.chat_screen.desk.title == "first"

    play(world.app(session="first"), scene)


def test_deleting_while_it_answers_does_not_bring_it_back(world):
    """An answer that ends after its conversation was deleted leaves the list as it is."""
    world.talk("first", "q1", "a1")

    async def scene(pilot):
        turn = await ask(pilot, world, "more")
        pilot.app.chat_screen.delete_open()
        await until(pilot, lambda: turn.over.is_set() and idle(pilot.app), "rest")
        assert pilot.app.chat_screen.sessions.shown == []

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_filter(world):
    """/ filters while typing, Enter opens the first, Esc shows all again."""
    for index, title in enumerate(["alpha one", "beta two", "gamma one"]):
        world.talk(title, f"q{index}", f"answer {index}", age=10 + index)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press("ctrl+b", "slash", *"one")
        assert [item.title for item in screen.sessions.shown] == ["alpha one", "gamma one"]
        assert "2 of 3" in text_of(pilot.app)
        await pilot.press("space", *"gam", "enter")
        await until(pilot, lambda: "answer 2" in text_of(pilot.app), "the conversation")
        assert len(screen.sessions.shown) == 3
        await pilot.press("ctrl+o", *"beta", "escape")
        assert len(screen.sessions.shown) == 3

    play(world.app(), scene)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (99, 20), (100, 30), (119, 30), (120, 36), (200, 60)])
def test_sizes(world, size):
    """At every size the composer and the newest text are on screen, and no row is wider than the screen."""
    world.talk("first", "question", "answer " * 60)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")
        assert "answer" in text_of(pilot.app)
        assert screen.composer.region.bottom <= size[1]
        assert screen.composer.region.width > 20
        assert all(row.strip.cell_length <= screen.transcript.room for row in screen.transcript._pages.rows(1))
        await pilot.press("ctrl+b", "ctrl+b", "ctrl+t", "ctrl+t")
        await pilot.pause()
        assert "answer" in text_of(pilot.app)

    play(world.app(session="first"), scene, size=size)


@pytest.mark.slow
def test_resizing_comes_to_rest(world):
    """Many sizes in a row end in one layout: the screen does not go back and forth between two of them."""
    world.talk("first", *(f"text {i} " * 20 for i in range(40)))

    async def scene(pilot):
        app = pilot.app
        await until(pilot, lambda: idle(app), "rest")
        resizes = []
        real = app.chat_screen._on_resize

        async def counted(event):
            resizes.append(event.size)
            await real(event)

        app.chat_screen._on_resize = counted
        for width in (90, 130, 100, 70, 125, 80):
            app.post_message(Resize(Size(width, 24), Size(width, 24)))
            await pilot.pause(0.005)
        await pilot.pause(0.5)
        seen = len(resizes)
        await pilot.pause(0.5)
        assert len(resizes) == seen

    play(world.app(session="first"), scene)


@pytest.mark.slow
def test_resize_keeps_the_place(world):
    """The message that was first on screen is first after another width."""
    world.talk("long", *(f"{'question' if i % 2 == 0 else 'answer'} {i} " + "words " * 40 for i in range(60)))

    async def scene(pilot):
        transcript = pilot.app.chat_screen.transcript
        transcript.scroll_to(y=transcript.max_scroll_y // 2, animate=False)
        await pilot.pause()
        before = transcript._pages.place(round(transcript.scroll_y))[0]
        for width in (60, 130, 100, 80):
            await pilot.resize_terminal(width, 24)
            await pilot.pause()
            assert transcript._pages.place(round(transcript.scroll_y))[0] == before

    play(world.app(session="long"), scene)


HOSTILE = "[bold]x[/] [link=file:///etc]y[/link] \x1b[31mred\x1b[0m \u202eevil\u2066 <script>alert(1)</script>"


def test_hostile_text_is_literal_everywhere(world):
    """Markup, escape sequences, direction overrides and HTML of users and models show as characters: in title, text, notices."""
    conversation = world.talk("hostile", HOSTILE, HOSTILE)
    world.store.rename(conversation, title=HOSTILE)

    async def scene(pilot):
        screen = pilot.app.chat_screen
        shown = text_of(pilot.app)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        body = "\n".join(rows_of(screen.transcript))
        assert body.count("[bold]x[/]") == 2
        assert body.count("<script>alert(1)</script>") == 2
        assert "^[[31mred" in body
        assert "[bold]x[/]" in rows_of(screen.sessions)[1]
        screen.say(HOSTILE, "error")
        await until(pilot, lambda: text_of(pilot.app).count("[bold]x[/]") > shown.count("[bold]x[/]"), "the notice")
        screen.delete_open()
        await pilot.press("f2")
        await pilot.pause()
        assert "\x1b" not in text_of(pilot.app)

    play(world.app(session="hostile"), scene, size=(130, 40))


OBEYED = "a\x1b[31mred\x07 \x9b31m \u202etxt \u200b\U000e0041 \x1b]52;c;aGk=\x07"


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["", "ctrl+f", "f2", "ctrl+o", "f4", "ctrl+p", "tab,/"])
def test_what_is_pasted_into_a_field_steers_no_terminal(world, keys):
    """Composer, find, title, switcher, search, palette, filter of the list: what is pasted is kept as it is and drawn harmless."""
    world.talk("talk", "question", "answer")

    async def scene(pilot):
        before = pilot.app.focused
        if keys == "tab,/":
            pilot.app.chat_screen.sessions.focus()
            await pilot.press("/")
        elif keys:
            await pilot.press(keys)
        await until(pilot, lambda: not keys or pilot.app.focused is not before, "a field")
        field = pilot.app.focused
        field.post_message(Paste(OBEYED))

        def content():
            return getattr(field, "value", None) or getattr(field, "text", "")

        await until(pilot, lambda: "red" in content(), "the paste")
        await until(pilot, lambda: "[31mred" in text_of(pilot.app), "it is drawn")
        assert not set("\x1b\x07\x9b\u202e\u200b\U000e0041") & set(text_of(pilot.app))
        assert content().endswith(OBEYED)

    play(world.app(session="talk"), scene, size=(130, 40))


def test_a_hostile_question_that_is_edited_steers_no_terminal(world):
    """An imported question in the composer: what is sent is what it was, what is drawn is harmless."""
    world.talk("talk", OBEYED, "answer")

    async def scene(pilot):
        await pilot.press("alt+up", "alt+up", "e")
        composer = pilot.app.chat_screen.composer
        await until(pilot, lambda: "red" in composer.text, "the question")
        await until(pilot, lambda: text_of(pilot.app).count("[31mred") == 2, "it is drawn")
        assert not set("\x1b\x07\x9b\u202e\u200b\U000e0041") & set(text_of(pilot.app))
        assert composer.message == OBEYED

    play(world.app(session="talk"), scene, size=(130, 40))


@pytest.mark.slow
def test_scrolling_up_while_it_streams_is_not_yanked(world):
    """New text moves nothing that is read; the end is one key away and is followed again from there."""
    world.talk("long", *(f"text {i}\n\nline" for i in range(40)))

    async def scene(pilot):
        transcript = pilot.app.chat_screen.transcript
        turn = await ask(pilot, world, "more")
        await pilot.press("pageup", "pageup")
        await until(pilot, lambda: "more below: ^l" in text_of(pilot.app), "the hint")
        before = rows_of(transcript)
        for index in range(30):
            turn.write(f"new line {index}\n\n")
            await pilot.pause(0.01)
        screen_run = pilot.app.chat_screen.stage.runs.of(pilot.app.chat_screen.desk.key)
        await until(pilot, lambda: "new line 29" in screen_run.text, "all text")
        assert rows_of(transcript) == before
        turn.end()
        await until(pilot, lambda: idle(pilot.app), "rest")
        assert rows_of(transcript) == before
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "new line 29" in text_of(pilot.app), "the end")
        assert transcript.following

    play(world.app(session="long"), scene)


def test_no_timer_when_nothing_moves(world):
    """After an answer, and after the start, no timer runs: an idle screen wakes nobody."""

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(pilot.app) and idle(pilot.app), "rest after the start")
        turn = await ask(pilot, world, "hi")
        assert not idle(pilot.app)
        turn.end()
        await until(pilot, lambda: idle(pilot.app), "rest after the answer")
        running = [timer for timer in _timers(pilot.app) if timer._active.is_set() and timer._repeat is None]
        assert running == []

    play(world.app(), scene)


def _timers(app):
    return [timer for node in [app, *app.screen_stack, *app.screen.walk_children()] for timer in node._timers]


@pytest.mark.slow
def test_the_composer(world):
    """ctrl+j and a backslash make new lines, Enter sends all of them, eight rows are the most that is seen."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press("a", "ctrl+j", "b", "backslash", "enter", "c")
        assert composer.text == "a\nb\nc"
        assert composer.region.height == 3
        composer.insert("\n" * 20)
        await pilot.pause()
        assert composer.region.height == 8
        composer.load_text("a\nb\nc")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert world.chat.turns[0].question == "a\nb\nc"

    play(world.app(), scene)


def test_keys_act_in_the_order_of_typing(world):
    """In a burst no character overtakes an editing key or Enter: what is sent is what was typed before Enter, the rest stays."""

    async def scene(pilot):
        app = pilot.app
        for key in ["a", "x", "backspace", "b", "ctrl+j", "c", "enter", "d", "left", "e"]:
            app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert world.chat.turns[0].question == "ab\nc"
        await until(pilot, lambda: app.chat_screen.composer.text == "ed", "the rest")

    play(world.app(), scene)


def test_history(world):
    """Up on the first row recalls earlier questions, Down comes back to what was being typed."""
    world.talk("first", "question one", "a", "question two", "b")

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"draft", "up")
        assert composer.text == "question two"
        await pilot.press("up", "up")
        assert composer.text == "question one"
        await pilot.press("down")
        assert composer.text == "question two"
        await pilot.press("down")
        assert composer.text == "draft"

    play(world.app(session="first"), scene)


def test_one_answer_at_a_time(world):
    """A second question in the same conversation waits for its turn."""

    async def scene(pilot):
        await ask(pilot, world, "first question")
        pilot.app.chat_screen.composer.insert("second question")
        await pilot.press("enter")
        await until(pilot, lambda: "one message waits" in text_of(pilot.app), "the queue")
        assert pilot.app.chat_screen.composer.text == ""
        assert len(world.chat.turns) == 1

    play(world.app(), scene)


def test_an_engine_that_dies_leaves_a_cut_answer(world):
    """What arrived stays, is marked, and F5 goes on with it."""

    async def scene(pilot):
        turn = await ask(pilot, world, "Tell me")
        turn.write("half an ans")
        turn.put(EngineRestarted("the engine has ended", repeated=False))
        turn.end("cut", error="EngineDied", message="the engine has ended", numbers=None)
        await until(pilot, lambda: "Cut off: the engine ended. F5 goes on." in text_of(pilot.app), "the mark")
        assert "half an ans" in text_of(pilot.app)
        await until(pilot, lambda: "the engine ended and was started again" in notices(pilot.app), "the notice")

    play(world.app(), scene)


def test_unsaved_is_shown_asked_about_and_saved_later(world, monkeypatch):
    """A database that refuses writes: UNSAVED on screen, a question before leaving, and no mark once it is saved."""
    monkeypatch.setattr("localkv.tui.refused.RETRY_SECONDS", 0.01)
    saved = []

    def retry():
        if saved:
            conversation = world.chat.unsaved[0]
            question = world.store.ask(conversation, None, "Tell me").id
            answer = world.store.begin_answer(conversation, question).id
            world.store.finish_answer(answer, text="an answer", ids=b"", state="complete", head=None, numbers=NUMBERS)
            world.chat.unsaved = ()
        return ""

    world.chat.retry_unsaved = retry
    world.chat.stores = False

    async def scene(pilot):
        turn = await ask(pilot, world, "Tell me")
        turn.put(Unsaved("disk full"))
        turn.write("an answer")
        turn.end("complete", unsaved="disk full")
        await until(pilot, lambda: "UNSAVED 1" in text_of(pilot.app), "the phase line")
        assert "an answer" in text_of(pilot.app)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm), "the question")
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is pilot.app.chat_screen, "the chat")
        assert not world.client.left
        saved.append(True)
        await until(pilot, lambda: "UNSAVED" not in text_of(pilot.app), "saved")
        assert text_of(pilot.app).count("an answer") == 1

    play(world.app(), scene)


def test_leaving_saves_first_and_is_bounded(world):
    """^q stops answers, waits for the engine with a line that says so; a second ^q leaves at once."""
    world.client.leave_hold.clear()

    async def scene(pilot):
        turn = await ask(pilot, world, "Tell me")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: "saving and leaving" in text_of(pilot.app), "the line")
        assert turn.cancelled.is_set()
        await until(pilot, lambda: world.client.left, "the engine asked")
        assert pilot.app.is_running
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not pilot.app.is_running or pilot.app._exit, "the end")

    play(world.app(), scene)
    world.client.leave_hold.set()


def test_ctrl_d_leaves_only_with_nothing_written(world):
    """ctrl+d deletes in a text and leaves without one."""

    async def scene(pilot):
        composer = pilot.app.chat_screen.composer
        await pilot.press(*"ab", "home", "ctrl+d")
        assert composer.text == "b"
        await pilot.press("ctrl+d", "ctrl+d")
        await until(pilot, lambda: world.client.left, "leaving")

    play(world.app(), scene)


def test_refused_writes_are_notices(world):
    """An action that the store refuses says why and leaves everything as it was."""
    world.talk("first", "q", "a")

    def refuse(*_, **__):
        raise NotWritable("the database is read-only [/]")

    async def scene(pilot):
        world.store.rename = refuse
        pilot.app.chat_screen.rename_open("other")
        await until(pilot, lambda: "the database is read-only [/]" in text_of(pilot.app), "the notice")
        assert pilot.app.chat_screen.desk.title == "first"

    play(world.app(session="first"), scene)


def test_a_model_that_is_named_keeps_the_other_settings(world, tmp_path, monkeypatch):
    """/model changes the name alone, as in plain mode: dtype and quant stay, a folder becomes absolute, code is trusted of one model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "little").mkdir()
    own = ModelSection(name="org/own", dtype="float32", quant="8bit", trust_remote_code=True)
    found = []

    async def scenario(pilot):
        desk = pilot.app.chat_screen.desk
        for name in ("org/own", "little", "org/other"):
            desk.set_model(own)
            pilot.app.chat_screen.composer.load_text(f"/model {name}")
            await pilot.press("enter")
            await pilot.pause()
            found.append(desk.model)

    play(world.app(), scenario)
    assert found == [own, replaced(own, name=str(tmp_path / "little")), replaced(own, name="org/other")]


def replaced(model, name):
    return msgspec.structs.replace(model, name=name, trust_remote_code=False)


@pytest.mark.slow
def test_slash_commands(world):
    """Commands do what their keys do; a misspelt one names the nearest; two slashes send one."""
    world.talk("first", "q", "a", age=10)
    world.talk("second", "q2", "a2", age=20)

    async def scene(pilot):
        screen = pilot.app.chat_screen

        async def give(line):
            screen.composer.load_text(line)
            await pilot.press("enter")
            await pilot.pause()

        await give("/rename better")
        assert screen.desk.title == "better"
        await give("/open second")
        assert screen.desk.title == "second"
        await give("/set temperature 0.2")
        assert screen.desk.sampling.temperature == 0.2
        assert world.store.get(screen.desk.key).sampling.temperature == 0.2
        await give("/set temprature 1")
        await until(pilot, lambda: 'the nearest is "temperature"' in notices(pilot.app), "the nearest")
        await give("/renam x")
        await until(pilot, lambda: "did you mean /rename?" in notices(pilot.app), "the nearest")
        await give("/delete")
        assert [c.title for c in world.store.list()] == ["better"]
        await give("/undo")
        assert len(world.store.list()) == 2
        await give("/new")
        assert screen.desk.key == ""
        await give("/system Be brief.")
        await until(pilot, lambda: isinstance(pilot.app.screen, SystemPrompt), "the dialog")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen, "the chat")
        assert "Be brief." in "\n".join(rows_of(screen.transcript))
        assert world.chat.turns == []
        await give("//not a command")
        await until(pilot, lambda: world.chat.turns, "a turn")
        assert world.chat.turns[0].question == "/not a command"
        assert world.store.get(screen.desk.key).system == "Be brief."
        await give("/help")
        await until(pilot, lambda: isinstance(pilot.app.screen, Help), "help")

    play(world.app(session="first"), scene)


def test_retry_keeps_the_old_answer(world):
    """^r shows a new answer in the place of the old one, which stays in the tree."""
    conversation = world.talk("first", "q", "old answer")

    async def scene(pilot):
        await pilot.press("ctrl+r")
        await until(pilot, lambda: world.chat.turns, "a turn")
        world.chat.turns[0].write("new answer")
        await until(pilot, lambda: "new answer" in text_of(pilot.app), "the new answer")
        assert "old answer" not in text_of(pilot.app)
        world.chat.turns[0].end()
        await until(pilot, lambda: idle(pilot.app), "rest")
        answer = world.store.path(conversation)[-1]
        assert {world.store.message(each).text for each in world.store.shown_versions(answer.id)} == {
            "old answer",
            "new answer",
        }

    play(world.app(session="first"), scene)


def test_selection_copies_logical_text(world):
    """Dragging over a wrapped paragraph copies it without the wraps and gutters."""
    words = " ".join(f"word{i}" for i in range(30))
    world.talk("first", "q", f"{words}\n\n```python\nx = 1\n```")

    async def scene(pilot):
        transcript = pilot.app.chat_screen.transcript
        rows = rows_of(transcript)
        top = next(i for i, row in enumerate(rows) if "word0" in row)
        end = next(i for i, row in enumerate(rows) if "x = 1" in row)
        await pilot.mouse_down(transcript, offset=(1, top))
        await pilot.hover(transcript, offset=(60, end))
        await pilot.mouse_up(transcript, offset=(60, end))
        await pilot.pause()
        assert pilot.app.screen.get_selected_text() == f"{words}\n\nx = 1"

    play(world.app(session="first"), scene)


LONG = {
    "wide": "漢字かな交じり文" * 100,
    "words": "word " * 200,
    "list": "- item\n" * 60,
    "blank": "\n\n\n\n" * 30 + "x",
    "code": "```\n" + "x" * 900 + "\n```",
}


@pytest.mark.slow
@pytest.mark.parametrize("said", LONG.values(), ids=LONG)
def test_a_double_click_selects_all_of_every_message(world, said):
    """Also of messages that were never on screen, whose height is only estimated; and copying moves nothing."""
    world.talk("first", *[each for n in range(6) for each in (f"question {n}", f"{said}\n\nend {n}")])

    async def scene(pilot):
        transcript = pilot.app.chat_screen.transcript
        await until(pilot, lambda: "end 5" in text_of(pilot.app), "the answers")
        await pilot.click(transcript, offset=(1, 3), times=2)
        before = transcript.scroll_y, transcript.virtual_size, rows_of(transcript)
        copied = pilot.app.screen.get_selected_text()
        assert (transcript.scroll_y, transcript.virtual_size, rows_of(transcript)) == before
        rows = [(each, 0, -1) for index in range(12) for each in transcript._pages.rows(index)]
        assert copied == selected(rows).rstrip("\n")
        assert [f"end {n}" in copied for n in range(6)] == [True] * 6

    play(world.app(session="first"), scene, size=(150, 24))


def test_cjk_and_emoji_keep_the_columns(world):
    """Wide characters count two cells: no row of any message is wider than the transcript."""
    world.talk("wide", "漢字" * 50, "日本語の長い文章です。" * 20 + "\n\n👩‍💻 " * 40)

    async def scene(pilot):
        transcript = pilot.app.chat_screen.transcript
        for index in range(2):
            assert all(row.strip.cell_length <= transcript.room for row in transcript._pages.rows(index))

    play(world.app(session="wide"), scene)


def test_a_broken_theme_is_said_and_the_default_used(world):
    """A user's theme with a wrong key is named with file and nearest key; the chat opens all the same."""
    world.home.user_themes.mkdir()
    (world.home.user_themes / "mine.toml").write_text('name = "mine"\ndark = true\n[colors]\nbackgrund = "#000000"\n')

    async def scene(pilot):
        await until(pilot, lambda: "colors.backgrund" in notices(pilot.app), "the notice")
        assert pilot.app.theme == "localkv-dark"

    play(world.app(theme="mine"), scene, size=(140, 40))


def test_changing_the_theme_repaints(world):
    """Another theme changes every colour at once, those of the transcript included."""
    world.talk("first", "q", "# heading")

    async def scene(pilot):
        transcript = pilot.app.chat_screen.transcript
        before = transcript.render_line(0)
        pilot.app.theme = "localkv-light"
        await pilot.pause()
        assert transcript.render_line(0) != before

    play(world.app(session="first"), scene)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
def test_ascii_mode_draws_no_other_character(world, size):
    """With plain glyphs everything that the program itself draws is ASCII, dialogs and scroll bars included."""
    world.talk("first", *(f"text {i}\n\n- a\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted" for i in range(20)))

    async def scene(pilot):
        pilot.app.chat_screen.say("a notice", "error")
        await until(pilot, lambda: "a notice" in text_of(pilot.app), "the notice")
        shown = text_of(pilot.app)
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(pilot.app.screen, Help), "help")
        shown += text_of(pilot.app)
        assert {char for char in shown if not char.isascii()} == set()

    play(world.app(session="first", glyphs=PLAIN), scene, size=size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (100, 30), (119, 24), (120, 36), (80, 12)])
def test_the_first_layout_is_the_one_that_stays(world, monkeypatch, size):
    """No frame is drawn for another size of window than the one there is: on a slow machine it would stand for a second."""
    world.talk("Harbours", "Why is the sky blue?", "Because of scattering.")
    seen = set()
    original = Transcript.on_resize

    def look(transcript, event):
        seen.add(event.size)
        original(transcript, event)

    monkeypatch.setattr(Transcript, "on_resize", look)

    async def scene(pilot):
        await until(pilot, lambda: "scattering" in text_of(pilot.app), "the conversation")
        assert len({each.width for each in seen}) == 1

    play(world.app(session="Harbours"), scene, size)
