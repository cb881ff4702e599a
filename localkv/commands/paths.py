"""`localkv paths`: where everything lies, and what of it may be deleted."""

from localkv.commands.output import print_json, print_table
from localkv.commands.setup import Setup


def run(setup: Setup, *, as_json: bool) -> None:
    """Print every place; reads nothing, makes nothing."""
    home = setup.home
    places = [
        ("config_file", setup.config_file, "settings"),
        ("themes", home.user_themes, "your own themes"),
        ("conversations", home.database, "your conversations: precious"),
        ("backups", home.backups, "copies of the conversations, one for each of the last days"),
        ("models", home.models_dir, "the starter model"),
        ("store", home.store, "cached KV: may be deleted, costs only time"),
        ("event_log", home.event_log, "what happened; never holds message text"),
        ("engine_log", home.engine_log, "output of the engine process"),
        ("socket", home.socket, "where a running engine listens"),
    ]
    if as_json:
        print_json({name: str(place) for name, place, _ in places})
    else:
        print_table([(name, str(place), meaning) for name, place, meaning in places])
