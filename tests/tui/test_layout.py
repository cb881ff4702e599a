"""The style sheet: at every size, drawn or ASCII, each pane that is shown has room for its rows."""

import pytest

from localkv.tui.glyphs import DRAWN, PLAIN
from tests.tui.conftest import play, until


@pytest.mark.slow
@pytest.mark.parametrize("glyphs", [DRAWN, PLAIN], ids=["drawn", "ascii"])
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (110, 16), (130, 19), (130, 40)])
def test_no_border_takes_the_only_row_of_a_pane(world, glyphs, size):
    """A pane of one row with a border would show nothing, as the header of short ASCII screens did."""
    world.talk("first", "hello", "Hi.")
    app = world.app(session="first", glyphs=glyphs)

    async def scene(pilot):
        shown = app.chat_screen.instruments
        await until(pilot, lambda: app.chat_screen.stage.engine.state == "ready", "a ready engine")
        for pane in (shown.header, shown.phase, shown.tiers, shown.panel, shown.head):
            if pane.region:
                assert pane.scrollable_content_region.height >= 1, pane.id

    play(app, scene, size)
