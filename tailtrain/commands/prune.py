"""`tailtrain prune`: what this machine keeps, and no longer needs."""

from __future__ import annotations

from pathlib import Path

import click

from tailtrain.commands.shared import cooperate, inventory_option

_MOST_DAYS = 36_500


@click.command()
@inventory_option
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option(
    "--older-than",
    "days",
    default=30,
    show_default=True,
    type=click.IntRange(0, _MOST_DAYS),
    metavar="DAYS",
    help="What was used in the last DAYS days stays.",
)
def prune(inventory: Path, *, dry_run: bool, days: int) -> None:
    """Remove what this machine no longer needs of this project.

    That is cut data sets, fetched models and identities that nothing declared now stands for, and that were
    not used for some days. Reports stay, and so does everything on hosts: deploys prune those.
    """
    cooperate()
    from tailtrain.fleet import connect, own_caches
    from tailtrain.fleet.declared import declared_fleet
    from tailtrain.fleet.gathering import bundle_of
    from tailtrain.planning.parts import counted, megabytes

    declared = declared_fleet(connect.declared_state(inventory).inventory)
    material = bundle_of(Path.cwd(), declared).material
    freed = own_caches.prune(Path.cwd(), declared, material, days=days, dry_run=dry_run)
    word = "would be removed" if dry_run else "removed"
    for what, part in freed.items():
        if part.files:
            size = f"{counted(part.files, 'file')}, {megabytes(part.bytes)}"
            click.echo(f"{word}: {counted(part.number, what)} ({size})")
    total = sum(part.bytes for part in freed.values())
    done = "Would free" if dry_run else "Freed"
    click.echo(f"{done} {megabytes(total)}." if total else "Nothing to remove.")
