"""The command line. Each command imports what it needs when it runs: `--help` stays instant."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click

from tailtrain import __version__
from tailtrain.errors import DeclarationError, LockedError, TailtrainError

EXIT_NO_CHANGES, EXIT_ERROR, EXIT_CHANGES, EXIT_UNKNOWN_HOSTS, EXIT_LOCKED = 0, 1, 2, 3, 4

_ELSEWHERE = {
    "dataset": "tailtrain.data.cli:dataset_group",
    "lab": "lab.cli:lab_group",
}

_inventory = click.option(
    "--inventory",
    default="inventory.py",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The inventory file.",
)


class _Commands(click.Group):
    """Commands, some of them groups of other packages that are imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        here = {name for name, where in _ELSEWHERE.items() if find_spec(where.partition(".")[0])}
        return sorted({*super().list_commands(ctx), *here})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, _, name = _ELSEWHERE[cmd_name].partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "lab":
                raise
            raise click.ClickException("The lab runs from a checkout of tailtrain: go there first.") from None
        command: click.Command = found
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TailtrainError as error:
            click.secho(f"Error: {error}", err=True, fg="red")
            ctx.exit(EXIT_LOCKED if isinstance(error, LockedError) else EXIT_ERROR)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Train a model on all the machines you own, over your Tailscale network."""


@main.command()
@_inventory
@click.option("--diff", is_flag=True, help="Also show what changes in each file.")
@click.pass_context
def plan(ctx: click.Context, inventory: Path, *, diff: bool) -> None:
    """Show what a deploy would do to each host; nothing is changed.

    Exit code 0: no changes, 2: changes, 3: changes or none, and some hosts could not be asked, 1: error.
    """
    _cooperate()
    from tailtrain.fleet import connect, session
    from tailtrain.planning.render import render_plan

    with connect.connected(inventory) as state:
        found = session.begin(state).plan
    click.echo(render_plan(found, diff=diff), nl=False)
    if any(host.unreachable for host in found.hosts):
        ctx.exit(EXIT_UNKNOWN_HOSTS)
    ctx.exit(EXIT_CHANGES if found.changes else EXIT_NO_CHANGES)


@main.command()
@_inventory
def status(inventory: Path) -> None:
    """Show how far each node is: its worker's state, round, tokens and loss."""
    _cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses

    with connect.connected(inventory) as state:
        click.echo(statuses.render_status(statuses.ask_all(state)), nl=False)


@main.command()
@click.argument("host", required=False)
@_inventory
@click.option("--lines", "-n", default=40, show_default=True, help="How many lines of each.")
def logs(host: str | None, inventory: Path, lines: int) -> None:
    """Show the end of the worker's log on HOST, or on the primary."""
    _cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses

    with connect.connected(inventory) as state:
        click.echo(statuses.log(state, host, lines), nl=False)


@main.command()
@_inventory
def report(inventory: Path) -> None:
    """Show the report of the declared run: contributions, held-out losses, the six guarantees."""
    _cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses
    from tailtrain.fleet.report import render_report

    click.echo(render_report(statuses.saved_report(connect.declared_state(inventory))), nl=False)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@_inventory
def fetch(folder: Path, inventory: Path) -> None:
    """Copy the trained model and its manifest from the primary into FOLDER."""
    _cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses

    with connect.connected(inventory) as state:
        for path in statuses.fetch(state, folder):
            click.echo(f"{path}  {path.stat().st_size:,} bytes")


@main.command()
@_inventory
def stop(inventory: Path) -> None:
    """Stop training on all hosts; it can be resumed from the last averaging."""
    _deploy(inventory, "deploys/stop.py")


@main.command()
@_inventory
def resume(inventory: Path) -> None:
    """Go on with a stopped or interrupted run, to its end."""
    _deploy(inventory, "deploys/train.py")


@main.command()
@_inventory
@click.option(
    "--json", "as_json", is_flag=True, help="As JSON, exactly as the specification's Lean writes it."
)
@click.option("--masked", is_flag=True, help="Leave out the tailnet addresses.")
@click.option(
    "--read",
    "document",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read such a JSON file instead of the inventory, and check it.",
)
def config(inventory: Path, *, as_json: bool, masked: bool, document: Path | None) -> None:
    """Show the whole configuration as one value of the specification."""
    from tailtrain.spec import from_lean_json, to_lean_json
    from tailtrain.spec import masked as without_addresses

    if document is not None:
        try:
            value = from_lean_json(document.read_bytes())
        except OSError as error:
            raise DeclarationError(f"cannot be read: {error.strerror}", field=str(document)) from None
        value = without_addresses(value) if masked else value
    else:
        _cooperate()
        from tailtrain.fleet import connect, export

        value = export.configuration(connect.declared_state(inventory), masked=masked)
    if as_json:
        click.echo(to_lean_json(value, indent=2))
    else:
        from tailtrain.planning.render import render_configuration

        click.echo(render_configuration(value), nl=False)


def _cooperate() -> None:
    """Prepare the process as pyinfra's own command does.

    Calls that block yield to other greenlets, and an inventory may import what lies beside it.
    """
    from gevent import monkey

    monkey.patch_all()
    sys.path.append(".")


def _deploy(inventory: Path, deploy: str) -> NoReturn:
    """Become pyinfra on a deploy file: signals and the exit code are its own then.

    Raises:
        DeclarationError: this is not a project's folder.
    """
    if not Path(deploy).is_file():
        raise DeclarationError("no such deploy", field=deploy, fix="Go to the folder that holds deploys/")
    beside = Path(sys.executable).with_name("pyinfra")
    pyinfra = str(beside) if beside.is_file() else "pyinfra"
    sys.stdout.flush()
    os.execvp(pyinfra, [pyinfra, "-y", str(inventory), deploy])  # noqa: S606 - no shell is wanted
