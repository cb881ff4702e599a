"""`localkv unload`: a running engine saves its conversations' state and lets go of its model. Never starts one."""

from localkv.commands.output import print_json, print_lines
from localkv.commands.setup import Setup
from localkv.service.answers import running_engine
from localkv.service.caretaker import unload_through
from localkv.service.protocol import Unloaded
from localkv.units import format_bytes, format_count


def run(setup: Setup, *, as_json: bool) -> None:
    """Have the model let go of, and print what was given back. Raises EngineError."""
    with running_engine(setup.home, setup.load()) as client:
        unloaded = None if client is None else unload_through(client)
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
