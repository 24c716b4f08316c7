"""`tailtrain unlock`: break the lock of a deploy that hangs or that nobody watches any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailtrain.commands.shared import cooperate, inventory_option
from tailtrain.exit_codes import EXIT_LOCKED, EXIT_NO_CHANGES

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("token", required=False)
@inventory_option
@click.pass_context
def unlock(ctx: click.Context, token: str | None, inventory: Path) -> None:
    """Break the deploy lock that has TOKEN; without one, say who is deploying.

    The deploy whose lock is broken stops at its next step. Training goes on. A deploy that was killed frees
    its lock by itself.

    Exit code 0: nobody is deploying (any more), 4: somebody is, 1: error.
    """
    cooperate()
    from tailtrain.fleet import connect, lock

    with connect.connected(inventory, primary_only=True) as state:
        (primary,) = state.activated_hosts
        name = primary.name
        if token:
            whose = lock.break_lock(primary, token)
            click.echo(f"{name}: broken: {whose}")
            return
        holder = lock.look(primary)
    if holder is None:
        click.echo(f"{name}: nobody is deploying")
        ctx.exit(EXIT_NO_CHANGES)
    click.echo(str(lock.locked(name, holder)))
    ctx.exit(EXIT_LOCKED)
