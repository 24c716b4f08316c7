"""`tailtrain destroy`: undo what was done to hosts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tailtrain.commands.shared import cooperate, inventory_option
from tailtrain.errors import DeclarationError
from tailtrain.exit_codes import EXIT_ERROR, EXIT_NO_CHANGES, EXIT_UNKNOWN_HOSTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailtrain.planning.rendering.undo import Outcome
    from tailtrain.planning.undoing import UndoPlan


@click.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@inventory_option
@click.option(
    "--keep-runs", is_flag=True, help="Leave the runs with their models, and the account of theirs."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def destroy(
    ctx: click.Context, hosts: tuple[str, ...], inventory: Path, *, keep_runs: bool, yes: bool
) -> None:
    """Remove from hosts what deploys have put there: units, programs, data, runs, the account.

    HOST is in the inventory, or has left it; without any, all of them are meant. A plan is shown and asked
    about first. Exit code 0: done or nothing to do, 1: error, 3: hosts that could not be asked, 4: somebody
    is deploying.
    """
    cooperate()
    from tailtrain.fleet import connect, destroy
    from tailtrain.planning.rendering.undo import render_outcomes, render_undo

    with destroy.undoing(connect.declared_state(inventory), hosts, keep_runs=keep_runs) as undoing:
        click.echo(render_undo(undoing.plan), nl=False)
        if not undoing.plan.undone:
            ctx.exit(_code(undoing.carry_out()))
        if not yes:
            _confirm(undoing.plan)
        outcomes = undoing.carry_out()
    click.echo("\n" + render_outcomes(undoing.plan, outcomes), nl=False)
    ctx.exit(_code(outcomes))


def _confirm(plan: UndoPlan) -> None:
    """Ask, where there is somebody to ask.

    Raises:
        DeclarationError: there is nobody, or the answer was another one; nothing was changed then.
    """
    from tailtrain.planning.rendering.undo import question

    if not sys.stdin.isatty():
        raise DeclarationError(
            "nothing was changed: there is no terminal to ask at", fix="To do it without asking, add --yes"
        )
    answer = click.prompt(f"\n{question(plan)}", default="", show_default=False, err=True)
    if answer.strip() != str(len(plan.undone)):
        raise DeclarationError(
            "nothing was changed", found=repr(answer), expected=f"{len(plan.undone)}, the number of hosts"
        )


def _code(outcomes: Sequence[Outcome]) -> int:
    from tailtrain.planning.rendering.undo import Result

    results = {one.result for one in outcomes}
    if results & {Result.FAILED, Result.REFUSED}:
        return EXIT_ERROR
    return EXIT_UNKNOWN_HOSTS if Result.UNKNOWN in results else EXIT_NO_CHANGES
