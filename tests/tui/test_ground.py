"""Containers of which one row is made for all: it does stand for all of them, and one is all that is made."""

import pytest
from textual._styles_cache import StylesCache
from textual.geometry import Region
from textual.widget import Widget

from localkv.tui.glyphs import DRAWN, PLAIN
from localkv.tui.ground import Ground
from tests.tui.conftest import play


def grounds(app) -> list[Ground]:
    seen = [widget for widget in (app.chat_screen, *app.chat_screen.walk_children()) if isinstance(widget, Ground)]
    return [widget for widget in seen if widget.region]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["localkv-dark", "localkv-high-contrast"])
@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN], ids=["drawn", "ascii"])
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (110, 16), (130, 40)])
def test_one_row_stands_for_all(world, theme, glyphs, size):
    """A border above, a padding or content of its own would be shown in each row, or in none."""
    app = world.app(theme=theme, glyphs=glyphs)

    async def scene(pilot):
        for widget in grounds(app):
            whole = Region(0, 0, widget.size.width, widget.outer_size.height)
            each = [list(strip) for strip in Widget.render_lines(widget, whole)]
            assert [list(strip) for strip in widget.render_lines(whole)] == each, widget.id

    play(app, scene, size)


def test_a_change_makes_one_row_of_each(world, monkeypatch):
    """What lies under everything else costs a frame no more on a tall screen than on a low one."""
    world.talk("first", "hello", "Hi.")
    app = world.app(session="first")
    made: list[tuple[object, int]] = []
    render_widget = StylesCache.render_widget

    def counted(cache, widget, crop):
        made.append((widget, crop.height))
        return render_widget(cache, widget, crop)

    async def scene(pilot):
        monkeypatch.setattr(StylesCache, "render_widget", counted)
        app.chat_screen.transcript.refresh(Region(0, 0, 5, 1))
        await pilot.pause(0.1)
        below = [height for widget, height in made if isinstance(widget, Ground)]
        assert below
        assert set(below) == {1}

    play(app, scene, (130, 60))
