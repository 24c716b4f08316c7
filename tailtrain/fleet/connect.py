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
from tailtrain.fleet.host_settings import host_settings_problems
from tailtrain.fleet.inventory_file import read_inventory
from tailtrain.spec.problems import raise_if_any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def connected(inventory: Path, *, primary_only: bool = False) -> Iterator[State]:
    """Pyinfra's state for an inventory file, with every host connected to that can be, or the primary alone.

    Raises:
        DeclarationError: there is no such file, or it names no hosts.
        FleetError: no host at all could be connected to.
    """
    state = declared_state(inventory)
    # What is declared wrongly is said before any host is waited for.
    declared = declared_fleet(state.inventory)
    if primary_only:
        state.limit_hosts = [state.inventory.get_host(declared.primary.hostname)]
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
    if not logger.handlers:
        setup_logging(logging.WARNING)
    state = State(check_for_changes=False)
    state.cwd = str(Path.cwd())
    ctx_state.set(state)
    hosts = read_inventory(inventory, Path.cwd())
    # Connectors are made next, and pyinfra trusts them to know what to do with wrong values.
    raise_if_any(host_settings_problems(hosts))
    ctx_inventory.set(hosts)
    state.init(hosts, Config())
    return state
