"""The fleet outside of a deploy: pyinfra in this process, for commands that look and ask."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyinfra import logger
from pyinfra.api import Config, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_inventory, ctx_state
from pyinfra_cli.log import setup_logging

from tailtrain.errors import DeclarationError, FleetError
from tailtrain.fleet.declared import declared_fleet
from tailtrain.fleet.early import check_tailnet
from tailtrain.fleet.gathering import gather_ahead
from tailtrain.fleet.host_settings import host_settings_problems
from tailtrain.fleet.inventory_file import read_inventory
from tailtrain.spec.problems import raise_if_any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinfra.api.inventory import Inventory


@contextmanager
def connected(inventory: Path, *, primary_only: bool = False, planning: bool = False) -> Iterator[State]:
    """Pyinfra's state for an inventory file, with every host connected to that can be, or the primary alone.

    What is wrong on this machine is said before any host is waited for.

    Args:
        inventory: the file.
        primary_only: connect to no other host.
        planning: a plan will be made, so look at data sets, templates and locks as well.

    Raises:
        DeclarationError: there is no such file, or something in it or its group data is wrong.
        DaemonError: this machine is not in the tailnet.
        FleetError: no host at all could be connected to.
    """
    state, hosts = _read(inventory)
    declared = declared_fleet(hosts)
    if planning:
        gather_ahead(Path.cwd(), declared)
    check_tailnet(hosts)
    _begin(state, hosts)
    if primary_only:
        state.limit_hosts = [hosts.get_host(declared.primary.hostname)]
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
    state, hosts = _read(inventory)
    raise_if_any(host_settings_problems(hosts))
    _begin(state, hosts)
    return state


def _read(inventory: Path) -> tuple[State, Inventory]:
    if not inventory.is_file():
        raise DeclarationError(
            "no such inventory",
            field=str(inventory),
            fix="Name the file with --inventory, or go to its folder",
        )
    if not logger.handlers:
        setup_logging(logging.WARNING)
    state = State(check_for_changes=False)
    state.cwd = str(Path.cwd())
    ctx_state.set(state)
    return state, read_inventory(inventory, Path.cwd())


def _begin(state: State, hosts: Inventory) -> None:
    """Make the connectors; pyinfra trusts them to know what to do with wrong values."""
    ctx_inventory.set(hosts)
    state.init(hosts, Config())
