"""The chat as the command line starts it, in front of an engine that answers at once: `python -m tests.tui.typist` in a terminal.

With SILENT in the environment the engine never answers.

Only the engine is another; everything that touches the terminal is the product's own.
"""

import os
import sys


def _client(home: object, config: object) -> object:
    from tests.tui.fakes import FakeClient, snapshot

    del home, config
    client = FakeClient(shown=snapshot())
    client.close = lambda: None
    client.farewell = ""
    return client


def _chat(store: object, client: object) -> object:
    from tests.tui.fakes import FakeChat

    del client

    class Quick(FakeChat):
        def ask(self, conversation_id: str, text: str) -> object:
            turn = super().ask(conversation_id, text)
            if "SILENT" not in os.environ:
                turn.write("Yes.")
                turn.end()
            return turn

    return Quick(store)


def main() -> None:
    """Replace what starts an engine, then be the command line."""
    from localkv.cli import main as command_line
    from localkv.service import client, turns

    client.EngineClient = _client
    turns.Chat = _chat

    sys.argv = ["localkv", "chat", *sys.argv[1:]]
    command_line()


if __name__ == "__main__":
    main()
