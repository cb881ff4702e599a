"""`localkv drill [--kills N]`: the kill rehearsal, on this very machine, in a scratch home beside the real one.

Real faces and real engines chat and are killed with SIGKILL at random moments; after each kill everything that was finished must be there,
everything that is restored must be what was saved, and nothing may lie around. Torch-free: the model is made by a process of its own.
Thread: main.
"""

import contextlib
import random
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from localkv.commands.drill.moments import Stroke, plan
from localkv.commands.drill.reference import Reference
from localkv.commands.drill.rehearsal import Rehearsal
from localkv.commands.drill.report import Tally
from localkv.commands.drill.sabotage import SABOTAGES, Sabotage
from localkv.commands.drill.talks import Talks
from localkv.commands.drill.world import World, make_model
from localkv.commands.output import print_json, print_lines, print_table
from localkv.commands.setup import Setup
from localkv.errors import ConfigError
from localkv.events import read_events

app = typer.Typer(name="drill", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

ALL_EVENTS = 1 << 30

INTERRUPTED = 130

SHOWN = 20
"""So many findings are told in words."""

Told = Callable[[Stroke], None]


@app.command()
def drill(
    context: typer.Context,
    kills: Annotated[int, typer.Option("--kills", min=1, help="How many; 7 or more hit every moment.")] = 50,
    sabotage: Annotated[
        str | None,
        typer.Option("--sabotage", help=f"Break the cache on purpose, which must be found: {', '.join(SABOTAGES)}."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The same kills again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Kill engines and faces of a scratch home at random moments and check that nothing is lost."""
    raise typer.Exit(run(context.obj, kills=kills, sabotage=sabotage, seed=seed, as_json=as_json))


def run(setup: Setup, *, kills: int, sabotage: str | None, seed: int | None, as_json: bool) -> int:
    """Rehearse and print; the exit code is 1 if something was found. Raises ConfigError, EngineError.

    With a sabotage it ends as soon as that is noticed. Ctrl+C ends it early: what was seen so far is printed, the exit code is 130.
    """
    if sabotage is not None and sabotage not in SABOTAGES:
        raise ConfigError(f'there is no sabotage "{sabotage}"; there are: {", ".join(SABOTAGES)}')
    seed = secrets.randbits(32) if seed is None else seed
    tally, interrupted = Tally(), False
    with scratch(setup) as base, _progress(kills, shown=not as_json) as told:
        try:
            rehearse(base, plan(kills, seed), seed, sabotage, tally, told)
        except KeyboardInterrupt:
            interrupted = True
    if as_json:
        print_json(tally.document())
    else:
        print_table(tally.table())
    print_lines(_said(tally, f"localkv drill --kills {kills} --seed {seed}"), sys.stderr)
    return 1 if tally.found else INTERRUPTED if interrupted else 0


def rehearse(base: Path, strokes: tuple[Stroke, ...], seed: int, sabotage: Sabotage | None, tally: Tally, told: Told) -> None:
    """Do `strokes` in scratch homes below `base`; `tally` gets what comes of it."""
    rng = random.Random(seed)
    make_model(base / "model")
    world = World(base / "drilled", base / "model", drilled=True, sabotage=sabotage)
    reference = Reference(World(base / "reference", base / "model", drilled=False))
    talks = Talks(world, reference, rng, tally)
    rehearsal = Rehearsal(world, talks, rng, tally)
    try:
        rehearsal.run(strokes, told, lambda: sabotage is not None and bool(tally.found))
    finally:
        rehearsal.abandon()
        reference.close()
        events = read_events(world.home.event_log, ALL_EVENTS)
        tally.refused = sum(event.kind == "store.quarantine" for event in events)


def _said(tally: Tally, again: str) -> list[str]:
    """What was found, in sentences."""
    said = [f"{fault}: {sentence}" for fault, sentence in tally.found]
    if len(said) > SHOWN:
        said = [*said[:SHOWN], f"... and {len(said) - SHOWN:,} more"]
    return [*said, f"to see it again, run: {again}"] if said else []


@contextlib.contextmanager
def scratch(setup: Setup) -> Iterator[Path]:
    """A folder beside the real cache, on the same disk; gone afterwards."""
    setup.home.prepare()
    with tempfile.TemporaryDirectory(dir=setup.home.cache_dir, prefix="drill-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _progress(kills: int, *, shown: bool) -> Iterator[Told]:
    """A bar on stderr, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("getting ready", total=kills)

        def told(stroke: Stroke) -> None:
            bar.update(task, advance=1, description=f"killed the {stroke.victim} during {stroke.moment}")

        yield told
