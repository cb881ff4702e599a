"""`localkv`: parses arguments and calls one command; every import of a face or the engine's client is inside its command.

Knows no conversation, model or screen. `import localkv.cli` loads neither torch nor textual nor transformers, so that the
first frame of the screen does not wait for them. Thread: main. A failure that localkv names is one sentence on stderr:
exit code 2 for what was asked for wrongly, 1 for what went wrong, 130 after Ctrl+C.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from localkv import __version__
from localkv.commands.ends import FULL, ended_by_signals, open_streams, settle_stdout
from localkv.commands.groups import Json, config_app, models_app
from localkv.commands.setup import Setup, find_setup
from localkv.errors import (
    ConfigError,
    ConversationExists,
    ConversationsLost,
    LocalKVError,
    UnknownConversation,
    UnusableFile,
    UnusableName,
)

ASKED_WRONGLY = (ConfigError, UnknownConversation, ConversationExists, UnusableName, UnusableFile)
FORWARDED = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(
    name="localkv",
    help="Chat with a model on this machine; every conversation's KV cache stays within reach.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(models_app, name="models")
app.add_typer(config_app, name="config")

Private = Annotated[
    bool, typer.Option("--private", help="A new conversation's cached state stays in memory, never on the disk.")
]
Model = Annotated[str | None, typer.Option("--model", help='"starter", a hub id, a folder, or a .gguf file.')]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Use this configuration file.")] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Chat with a model on this machine; every conversation's KV cache stays within reach."""
    context.obj = find_setup(config)


@app.command()
def chat(
    context: typer.Context,
    plain: Annotated[bool, typer.Option("--plain", help="Line by line, without a screen; automatic in a pipe.")] = False,
    model: Model = None,
    session: Annotated[str | None, typer.Option("--session", help="Open this conversation; made if it is new.")] = None,
    theme: Annotated[str | None, typer.Option("--theme", help="Colours: a theme's name.")] = None,
    private: Private = False,
) -> None:
    """Open the chat."""
    setup = _setup(context)
    lines = plain or not is_terminal() or os.environ.get("TERM") == "dumb"

    def show() -> int:
        if lines:
            from localkv import plain as face

            return face.run(setup, model=model, session=session, private=private)
        return _screen(setup, model=model, session=session, theme=theme, private=private)

    try:
        code = show()
    except ConversationsLost as lost:
        from localkv.commands.restore import brought_back

        if not brought_back(setup.home, lost):
            raise
        code = show()
    raise typer.Exit(code)


@app.command()
def say(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help='The message; "-" reads it from standard input.')],
    session: Annotated[str, typer.Option("--session", help="The conversation's name.")],
    new: Annotated[bool, typer.Option("--new", help="Start the conversation; without it, it must exist.")] = False,
    system: Annotated[str | None, typer.Option("--system", help="System prompt of a new conversation.")] = None,
    model: Model = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="The longest answer.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="0 takes the likeliest token.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed, same answer.")] = None,
    quant: Annotated[str | None, typer.Option("--quant", help='"none", "8bit" or "4bit".')] = None,
    attach: Annotated[
        list[str] | None, typer.Option("--attach", metavar="FILE", help="A text file; more than once for more.")
    ] = None,
    private: Private = False,
    as_json: Json = False,
) -> None:
    """Say one thing in a conversation and print the answer."""
    from localkv.commands import say as command

    wish = command.Wish(
        text,
        session,
        new=new,
        system=system,
        model=model,
        quant=quant,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        private=private,
        attach=tuple(attach or ()),
    )
    raise typer.Exit(command.run(_setup(context), wish, as_json=as_json))


@app.command(context_settings=FORWARDED, add_help_option=False)
def sessions(context: typer.Context) -> None:
    """List, show, rename and delete conversations."""
    from localkv.commands.sessions import app as command

    command(context.args, prog_name="localkv sessions", obj=context.obj)


@app.command()
def doctor(context: typer.Context, model: Model = None, as_json: Json = False) -> None:
    """What this machine can do, and whether everything works."""
    from localkv.commands import doctor as command

    raise typer.Exit(command.run(_setup(context), model=model, as_json=as_json))


