"""Machines that are not in the inventory: their hardware, read over SSH, and whether they can be nodes."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gevent.pool import Pool
from pyinfra.api import Config, Inventory, State
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.state import StateStage

from tailtrain.data import verify
from tailtrain.errors import FleetError, UnsupportedError
from tailtrain.fleet import (
    files_program,
    hardware_program,
    lock_program,
    probe_program,
    remote,
    units_program,
)
from tailtrain.planning import layout
from tailtrain.planning.hardware import require_supported
from tailtrain.planning.newcomers import Entry, entry_of
from tailtrain.planning.observed import Hardware, Observation
from tailtrain.spec import NetworkNode, NodeRole
from tailtrain.spec.host_data import CONNECTOR_PREFIX
from tailtrain.spec.structures import MASKED_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyinfra.api.host import Host

PROGRAM = (verify, files_program, lock_program, units_program, probe_program, hardware_program)
"""What is sent to a machine: the last one's `main` is run, the others are what it imports."""
ANSWER_SECONDS = 60
AT_ONCE = 64


@dataclass(frozen=True)
class Newcomer:
    """A machine that was asked.

    Attributes:
        name: as in the inventory.
        entry: what its entry would say; None where it cannot be a node.
        reason: why it cannot be one, and what to do; empty where it can.
        system: its operating system, empty where it was not reached.
        emulated: whether it is a host of the lab, whose entry says what the lab emulates.
    """

    name: str
    entry: Entry | None
    reason: str = ""
    system: str = ""
    emulated: bool = False


def read_newcomers(names: Sequence[str], *, ssh_user: str | None = None) -> tuple[Newcomer, ...]:
    """Ask machines of the tailnet for their hardware, all at once; in the order given.

    Args:
        names: as the tailnet calls them.
        ssh_user: the user to log in as, None for the one that SSH takes by itself.
    """
    from pyinfra_cli.log import setup_logging  # noqa: PLC0415  # importing it changes the whole process

    setup_logging(logging.WARNING)  # shows what a server says while logging in, such as an address to open
    data = {} if ssh_user is None else {"ssh_user": ssh_user}
    hosts = [(f"{CONNECTOR_PREFIX}{name}", data) for name in names]
    state = State(check_for_changes=False)
    inventory = Inventory((hosts, {}))
    state.init(inventory, Config())
    state.set_stage(StateStage.Connect)
    found = Pool(AT_ONCE).map(lambda host: _read(host, ssh_user), inventory)
    by_name = {newcomer.name: newcomer for newcomer in found}
    return tuple(by_name[name] for name in names)


def _read(host: Host, ssh_user: str | None) -> Newcomer:
    try:
        host.connect(show_errors=False, raise_exceptions=True)
    except ConnectError as error:
        return Newcomer(host.name, None, str(error))
    request = {"state": layout.STATE_DIR, "lab_marker": layout.LAB_MARKER}
    try:
        before = time.time()
        reply = remote.ask(host, PROGRAM, request, timeout=ANSWER_SECONDS)
        return _judge(host.name, reply, ssh_user, skew=_skew(reply["hardware"]["clock"], before, time.time()))
    except FleetError as error:
        return Newcomer(host.name, None, _unread(error))
    finally:
        host.disconnect()


def _skew(clock: float, before: float, after: float) -> float:
    """How far a clock is outside of the span in which it was read, in seconds."""
    return min(0.0, clock - before) + max(0.0, clock - after)


def _judge(name: str, reply: Mapping[str, Any], ssh_user: str | None, *, skew: float) -> Newcomer:
    found, lab = reply["hardware"], reply["lab"]
    hardware = Hardware(
        architecture=found["architecture"],
        system=found["system"],
        python=found["python"],
        systemd=found["systemd"],
        cores=found["cores"],
        usable_cores=float(found["cores"]),
        memory_bytes=found["memory_bytes"],
        gpus=tuple(found["gpus"]),
        disk_free_bytes=found["disk_free_bytes"],
        clock_skew_seconds=skew,
    )
    if not reply["root"] and not reply["sudo"]:
        reason = (
            "a login without root, and without sudo that asks for no password: name another with --ssh-user"
        )
        return Newcomer(name, None, reason, hardware.system)
    try:
        entry = (
            _emulated(name, lab, ssh_user, sudo=reply["sudo"])
            if lab
            else entry_of(name, hardware, ssh_user=ssh_user, sudo=reply["sudo"])
        )
        require_supported(
            _node(entry), Observation(name, "", "", bool(lab), superuser=True, hardware=hardware)
        )
    except UnsupportedError as error:
        return Newcomer(name, None, _reason(error), hardware.system, bool(lab))
    return Newcomer(name, entry, "", hardware.system, bool(lab))


def _emulated(name: str, lab: Mapping[str, Any], ssh_user: str | None, *, sudo: bool) -> Entry:
    return Entry(
        name=name,
        cores=int(lab["cores"]),
        ram_gb=int(lab["ram_gb"]),
        storage_gb=int(lab["storage_gb"]),
        gpu=bool(lab["gpu"]),
        ssh_user=ssh_user,
        sudo=sudo,
    )


def _node(entry: Entry) -> NetworkNode:
    return NetworkNode(
        hostname=entry.name,
        tailscale_ip=MASKED_ADDRESS,
        cores=entry.cores,
        ram_gb=entry.ram_gb,
        has_gpu=entry.gpu,
        role=NodeRole.COMPUTE,
        storage_gb=entry.storage_gb,
    )


def _unread(error: FleetError) -> str:
    """Why there was no answer. A Python that cannot read today's is older than any that workers run on."""
    if "SyntaxError" in str(error.found):
        return f"a Python of long ago, where Python {layout.PYTHON} is needed"
    return str(FleetError(error.problem, found=error.found, fix=error.fix))


def _reason(error: UnsupportedError) -> str:
    """The error in the few words that a table has room for; the host stands beside it."""
    why = f"{error.found}, where {error.expected} is needed"
    return f"{why}: {error.fix}" if error.fix else why
