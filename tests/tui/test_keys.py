"""Keys of the screen: help tells all of them, and a person's own keys act, are shown, and end what they replace."""

import ast
import importlib
import importlib.resources
import pkgutil
import re

import pytest
from textual.binding import Binding
from textual.dom import DOMNode

from localkv.commands.actions import ACTIONS
from localkv.commands.keymap import resolve
from localkv.errors import ConfigError
from localkv.tui.brancher import Brancher
from localkv.tui.dialogs import Confirm, Help, Line
from localkv.tui.findbar import FindBar, Words
from localkv.tui.keys import follow, help_sections
from localkv.tui.keys import with_keys as keys_named
from localkv.tui.palette import Palette
from localkv.tui.picker import Picker
from localkv.tui.sampling import Sampling
from localkv.tui.settings import take_over
from localkv.tui.statistics import Statistics
from tests.tui.conftest import notices, play, text_of, until


def with_keys(world, **keys):
    """An app with these keys."""
    from localkv.config import Config
    from localkv.tui.app import LocalKVApp

    config = Config(keys={name.replace("_", "."): value for name, value in keys.items()})
    return LocalKVApp(world.home, config, world.store, world.chat, world.client, clock=world.clock, ticks=lambda: 0.0)


def ids_of(widget):
    """The actions that a class of widgets has by default."""
    return {binding.id for each in widget._merge_bindings().key_to_bindings.values() for binding in each}


def classes():
    """Every class of ours that a screen is made of."""
    import localkv.tui

    for module in pkgutil.iter_modules(localkv.tui.__path__, "localkv.tui."):
        importlib.import_module(module.name)
    waiting, found = [DOMNode], []
    while waiting:
        waiting += (inner := waiting.pop().__subclasses__())
        found += [each for each in inner if each.__module__.startswith("localkv.")]
    return found


def test_every_key_is_an_actions():
    """No widget and no screen of ours has a key that is not in the table, so none escapes help, `localkv keys` and the settings."""
    ids = {action.id for action in ACTIONS}
    bound = [(each, binding) for each in classes() for binding in Binding.make_bindings(vars(each).get("BINDINGS", ()))]
    assert len({each for each, _ in bound}) > 12
    assert [(each.__name__, binding.key) for each, binding in bound if binding.id not in ids] == []


def test_help_has_every_key():
    """What can be pressed is in F1."""
    assert sum(len(lines) for lines in help_sections().values()) == sum(bool(action.keys) for action in ACTIONS)


def test_help_tells_other_keys_of_the_same():
    """Keys that do the same stand in one line."""
    lines = {name: text for section in help_sections().values() for name, text in section}
    assert "(also shift+enter, alt+enter)" in lines["^j"]


@pytest.mark.slow
def test_keys_of_the_person_act_and_replace_the_defaults(world):
    """While writing, in the list and anywhere; the replaced key does nothing any more."""
    world.talk("first", "hello", "Hi.")
    app = with_keys(world, session_new="f9", send="ctrl+x", undo="z", session_next="")

    async def scene(pilot):
        screen = app.chat_screen
        screen.open_like("first")
        await pilot.press("ctrl+n")
        assert screen.desk.key
        await pilot.press("f9")
        await until(pilot, lambda: not screen.desk.key, "a new conversation")
        await pilot.press("a", "ctrl+x")
        await until(pilot, lambda: world.chat.turns, "a sent message")
        world.chat.turns[0].end()
        screen.sessions.focus()
        await pilot.press("u")
        await pilot.press("z")
        await until(pilot, lambda: "nothing was deleted" in notices(app), "undo")
        assert notices(app).count("nothing was deleted") == 1
        await pilot.press("f1")
        await until(pilot, lambda: "F9" in text_of(app), "help with the new key")

    play(app, scene, (120, 45))


def test_the_footer_shows_the_keys_of_the_person(world):
    """What the last row promises is what acts."""
    app = with_keys(world, session_new="f9")

    async def scene(pilot):
        await until(pilot, lambda: "F9 new" in text_of(app).splitlines()[-1], "the footer")
        assert re.search(r"F9 +another conversation", text_of(app))
        assert "^n" not in text_of(app).splitlines()[-1]

    play(app, scene, (160, 40))


def test_a_default_that_gave_way_is_told_at_the_start(world):
    """Nobody loses a key without a word."""
    app = with_keys(world, retry="ctrl+n")

    async def scene(pilot):
        await until(pilot, lambda: 'no longer "session.new"' in notices(app), "the notice")

    play(app, scene)


