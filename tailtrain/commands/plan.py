"""`tailtrain plan`: what a deploy would do, as text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailtrain.commands.files import write_text
from tailtrain.commands.shared import cooperate, inventory_option
from tailtrain.errors import DeclarationError
from tailtrain.exit_codes import EXIT_CHANGES, EXIT_LOCKED, EXIT_NO_CHANGES, EXIT_UNKNOWN_HOSTS

if TYPE_CHECKING:
    from tailtrain.planning.documents.plan import PlanDocument

OWNER_ALONE = 0o600
"""A plan names hosts, paths and files: it is nobody else's business."""


@click.command()
@inventory_option
@click.option("--diff", is_flag=True, help="Also show what changes in each file.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, of the form in docs/plan.schema.json.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the plan as JSON as well: tailtrain apply FILE does it, and nothing else.",
)
@click.pass_context
def plan(ctx: click.Context, inventory: Path, *, diff: bool, as_json: bool, out: Path | None) -> None:
    """Show what a deploy would do to each host; nothing is changed.

    Exit code 0: no changes, 2: changes, 3: changes or none, and some hosts could not be asked, 4: somebody
    deploys at this moment, 1: error.
    """
    if out and not out.absolute().parent.is_dir():
        raise DeclarationError("the plan cannot be saved: no such folder", field=str(out.parent))
    cooperate()
    from tailtrain.fleet import connect, session
    from tailtrain.planning.documents.of_plan import document_of
    from tailtrain.planning.documents.plan import encode
    from tailtrain.planning.rendering.plan import render_plan

    with connect.connected(inventory, planning=True) as state:
        found = session.begin(state).plan
    document = document_of(found, diffs=diff or as_json or out is not None)
    if out:
        write_text(out, encode(document).decode(), mode=OWNER_ALONE)
    text = encode(document).decode() if as_json else render_plan(document, diff=diff, read_only=True)
    click.echo(text, nl=False)
    if out:
        click.echo(f"Saved. Do exactly this: tailtrain apply {out}", err=True)
    ctx.exit(exit_code(document))


def has_unknown(document: PlanDocument) -> bool:
    """Whether there are hosts that could not be asked, among them those that left and may still come back."""
    left = any(host.unreachable and not host.gone for host in document.departed)
    return bool(document.totals.unknown) or left


def exit_code(document: PlanDocument) -> int:
    """How a plan ends its command: what stands most in the way of a deploy decides."""
    if document.lock:
        return EXIT_LOCKED
    if has_unknown(document):
        return EXIT_UNKNOWN_HOSTS
    return EXIT_CHANGES if document.changes else EXIT_NO_CHANGES
