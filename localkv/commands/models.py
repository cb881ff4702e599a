"""`localkv models list | pull | rm`."""

import sys
import time

from localkv.commands.output import ProgressLine, print_json, print_lines, print_table
from localkv.commands.setup import Setup
from localkv.errors import PathError
from localkv.models import hub, starter
from localkv.models.reference import STARTER
from localkv.units import format_bytes, format_seconds


def list_models(setup: Setup, *, as_json: bool) -> None:
    """Print every model on this machine that can be chatted with."""
    models = hub.list_local(setup.home.models_dir)
    if as_json:
        print_json(
            [
                {"name": m.name, "source": m.source, "path": str(m.path), "bytes": m.n_bytes, "complete": m.complete}
                for m in models
            ]
        )
    elif models:
        rows = [
            (m.name, format_bytes(m.n_bytes), "" if m.complete else "incomplete: pull it again", str(m.path)) for m in models
        ]
        print_table(rows, ("MODEL", "DISK", "", "PATH"))
    else:
        print_lines(["No model is on this machine yet; to fetch the small demo model, run:", "  localkv models pull starter"])


def pull(setup: Setup, name: str, *, as_json: bool) -> None:
    """Fetch a model; progress goes to stderr. Raises ModelError."""
    bar = ProgressLine(sys.stderr)
    started = time.monotonic()

    def show(what: str, done: int, total: int) -> None:
        bar.say(progress_text(what, done, total, time.monotonic() - started))

    try:
        if name == STARTER:
            _make(setup)
            path = starter.fetch(setup.home.models_dir, show)
        else:
            path = hub.pull(name, show, with_code=_trusts(setup, name))
    finally:
        bar.end()
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        print_lines([f"{name} is on this machine: {path}", f"Chat with it: localkv chat --model {name}"])
        print_lines(starter.advice() if name == STARTER else ())


def remove(setup: Setup, name: str, *, sure: bool, as_json: bool) -> None:
    """Delete a model; asks first on a terminal unless `sure`. Raises ModelError."""
    if not sure and sys.stdin.isatty() and not as_json:
        answer = input(f"Delete {name} from this machine? Other programs may use the same files. [y/N] ")
        if answer.strip().lower() not in {"y", "yes"}:
            print_lines(["Nothing was deleted."])
            return
    freed = hub.remove(name, setup.home.models_dir)
    if as_json:
        print_json({"name": name, "freed_bytes": freed})
    else:
        print_lines([f"{name} was deleted; {format_bytes(freed)} are free again."])


def progress_text(what: str, done: int, total: int, seconds: float) -> str:
    """How far `what` is, in one line: share, bytes, rate, time left."""
    if not total:
        return f"{what}: {format_bytes(done)}"
    text = f"{what}: {done / total:4.0%} of {format_bytes(total)}"
    if seconds > 1 and done:
        rate = done / seconds
        text += f", {format_bytes(rate)}/s, {format_seconds((total - done) / rate)} left"
    return text


def _trusts(setup: Setup, name: str) -> bool:
    """Whether the settings ask for the code that this very model brings along."""
    model = setup.load().model
    return model.trust_remote_code and model.name == name


def _make(setup: Setup) -> None:
    """The models directory, with what is above it. Raises PathError."""
    try:
        setup.home.models_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(f"cannot make {setup.home.models_dir}: {error.strerror}; set LOCALKV_HOME") from error
