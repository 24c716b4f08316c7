"""`tailtrain stop` and `tailtrain resume`: deploys of pyinfra."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tailtrain.commands.shared import become_pyinfra, inventory_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@inventory_option
def stop(inventory: Path) -> None:
    """Stop training on all hosts; it can be resumed from the last averaging."""
    become_pyinfra(inventory, "deploys/stop.py")


@click.command()
@inventory_option
def resume(inventory: Path) -> None:
    """Go on with a stopped or interrupted run, to its end."""
    become_pyinfra(inventory, "deploys/train.py")
