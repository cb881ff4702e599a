"""The groups of commands about models and settings: they parse arguments and call one command each.

Imports what a command needs inside it, like the rest of the command line. Thread: main.
"""

from typing import Annotated

import typer

from localkv.commands.setup import Setup

models_app = typer.Typer(help="List, fetch and delete models.", no_args_is_help=True, rich_markup_mode=None)
config_app = typer.Typer(help="Check, find, show and edit the settings.", no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@models_app.command("list")
def models_list(context: typer.Context, as_json: Json = False) -> None:
    """The models on this machine."""
    from localkv.commands import models as command

    command.list_models(_setup(context), as_json=as_json)


@models_app.command("pull")
def models_pull(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='"starter" or a hub id, such as Qwen/Qwen3-4B.')],
    as_json: Json = False,
) -> None:
    """Fetch a model; running it again continues."""
    from localkv.commands import models as command

    command.pull(_setup(context), name, as_json=as_json)


@models_app.command("rm")
def models_rm(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="As shown by `localkv models list`.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete a model from this machine."""
    from localkv.commands import models as command

    command.remove(_setup(context), name, sure=yes, as_json=as_json)


@config_app.command("check")
def config_check(context: typer.Context, as_json: Json = False) -> None:
    """Check the configuration file; exit code 2 if it cannot be used."""
    from localkv.commands import config as command

    command.check(_setup(context), as_json=as_json)


@config_app.command("path")
def config_path(context: typer.Context, as_json: Json = False) -> None:
    """Where the configuration file is."""
    from localkv.commands import config as command

    command.path(_setup(context), as_json=as_json)


@config_app.command("show")
def config_show(context: typer.Context, as_json: Json = False) -> None:
    """All settings in force, as a configuration file."""
    from localkv.commands import config as command

    command.show(_setup(context), as_json=as_json)


@config_app.command("edit")
def config_edit(context: typer.Context) -> None:
    """Open the configuration file in $EDITOR, and check it afterwards."""
    from localkv.commands import config as command

    command.edit(_setup(context))


def _setup(context: typer.Context) -> Setup:
    setup: Setup = context.obj
    return setup
