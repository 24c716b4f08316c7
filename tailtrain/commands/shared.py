"""What commands share: the inventory option, and how a process becomes pyinfra."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from tailtrain.errors import DeclarationError

inventory_option = click.option(
    "--inventory",
    default="inventory.py",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The inventory file.",
)


def cooperate() -> None:
    """Prepare the process as pyinfra's own command does.

    Calls that block yield to other greenlets, and an inventory may import what lies beside it.
    """
    from gevent import monkey

    monkey.patch_all()
    sys.path.append(".")


def pyinfra_command(inventory: Path, deploy: str) -> list[str]:
    """The words that run a deploy with pyinfra.

    Raises:
        DeclarationError: this is not a project's folder.
    """
    if not Path(deploy).is_file():
        raise DeclarationError("no such deploy", field=deploy, fix="Go to the folder that holds deploys/")
    beside = Path(sys.executable).with_name("pyinfra")
    return [str(beside) if beside.is_file() else "pyinfra", "-y", str(inventory), deploy]


def become_pyinfra(inventory: Path, deploy: str) -> NoReturn:
    """Become pyinfra on a deploy file: signals and the exit code are its own then.

    Raises:
        DeclarationError: this is not a project's folder.
    """
    words = pyinfra_command(inventory, deploy)
    sys.stdout.flush()
    os.execvp(words[0], words)  # noqa: S606 - no shell is wanted