def test_wrong_keys_keep_the_chat_from_starting(world):
    """Like every other wrong setting."""
    with pytest.raises(ConfigError, match='nearest is "retry"'):
        with_keys(world, retri="f9")


def test_every_action_can_be_run(world):
    """What keys and palette run exists at its place: an action without a method would do nothing, silently."""
    app = world.app()

    async def scene(pilot):
        screen = app.chat_screen
        places = {"anywhere": screen, "composer": screen.composer, "list": screen.sessions, "text": screen.transcript}
        places |= {"message": screen.transcript, "queue": screen.queue}
        over = {"find": [Words], "dialog": [Picker, Palette, Sampling], "branches": [Brancher], "question": [Confirm]}
        over |= {"reading": [Help, Statistics]}
        for action in ACTIONS:
            name = action.act.partition("(")[0]
            if action.place in over:
                having = [each for each in over[action.place] if action.id in ids_of(each)]
                assert having, action.id
                assert all(hasattr(each, f"action_{name}") for each in having), action.id
            elif action.act:
                assert hasattr(places[action.place], f"action_{name}"), action.id

    play(app, scene)
    assert resolve({}).notes == ()


OVER = [Line, Confirm, Help, Statistics, Picker, Palette, Sampling, Brancher, FindBar, Words]


class Bound:
    """Bindings of a widget, without the widget."""

    def __init__(self, widget):
        self._bindings = widget._merge_bindings().copy()

    @property
    def acts(self):
        """What each key runs."""
        found = self._bindings.key_to_bindings.items()
        return {key: [binding.action for binding in each if binding.id] for key, each in found if any(b.id for b in each)}


@pytest.mark.parametrize("widget", OVER)
def test_screens_over_the_chat_have_the_keys_of_the_person(widget):
    """Each of their actions, also those of the chat that act there: the new key acts, the old one no more; twice changes nothing."""
    ids = ids_of(widget) - {None}
    assert ids
    for name in ids:
        node, before = Bound(widget), Bound(widget).acts
        (act,) = {b.action for each in node._bindings.key_to_bindings.values() for b in each if b.id == name}
        old = resolve({}).keys[name]
        for _ in range(2):
            follow(node, resolve({name: "ctrl+x"}))
        assert node.acts.get("ctrl+x") == [act], name
        kept = {"escape"} if name == "cancel" else set()
        assert not [
            key for key in old if act in node.acts.get(key, []) and key not in kept and act not in _others(before, name)
        ]


def _others(before, name):
    """What other actions of the same screen run with keys of their own: closing has several."""
    return {"leave"} if name in {"cancel", "help", "stats", "palette", "reading.close", "question.no"} else set()


@pytest.mark.parametrize("widget", [each for each in OVER if each is not Words])
@pytest.mark.parametrize(
    "wishes", [{"cancel": ""}, {"cancel": "ctrl+x"}, {"retry": "escape"}, {"reading.close": "", "help": ""}]
)
def test_what_is_open_can_always_be_closed(widget, wishes):
    """Whatever keys a person takes away: some key leaves."""
    node = Bound(widget)
    follow(node, resolve(wishes))
    leaving = [key for key, acts in node.acts.items() if "leave" in acts]
    assert leaving
    if wishes.get("cancel") == "":
        assert widget in (Help, Statistics, Confirm, Palette) or leaving == ["escape"]


@pytest.mark.slow
def test_keys_of_the_person_act_in_dialogs_and_are_shown(world):
    """Remapped keys close, move and agree in real screens, and hints and F1 tell them."""
    world.talk("first", "hello", "Hi.")
    app = with_keys_by_id({"cancel": "ctrl+x", "reading.down": "z", "question.yes": "k"}, world)

    async def scene(pilot):
        await pilot.press("f1")
        await until(pilot, lambda: "^x closes   up and z scroll" in text_of(app), "the hint")
        view = app.screen.query_one("#help")
        await pilot.press("z", "z")
        await until(pilot, lambda: round(view.scroll_y) == 2, "two rows down")
        await pilot.press("j", "down")
        assert round(view.scroll_y) == 2
        await pilot.press("ctrl+x")
        await until(pilot, lambda: app.screen is app.chat_screen, "a closed help")
        answers = []
        app.push_screen(Confirm("Really?", "do it", "leave it"), answers.append)
        await until(pilot, lambda: "k  do it      ^x  leave it" in text_of(app), "the question")
        await pilot.press("y")
        await pilot.press("k")
        await until(pilot, lambda: answers == [True], "an answer")

    play(app, scene, (100, 40))


