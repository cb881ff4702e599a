"""Removing a conversation for good from the screen."""

import pytest

from localkv.errors import UnknownConversation
from localkv.kv.record import pack_ids
from localkv.service.protocol import Forget
from localkv.service.turn_events import Finished
from localkv.tui.dialogs import Confirm
from localkv.tui.filing import erase
from tests.tui.conftest import play, text_of, until
from tests.tui.fakes import NUMBERS


@pytest.mark.slow
def test_erase_asks_and_removes_text_and_cached_state(world):
    """Asked with the harmless answer first; then the text is gone at once and the engine is told which tokens to forget."""
    world.talk("first", "q1", "a1", age=10)
    world.talk("second", "q2", "a2", age=20)
    key = world.store.by_name("first").id
    for message in world.store.path(key):
        world.store.set_ids(message.id, pack_ids([1, 2, 3]))

    async def scene(pilot):
        screen = pilot.app.chat_screen
        await pilot.press(*"/erase", "enter")
        await until(pilot, lambda: "for good" in text_of(pilot.app), "the question")
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is screen, "the end of the question")
        assert world.store.get(key).trashed is None
        await pilot.press(*"/erase", "enter")
        await until(pilot, lambda: "for good" in text_of(pilot.app), "the question")
        await pilot.press("y")
        await until(pilot, lambda: any(isinstance(sent, Forget) for sent in world.client.sent), "the engine being told")
        assert [item.title for item in screen.sessions.shown] == ["second"]
        assert screen.desk.last_removed() is None

    play(world.app(session="first"), scene)
    try:
        world.store.get(key)
    except UnknownConversation:
        pass
    else:
        raise AssertionError("it is still there")
    (forget,) = [sent for sent in world.client.sent if isinstance(sent, Forget)]
    assert [log.ids for log in forget.logs] == [pack_ids([1, 2, 3, 1, 2, 3])]


@pytest.mark.slow
def test_an_erased_conversation_does_not_stand_in_the_way_of_undo(world):
    """What was taken away in another conversation before comes back, and the screen shows that one with its own draft."""
    one, two = world.talk("one", "q1", "a1"), world.talk("two", "q2", "a2")

    async def scene(pilot):
        screen = pilot.app.chat_screen
        for key in (one, two):
            screen.open(key)
            screen.acts.take_away(world.store.path(key)[-1].id)
        await pilot.press(*"/erase", "enter")
        await until(pilot, lambda: "for good" in text_of(pilot.app), "the question")
        await pilot.press("y")
        await until(pilot, lambda: len(world.store.list()) == 1, "the end of it")
        await pilot.press("ctrl+n", *"words")
        screen.undo_delete()
        assert screen.desk.key == one
        assert [entry.text for entry in screen.transcript.entries] == ["q1", "a1"]
        assert screen.composer.text == ""
        await pilot.press("ctrl+n")
        assert screen.composer.text == "words"

    play(world.app(session="two"), scene)


def test_the_screen_does_not_wait_for_bytes(world, monkeypatch):
    """What grows with all that was ever said is done by other threads: merging the index, reading the ids of all others."""
    import threading

    from localkv.chat.erasures import Erasures
    from localkv.chat.store import ConversationStore

    world.talk("first", "swordfish", "a1", age=10)
    world.talk("second", "q2", "a2", age=20)
    threads = {}

    def noted(what, real, heavy):
        def call(*arguments):
            if heavy(*arguments):
                threads.setdefault(what, set()).add(threading.current_thread())
            return real(*arguments)

        return call

    monkeypatch.setattr(Erasures, "_merge", noted("merge", Erasures._merge, lambda *_: True))
    logs = noted("logs", ConversationStore.token_logs, lambda store, conversation=None: conversation is None)
    monkeypatch.setattr(ConversationStore, "token_logs", logs)

    async def scene(pilot):
        await pilot.press(*"/erase", "enter")
        await until(pilot, lambda: "for good" in text_of(pilot.app), "the question")
        await pilot.press("y")
        await until(pilot, lambda: any(isinstance(sent, Forget) for sent in world.client.sent), "the engine being told")

    play(world.app(session="first"), scene)
    world.store.close()
    assert set(threads) == {"merge", "logs"}
    assert threading.current_thread() not in threads["merge"] | threads["logs"]
    written = b"".join(path.read_bytes() for path in world.home.database.parent.glob("conversations.db*"))
    assert b"swordfish" not in written


@pytest.mark.slow
@pytest.mark.parametrize("state", ["complete", "stopped", "failed"])
@pytest.mark.parametrize("is_open", [True, False])
def test_an_answer_of_what_was_removed_is_nobodys(world, state, is_open, monkeypatch):
    """A conversation that is removed while it is answered: the end of the answer is no failure, and nothing of it comes back."""
    world.talk("first", "q1", "a1", age=10)
    world.talk("second", "q2", "a2", age=20)
    key = world.store.by_name("first").id

    async def scene(pilot):
        screen = pilot.app.chat_screen
        screen.composer.insert("go on")
        await pilot.press("enter")
        await until(pilot, lambda: world.chat.turns and world.chat.turns[0].started.is_set(), "a turn")
        turn = world.chat.turns[0]
        monkeypatch.setattr(turn, "cancel", lambda: None)
        monkeypatch.setattr(turn, "_finish", lambda *_: Finished(state, "text", b"", None, None, numbers=NUMBERS))
        if not is_open:
            screen.open_like("second")
        erase(screen, key)
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm), "the question")
        await pilot.press("y")
        await until(pilot, lambda: any(isinstance(sent, Forget) for sent in world.client.sent), "the engine being told")
        turn.write("text")
        turn.end(state)
        await until(pilot, lambda: turn.over.is_set() and not screen._ticking._active.is_set(), "rest")
        assert [notice.message for notice in pilot.app._notifications if notice.severity != "information"] == []
        assert screen.stage.runs.of(key) is None
        assert [item.title for item in screen.sessions.shown] == ["second"]

    play(world.app(session="first"), scene)
