"""The statistics view: plots with units and times, tables of quantiles, on every size of screen."""

import pytest

from localkv.service.protocol import TierUse
from localkv.tui.charts import SPANS, statistics_rows
from localkv.tui.glyphs import DRAWN, PLAIN
from localkv.tui.history import History
from localkv.tui.panel import Brush
from tests.tui.conftest import notices, play, text_of, until
from tests.tui.fakes import NOON, busy_hour, snapshot
from tests.tui.samples import PALETTE, texts


def view(history, width=118, glyphs=DRAWN, now=NOON, seconds=0.0, height=0):
    return texts(statistics_rows(history, Brush(PALETTE, glyphs, width), now, seconds, height))


@pytest.fixture
def hour():
    history = History()
    busy_hour(history)
    return history


def test_each_plot_says_its_unit_its_newest_number_and_its_times(hour, world):
    """Speed, first token, restored part, memory of each tier, swaps, bytes written: numbers for whoever sees no dots."""
    said = "\n".join(view(hour))
    for words in (
        "36.2 tok/s", "50 tok/s", "first token", "415 ms", "restored part of the prompt", "94 %", "100 %",
        "VRAM used", "7.9 GiB of 8.0 GiB", "RAM used", "13.8 GiB of 32.0 GiB", "SSD used", "swaps per minute", "419 in all",
        "SSD writes per minute", "768.0 MiB in all", "14:07", "15:06",
    ):  # fmt: skip
        assert words in said, words


def test_tables_stand_beside(hour):
    """p50, p90 and p99 of speed, first token, restoring and moves between tiers; restores, preloads, saved time, bytes of today."""
    said = "\n".join(view(hour))
    for words in (
        "p50   p90   p99", "first token ms     180   310  2.4k", "restoring ms        92   210   640",
        "RAM in ms         2.41  8.07  31.5",
        "71, 1 failed", "84 / 9", "83.0 s", "written today", "5.0 GiB", "77.0 GiB",
    ):  # fmt: skip
        assert words in said, words


@pytest.mark.parametrize("width", [24, 40, 58, 71, 72, 100, 118, 200])
@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN])
def test_the_view_fits(hour, width, glyphs):
    """No row is wider than the screen, at any width; without drawn characters all is ASCII."""
    rows = statistics_rows(hour, Brush(PALETTE, glyphs, width), NOON, 0.0)
    assert max(row.strip.cell_length for row in rows) <= width
    assert not glyphs.ascii or all(row.strip.text.isascii() for row in rows)


@pytest.mark.parametrize("height", [10, 34, 60, 200])
def test_plots_grow_with_the_screen(hour, height):
    """A tall screen is used, and none is overrun by plots that could be lower."""
    rows = view(hour, height=height)
    assert len(rows) <= max(height, 30)
    assert len(rows) >= min(height - 4, 40)


def test_before_the_engine_said_anything():
    """An empty history is told in words."""
    assert view(History()) == ["The engine has not said anything yet."]


def test_a_face_that_has_just_started_shows_a_short_time_and_nothing_measured(world):
    """One snapshot is no line and no error, and a machine without VRAM has no plot of it."""
    history = History()
    history.note(snapshot(vram=TierUse(), turns=0), NOON)
    said = "\n".join(view(history))
    assert "VRAM" not in said
    assert "nothing measured yet" in said
    assert "15:05:40" in said
    assert "15:06:40" in said


def test_only_the_last_minutes_if_one_wants(hour, world):
    """What is older than the span is not in the picture, and the axis says so."""
    name, seconds = SPANS[2]
    assert name == "5 min"
    said = "\n".join(view(hour, seconds=seconds))
    assert "15:01:40" in said
    assert "14:07" not in said


@pytest.mark.slow
@pytest.mark.parametrize("way", ["f3", "/stats"])
def test_key_and_command_open_it_and_esc_closes_it(world, way):
    """One action; t shows another part of the time; the chat is as it was afterwards."""
    app = world.app()

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(app), "a ready engine")
        app.chat_screen.composer.insert("/stats" if way == "/stats" else "")
        await pilot.press("enter" if way == "/stats" else way)
        await until(pilot, lambda: "Statistics  since this face started" in text_of(app), "the view")
        await pilot.press("t")
        await until(pilot, lambda: "the last 1 h" in text_of(app), "an hour")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.chat_screen, "the chat")
        await pilot.press("a")
        await until(pilot, lambda: app.chat_screen.composer.text == "a", "writing goes on")
        assert notices(app) == ""

    play(app, scene)


def test_a_beat_moves_the_plots_on(world):
    """A turn that ends while the view is open is in it a second later."""
    app = world.app()

    async def scene(pilot):
        await until(pilot, lambda: "ready" in text_of(app), "a ready engine")
        await pilot.press("f3")
        await until(pilot, lambda: "Statistics" in text_of(app), "the view")
        assert "340 ms" not in text_of(app)
        world.clock.now += 5
        world.client.latest_snapshot = snapshot(turns=20)
        app.chat_screen.show_facts()
        app.chat_screen.heart._beat()
        await until(pilot, lambda: "340 ms" in text_of(app), "the turn")

    play(app, scene)
