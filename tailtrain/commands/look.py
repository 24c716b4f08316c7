"""Commands that look and change nothing: `status`, `logs`, `report`, `fetch`."""

from __future__ import annotations

from pathlib import Path

import click

from tailtrain.commands.shared import cooperate, inventory_option


@click.command()
@inventory_option
def status(inventory: Path) -> None:
    """Show how far each node is: its worker's state, round, tokens and loss."""
    cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses

    with connect.connected(inventory) as state:
        click.echo(statuses.render_status(statuses.ask_all(state)), nl=False)


@click.command()
@click.argument("host", required=False)
@inventory_option
@click.option("--lines", "-n", default=40, show_default=True, help="How many lines of each.")
def logs(host: str | None, inventory: Path, lines: int) -> None:
    """Show the end of the worker's log on HOST, or on the primary."""
    cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses

    with connect.connected(inventory) as state:
        click.echo(statuses.log(state, host, lines), nl=False)


@click.command()
@inventory_option
def report(inventory: Path) -> None:
    """Show the newest report that this machine has: contributions, held-out losses, the six guarantees."""
    cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses
    from tailtrain.fleet.report import render_report

    click.echo(render_report(statuses.saved_report(connect.declared_state(inventory))), nl=False)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@inventory_option
def fetch(folder: Path, inventory: Path) -> None:
    """Copy the trained model and its manifest from the primary into FOLDER."""
    cooperate()
    from tailtrain.fleet import connect
    from tailtrain.fleet import status as statuses

    with connect.connected(inventory) as state:
        for path in statuses.fetch(state, folder):
            click.echo(f"{path}  {path.stat().st_size:,} bytes")
