"""What a lab looks like right now."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lab.tailnet import CONTROL_NAME, Node
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from lab.lab import Host, Lab

_WELL = "online"
_OFFLINE = "offline"
_RECONNECTING_SECONDS = 3.0
"""How long a node that runs may be offline before it counts as that: it reconnects after a new login."""


@dataclass(frozen=True)
class HostReport:
    """One host."""

    name: str
    condition: str
    """online, off, offline (it runs, but its tailscaled is not connected) or expired."""
    address: str | None
    bridge_address: str
    cores: float
    ram_gb: float
    gpu: bool
    storage_gb: float
    cpu_quota_cores: float | None
    """As the kernel has it."""
    memory_bytes: int
    bare: bool
    pid: int | None
    """The host's process 1, as the machine sees it."""
    console: str
    """The file with what the host printed while it booted."""
    faults: tuple[str, ...]
    """What `lab fault` has done to its link, in words."""


@dataclass(frozen=True)
class Report:
    """A lab that is up."""

    name: str
    inventory: str
    wheels: str
    """The folder with every wheel of the worker's lock file; hosts see it at /mnt/wheels."""
    environment: str
    binaries: str
    control_address: str | None
    control_condition: str
    control_faults: tuple[str, ...]
    hosts: tuple[HostReport, ...]

    @property
    def well(self) -> bool:
        """Whether the control side and every host are online."""
        return all(
            condition == _WELL for condition in (self.control_condition, *(h.condition for h in self.hosts))
        )

    @property
    def waits(self) -> bool:
        """Whether something runs and is not connected."""
        return _OFFLINE in (self.control_condition, *(h.condition for h in self.hosts))

    def as_json(self) -> dict[str, Any]:
        """For programs: the fields as they stand, and `up` and `well`."""
        return {"up": True, "well": self.well, **asdict(self)}


def report(lab: Lab) -> Report:
    """Look at a lab that is up; again for a moment where a node that runs is not connected.

    Raises:
        LabError: it is down.
    """
    until = time.monotonic() + _RECONNECTING_SECONDS
    while (seen := _look(lab)).waits and time.monotonic() < until:
        time.sleep(0.2)
    return seen


def _look(lab: Lab) -> Report:
    found = lab.state
    try:
        nodes = {node.name: node for node in lab.coordination.nodes() if node.online}
    except LabError:
        nodes = {}  # the server died: every node shows as offline, and `lab up` mends it
    control = found.control is not None and found.control.alive
    return Report(
        name=lab.settings.name,
        inventory=found.inventory,
        wheels=found.wheels,
        environment=found.environment,
        binaries=found.binaries,
        control_address=found.control_address,
        control_condition=_condition(running=control, node=nodes.get(CONTROL_NAME)),
        control_faults=lab.link.faults,
        hosts=tuple(_host(lab.host(name), nodes.get(name)) for name in found.hosts),
    )


def _host(host: Host, node: Node | None) -> HostReport:
    recorded, running = host.state, host.running
    hardware = recorded.spec.hardware
    return HostReport(
        name=host.name,
        condition=_condition(running=running, node=node),
        address=recorded.address,
        bridge_address=str(host.lab.settings.bridge_address(recorded.index)),
        cores=hardware.cores,
        ram_gb=hardware.ram_gb,
        gpu=hardware.gpu,
        storage_gb=hardware.storage_gb,
        cpu_quota_cores=host.cpu_quota if running else recorded.cpu_quota_cores,
        memory_bytes=recorded.memory_bytes,
        bare=recorded.bare,
        pid=recorded.init.pid if running and recorded.init else None,
        console=str(host.lab.settings.host_dir(host.name) / "console.log"),
        faults=host.link.faults,
    )


def _condition(*, running: bool, node: Node | None) -> str:
    if not running:
        return "off"
    if node is None:
        return _OFFLINE
    return "expired" if node.expired else _WELL
