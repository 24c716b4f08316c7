"""`tailtrain plan`: what a deploy would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailtrain.commands.shared import (
    EXIT_CHANGES,
    EXIT_NO_CHANGES,
    EXIT_UNKNOWN_HOSTS,
    cooperate,
    inventory_option,
)

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@inventory_option
@click.option("--diff", is_flag=True, help="Also show what changes in each file.")
@click.pass_context
def plan(ctx: click.Context, inventory: Path, *, diff: bool) -> None:
    """Show what a deploy would do to each host; nothing is changed.

    Exit code 0: no changes, 2: changes, 3: changes or none, and some hosts could not be asked, 1: error.
    """
    cooperate()
    from tailtrain.fleet import connect, session
    from tailtrain.planning.document_of import document_of
    from tailtrain.planning.render import render_plan

    with connect.connected(inventory) as state:
        found = session.begin(state).plan
    click.echo(render_plan(document_of(found, diffs=diff), diff=diff, read_only=True), nl=False)
    if any(host.unreachable for host in found.hosts):
        ctx.exit(EXIT_UNKNOWN_HOSTS)
    ctx.exit(EXIT_CHANGES if found.changes else EXIT_NO_CHANGES)
