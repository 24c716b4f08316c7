"""The fleet outside of a deploy: pyinfra in this process, for commands that look and ask."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from pyinfra.api import Config, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_inventory, ctx_state
from pyinfra_cli.exceptions import UnexpectedExternalError
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.log import setup_logging

from tailtrain.errors import DeclarationError, FleetError
from tailtrain.fleet.declared import declared_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinfra.api.inventory import Inventory


@contextmanager
def connected(inventory: Path) -> Iterator[State]:
    """Pyinfra's state for an inventory file, with every host connected to that can be.

    Raises:
        DeclarationError: there is no such file, or it names no hosts.
        FleetError: no host at all could be connected to.
    """
    state = declared_state(inventory)
    # What is declared wrongly is said before any host is waited for.
    declared_fleet(state.inventory)
    state.set_stage(StateStage.Connect)
    try:
        connect_all(state)
    except PyinfraError as error:
        raise FleetError(str(error).rstrip("!"), fix="The reason for each host is shown above") from None
    state.set_stage(StateStage.Prepare)
    try:
        yield state
    finally:
        disconnect_all(state)


def declared_state(inventory: Path) -> State:
    """Pyinfra's state for an inventory file, connected to nothing.

    Raises:
        DeclarationError: there is no such file, it names no hosts, or it or its group data cannot be read.
    """
    if not inventory.is_file():
        raise DeclarationError(
            "no such inventory",
            field=str(inventory),
            fix="Name the file with --inventory, or go to its folder",
        )
    setup_logging(logging.WARNING)
    state = State(check_for_changes=False)
    state.cwd = str(Path.cwd())
    ctx_state.set(state)
    hosts = _read(inventory, state.cwd)
    if not len(hosts):
        raise DeclarationError("names no hosts", field=str(inventory), expected="lists primary and compute")
    ctx_inventory.set(hosts)
    state.init(hosts, Config())
    return state


def _read(inventory: Path, folder: str) -> Inventory:
    """Read inventory and group data as pyinfra does; what is wrong in them is said with file and line."""
    try:
        found: Inventory = make_inventory(str(inventory), cwd=folder)
    except SyntaxError as error:
        raise DeclarationError(
            f"cannot be read: {error.msg}", field=_place(error.filename or str(inventory), error.lineno)
        ) from None
    except UnexpectedExternalError as error:
        cause = error.exception
        lines = [
            frame.lineno for frame in extract_tb(cause.__traceback__) if frame.filename == error.filename
        ]
        raise DeclarationError(
            f"cannot be read: {type(cause).__name__}: {cause}",
            field=_place(error.filename, lines[-1] if lines else None),
        ) from None
    except PyinfraError as error:
        raise DeclarationError(f"pyinfra cannot use it: {error}", field=str(inventory)) from None
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        # pyinfra takes a host's form on trust.
        raise DeclarationError(
            f"pyinfra cannot use it: {error}",
            field=str(inventory),
            expected='hosts as ("@tailscale/name", {"cores": 4, ...}) in lists named primary and compute',
        ) from None
    return found


def _place(file: str, line: int | None) -> str:
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}, line {line}" if line else str(shown)
