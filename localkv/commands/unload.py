"""`localkv unload`: a running engine saves its conversations' state and lets go of its model. Never starts one."""

from typing import NoReturn

from localkv.commands.output import print_json, print_lines
from localkv.commands.setup import Setup
from localkv.service.caretaker import unload_through
from localkv.service.client import EngineClient
from localkv.service.protocol import Unloaded
from localkv.units import format_bytes, format_count


class _NoEngineError(Exception):
    """Raised in place of starting an engine."""


def run(setup: Setup, *, as_json: bool) -> None:
    """Have the model let go of, and print what was given back. Raises EngineError."""
    unloaded = _unload(setup)
    if as_json:
        print_json({"unloaded": None if unloaded is None else document(unloaded)})
    else:
        print_lines(["No engine is running; there is nothing to unload." if unloaded is None else sentence(unloaded)])


def sentence(unloaded: Unloaded) -> str:
    """What came of it."""
    if not unloaded.model:
        return "No model is loaded."
    saved = f"{format_count(unloaded.records)} records were saved first; " if unloaded.records else ""
    told = f"{unloaded.model} is unloaded, {format_bytes(unloaded.freed_bytes)} are free again; {saved}the next message loads it again."
    return f"{told} Not saved: {unloaded.problem}" if unloaded.problem else told


def document(unloaded: Unloaded) -> dict[str, str | int]:
    """The same for machines."""
    return {
        "model": unloaded.model,
        "freed_bytes": unloaded.freed_bytes,
        "records": unloaded.records,
        "n_bytes": unloaded.n_bytes,
        "problem": unloaded.problem,
    }


def _unload(setup: Setup) -> Unloaded | None:
    client = EngineClient(setup.home, setup.load(), spawn=_refuse)
    try:
        return unload_through(client)
    except _NoEngineError:
        return None
    finally:
        client.close()


def _refuse() -> NoReturn:
    raise _NoEngineError
