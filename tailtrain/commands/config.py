"""`tailtrain config`: the whole configuration, as the specification writes it."""

from __future__ import annotations

from pathlib import Path

import click

from tailtrain.commands.shared import cooperate, inventory_option
from tailtrain.errors import DeclarationError


@click.command()
@inventory_option
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
        cooperate()
        from tailtrain.fleet import connect, export

        value = export.configuration(connect.declared_state(inventory), masked=masked)
    if as_json:
        click.echo(to_lean_json(value, indent=2))
    else:
        from tailtrain.planning.rendering.configuration import render_configuration

        click.echo(render_configuration(value), nl=False)