@app.command()
def verify(
    context: typer.Context,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend the cache: bad files are put aside, good ones found again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every byte of the cache, and all conversations."""
    from localkv.commands import verify as command

    raise typer.Exit(command.run(_setup(context), fix=fix, as_json=as_json))


@app.command(context_settings=FORWARDED, add_help_option=False)
def drill(context: typer.Context) -> None:
    """Kill engines and faces of a scratch home at random moments and check that nothing is lost; takes minutes."""
    from localkv.commands.drill import app as command

    command(context.args, prog_name="localkv drill", obj=context.obj)


@app.command()
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Free what no conversation needs any more."""
    from localkv.commands import gc as command

    raise typer.Exit(command.run(_setup(context), dry_run=dry_run, as_json=as_json))


@app.command()
def purge(
    context: typer.Context,
    cache: Annotated[bool, typer.Option("--cache", help="All cached state; coming back is slow once.")] = False,
    models: Annotated[bool, typer.Option("--models", help="The models that localkv keeps itself.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Everything, conversations and settings too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete the cache, the models, or everything."""
    from localkv.commands import purge as command

    if cache + models + everything != 1:
        raise ConfigError("say what to delete: one of --cache, --models and --all")
    part: command.Part = "cache" if cache else "models" if models else "all"
    raise typer.Exit(command.run(_setup(context), part, sure=yes, as_json=as_json))


@app.command()
def plan(
    context: typer.Context,
    model: Model = None,
    quant: Annotated[str | None, typer.Option("--quant", help='"none", "8bit" or "4bit".')] = None,
    as_json: Json = False,
) -> None:
    """What conversations of 4k to 128k tokens cost with a model here."""
    from localkv.commands import plan as command

    command.run(_setup(context), model=model, quant=quant, as_json=as_json)


@app.command()
def stats(context: typer.Context, as_json: Json = False) -> None:
    """What the running engine holds and has saved."""
    from localkv.commands import stats as command

    command.run(_setup(context), as_json=as_json)


@app.command()
def unload(context: typer.Context, as_json: Json = False) -> None:
    """Have the running engine save and let go of its model; the next message loads it again."""
    from localkv.commands import unload as command

    command.run(_setup(context), as_json=as_json)


@app.command()
def logs(
    context: typer.Context,
    last: Annotated[int, typer.Option("-n", min=0, help="How many events.")] = 50,
    engine: Annotated[bool, typer.Option("--engine", help="The engine's own output instead.")] = False,
    as_json: Json = False,
) -> None:
    """What happened lately; never holds message text."""
    from localkv.commands import logs as command

    command.run(_setup(context), last=last, engine=engine, as_json=as_json)


@app.command()
def paths(context: typer.Context, as_json: Json = False) -> None:
    """Where everything is kept."""
    from localkv.commands import paths as command

    command.run(_setup(context), as_json=as_json)


@app.command()
def export(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Conversations, by their names.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All conversations outside the trash.")] = False,
    form: Annotated[str | None, typer.Option("--format", help='"md", "json" (all branches) or "text".')] = None,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE", help="Write there; its suffix tells the format.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
) -> None:
    """Write conversations as Markdown, JSON or text."""
    from localkv.commands import exporting
    from localkv.commands.shelf import open_store

    del context
    with open_store() as store:
        exporting.run(store, names or [], everything=everything, form=form, output=output, force=force)


@app.command("import")
def import_files(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(help="From ChatGPT (the zip or its JSON), Open WebUI, llm (logs.db) or localkv.")
    ],
    as_json: Json = False,
) -> None:
    """Take in conversations that another program exported, with all branches."""
    from localkv.commands import importing
    from localkv.commands.shelf import open_store

    with open_store() as store:
        code = importing.run(store, _setup(context).load(), files, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def keys(
    context: typer.Context,
    only_list: Annotated[bool, typer.Option("--list", help="Only list; automatic in a pipe.")] = False,
    as_json: Json = False,
) -> None:
    """What keys do, and what this terminal sends for a key."""
    from localkv.commands import keys as command

    if only_list or as_json or not is_terminal() or os.name == "nt":
        command.list_keys(_setup(context), as_json=as_json)
        return
    from localkv.tui import keyecho

    keyecho.run(command.keymap_of(_setup(context)))


@app.command()
def bench(
    name: Annotated[
        str, typer.Argument(help="switch, decode, resume, start, exact, policy, scale, save, ttft, typing or tui.")
    ],
    trace: Annotated[Path | None, typer.Option("--trace", metavar="FILE", help='For "policy": visits as JSON lines.')] = None,
    as_json: Json = False,
) -> None:
    """Measure this machine; takes minutes."""
    from localkv.commands import bench as command

    if name == "tui":
        from localkv.tui.bench import measure

        command.report(measure, as_json)
    else:
        command.run(name, as_json, trace)


@app.command()
def version(as_json: Json = False) -> None:
    """The version of localkv."""
    print(f'{{"version": "{__version__}"}}' if as_json else __version__)


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit."""
    umask = os.umask(0o077)  # whatever a library writes is private, too
    open_streams()
    try:
        with ended_by_signals():
            app(arguments, prog_name="localkv")
    except LocalKVError as error:
        from localkv.commands.output import for_stream

        print(f"localkv: {for_stream(str(error), sys.stderr)}", file=sys.stderr)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.filename is not None or error.errno not in FULL:
            raise
        settle_stdout()
        refuse_output(error)
    finally:
        os.umask(umask)
        if failure := settle_stdout():
            refuse_output(failure)


def refuse_output(error: OSError) -> NoReturn:
    """Say that not all was written: files are spoken of where they are written, so it is standard output that was full."""
    print(f"localkv: standard output cannot be written ({error.strerror})", file=sys.stderr)
    sys.exit(1)


def _screen(setup: Setup, *, model: str | None, session: str | None, theme: str | None, private: bool) -> int:
    """The chat on the whole screen. Keys that are typed meanwhile are kept."""
    from localkv.tui.typeahead import kept_keys

    with kept_keys() as typed:
        from localkv.models.reference import absolute_name
        from localkv.tui.early import first_frame

        config, name = setup.load(), None if model is None else absolute_name(model)
        resume = not (session or private or model)
        with first_frame(setup.home, config, theme=theme, session=session, resume=resume):
            from localkv.tui.app import run as show

            return show(
                setup.home,
                config,
                model=name,
                session=session,
                theme=theme,
                private=private,
                typed=typed,
                file=setup.config_file,
            )


def is_terminal() -> bool:
    """Whether a person sits at both ends: keys come in and a screen shows what goes out."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def exit_code(error: LocalKVError) -> int:
    """2 if the person asked for something that is not there or not valid, else 1."""
    return 2 if isinstance(error, ASKED_WRONGLY) else 1


def _setup(context: typer.Context) -> Setup:
    setup: Setup = context.obj
    return setup
