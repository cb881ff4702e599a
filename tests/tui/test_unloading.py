"""Letting the model go from the screen."""

from localkv.service.protocol import Unload
from tests.tui.conftest import play, text_of, until


def test_unload_asks_the_engine_and_says_what_came_of_it(world):
    """The engine is told, the screen stays usable meanwhile, and what is free again is said."""

    async def scene(pilot):
        await pilot.press(*"/unload", "enter")
        await until(pilot, lambda: any(isinstance(sent, Unload) for sent in world.client.sent), "the engine being told")
        await until(pilot, lambda: "8.0 GiB are free again" in text_of(pilot.app), "what came of it")

    play(world.app(), scene)
