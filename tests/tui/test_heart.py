"""The slow beat: about once a second while something is seen that shows time passing, and never otherwise."""

import pytest
from textual.timer import Timer

from localkv.tui.heart import SECONDS, Heart
from tests.tui.conftest import play, text_of, until
from tests.tui.fakes import snapshot


class Ticker:
    """A timer on a clock that only the test moves."""

    def __init__(self, seconds, call):
        self.seconds = seconds
        self.call = call
        self.going = True

    def pause(self):
        self.going = False

    def resume(self):
        self.going = True

    def pass_by(self, seconds):
        for _ in range(int(seconds / self.seconds)):
            if self.going:
                self.call()


def test_one_beat_a_second_however_many_watch():
    """Two watchers share one timer: ten seconds are ten wakes, not twenty; with nobody there, none."""
    made, seen = [], []

    def every(seconds, call):
        made.append(Ticker(seconds, call))
        return made[-1]

    heart = Heart(every)
    assert made == []
    heart.watch("panel", lambda: seen.append("panel"))
    heart.watch("view", lambda: seen.append("view"))
    (ticker,) = made
    ticker.pass_by(10)
    assert ticker.seconds == SECONDS == 1.0
    assert seen == ["panel", "view"] * 10
    heart.leave("view")
    ticker.pass_by(3)
    assert seen[20:] == ["panel"] * 3
    heart.leave("panel")
    assert not ticker.going
    ticker.pass_by(60)
    assert len(seen) == 23
    heart.watch("panel", lambda: seen.append("again"))
    ticker.pass_by(2)
    assert seen[23:] == ["again"] * 2


def wakes_per_second(app) -> float:
    """How often the timers of all screens and widgets wake the face."""
    nodes = [app, *(node for screen in app.screen_stack for node in (screen, *screen.walk_children()))]
    timers = [timer for node in nodes for timer in node._timers if isinstance(timer, Timer)]
    going = [timer for timer in timers if timer._active.is_set() and timer._task is not None and not timer._task.done()]
    return sum(1 / timer._interval for timer in going)


async def at_rest(pilot):
    """The engine is ready and the quick ticks have ended."""
    await until(pilot, lambda: "ready" in text_of(pilot.app), "a ready engine")
    await until(pilot, lambda: not pilot.app.chat_screen._ticking._active.is_set(), "rest")


@pytest.mark.slow
def test_at_rest_the_face_wakes_only_for_what_is_seen_and_once_a_second(world):
    """Panel hidden: no timer goes. Panel open, the statistics over it, both: one wake a second, counted over every timer."""
    app = world.app(panel=False)

    async def scene(pilot):
        await at_rest(pilot)
        await until(pilot, lambda: wakes_per_second(app) == 0, "no timer: what is done once at the start is done")
        await pilot.press("ctrl+t")
        await until(pilot, lambda: wakes_per_second(app) > 0, "a beat")
        assert wakes_per_second(app) == 1
        await pilot.press("f3")
        await until(pilot, lambda: app.screen is not app.chat_screen, "the statistics")
        assert wakes_per_second(app) == 1
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat_screen, "the chat")
        assert wakes_per_second(app) == 1
        await pilot.press("ctrl+t")
        await until(pilot, lambda: wakes_per_second(app) == 0, "rest")

    play(app, scene, (120, 36))


def test_a_panel_for_which_there_is_no_room_does_not_wake_the_face(world):
    """It is open by default, but on a narrow screen it is not seen."""
    app = world.app(panel=True)

    async def scene(pilot):
        await at_rest(pilot)
        await until(pilot, lambda: wakes_per_second(app) == 0, "no timer: what is done once at the start is done")
        await pilot.resize_terminal(130, 30)
        await until(pilot, lambda: wakes_per_second(app) == 1, "a beat")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: wakes_per_second(app) == 0, "rest")

    play(app, scene)


def test_a_beat_shows_what_the_engine_did_meanwhile(world):
    """Another face used the engine, or it saved what was left: the open panel shows it though nothing moves here."""
    app = world.app()

    async def scene(pilot):
        await at_rest(pilot)
        await until(pilot, lambda: "written" in text_of(app), "the panel")
        world.client.latest_snapshot = snapshot(recent=("something new",))
        app.chat_screen.heart._beat()
        await until(pilot, lambda: "something new" in text_of(app), "the news")

    play(app, scene, (130, 60))