def with_keys_by_id(keys, world):
    """An app with these keys, by id."""
    from localkv.config import Config
    from localkv.tui.app import LocalKVApp

    return LocalKVApp(
        world.home, Config(keys=keys), world.store, world.chat, world.client, clock=world.clock, ticks=lambda: 0.0
    )


def test_hints_name_keys():
    """Each [id] becomes the key that acts now; an action without a key says so."""
    keymap = resolve({"cancel": "", "dialog.up": "f9", "reading.span": ""})
    assert keys_named("[cancel] closes, [dialog.up], [reading.span]", keymap) == "esc closes, F9, (no key)"


def sentences():
    """Every text in the code of the screen that is not a docstring and has several words, with its file."""
    for path in sorted(importlib.resources.files("localkv.tui").iterdir(), key=str):
        tree = ast.parse(path.read_text()) if path.name.endswith(".py") else ast.Module([], [])
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in told and isinstance(node.value, str) and " " in node.value:
                yield path.name, node.value


FIXED = {"keyecho.py": "ctrl+c", "prompting.py": "^j"}
"""Keys that nobody can bind: of the program that shows keys, and of the text in a dialog."""


@pytest.mark.slow
def test_no_sentence_names_a_key_that_may_be_another():
    """Keys are named by what they do, so that a person's own keys are told."""
    key = re.compile(r"\besc\b|\^[a-z]\b|\bF\d+\b|\b(?:ctrl|alt)\+\w+|\b[a-zA-Z] (?:brings?|or|on) ")
    found = [(file, each) for file, text in sentences() for each in key.findall(text) if each != FIXED.get(file)]
    assert [each for each in found if each != ("writing.py", "N or ")] == []


OWN = {
    "continue": "f10", "retry": "ctrl+y", "latest": "ctrl+e", "quit": "f12", "cancel": "f11", "message.undo": "z", "undo": "w",
    "message.up": "alt+k", "message.retry": "g", "message.edit": "m", "version.previous": "o", "version.next": "i",
}  # fmt: skip


@pytest.mark.slow
def test_what_is_said_names_a_persons_own_keys(world):
    """Marks beneath answers, the phase line and notices tell the keys in force."""
    world.client.leave_hold.clear()
    world.talk("t", "question", "answer", *(f"more {n}\n\n" * 8 for n in range(10)), state="stopped")
    app = with_keys_by_id(OWN, world)

    async def scene(pilot):
        screen = app.chat_screen

        async def told(what):
            await until(pilot, lambda: what in text_of(app) + notices(app), what)

        screen.open_like("t")
        await told("Stopped. F10 goes on.")
        screen.action_copy_or_stop()
        await told("F12 leaves")
        await pilot.press("pageup", "pageup")
        await told("more below: ^e")
        screen.composer.load_text("go on")
        await pilot.press("enter")
        await told("F11 stops")
        await pilot.press("ctrl+y")
        await told("F11 stops it")
        world.chat.turns[0].end("failed", message="no")
        await told("Failed. F10 tries to go on, ^y starts again.")
        await pilot.press("alt+k", "alt+k", "m")
        await told("F11 leaves it as it was")
        await pilot.press("f11", "alt+k", "d")
        await told("z in the conversation or /undo")
        await pilot.press("alt+k")
        screen.acts.tell_versions(screen.transcript.chosen)
        await told("o and i show")
        screen.sessions.focus()
        await pilot.press("d")
        await told("w in the list or /undo")
        await pilot.press("f12")
        await told("F12 again leaves at once")

    play(app, scene, size=(130, 30))
    world.client.leave_hold.set()


def test_marks_name_the_keys_that_were_changed_while_they_were_shown(world):
    """Keys from the settings, taken over in the chat, are told at once."""
    world.talk("t", "question", "answer", state="stopped")

    async def scene(pilot):
        await until(pilot, lambda: "Stopped. F5 goes on." in text_of(pilot.app), "the mark")
        world.home.config_file.write_text('[keys]\ncontinue = "f10"\n')
        take_over(pilot.app)
        await until(pilot, lambda: "Stopped. F10 goes on." in text_of(pilot.app), "the other key")

    play(world.app(session="t"), scene)


@pytest.mark.parametrize("widget", OVER)
def test_without_wishes_nothing_changes(widget):
    """The keymap of the defaults leaves every screen as its class is: the same keys, the same words in the footer."""

    def told(node):
        found = node._bindings.key_to_bindings.items()
        return {(key, b.id, b.action, b.description, b.show) for key, each in found for b in each}

    node, before = Bound(widget), told(Bound(widget))
    follow(node, resolve({}))
    assert told(node) == before
