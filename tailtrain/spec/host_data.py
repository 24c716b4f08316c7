"""Nodes from what the inventory says about hosts: a name and a dictionary each, in pyinfra's own format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import DeclarationError
from tailtrain.spec.problems import nearest, raise_if_any, shown
from tailtrain.spec.structures import MASKED_ADDRESS, NetworkNode, NodeRole
from tailtrain.spec.validation import fleet_problems, node_problems, whole_number_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CONNECTOR_PREFIX = "@tailscale/"
"""What stands before a host's name in the inventory where our connector reaches it."""

_REQUIRED = ("cores", "ram_gb", "storage_gb")
_OPTIONAL = ("gpu", "tailscale_ip", "reserve_cores", "reserve_ram_gb", "nice")
_KNOWN = (*_REQUIRED, *_OPTIONAL)
_KEY_OF = {"has_gpu": "gpu"}  # attribute of a node -> its key in the inventory, where they differ

# Keys that are pyinfra's or the connector's own.
_FOREIGN_PREFIXES = ("_", "ssh_", "tailscale_")

# Other names that people give to these things, too far from ours to be found by their letters.
_OTHER_NAMES = {
    "cpu": "cores",
    "cpus": "cores",
    "vcpus": "cores",
    "ram": "ram_gb",
    "mem": "ram_gb",
    "mem_gb": "ram_gb",
    "memory": "ram_gb",
    "memory_gb": "ram_gb",
    "disk": "storage_gb",
    "disk_gb": "storage_gb",
    "storage": "storage_gb",
    "gpus": "gpu",
    "has_gpu": "gpu",
    "hasGPU": "gpu",
    "reserved_ram": "reserve_ram_gb",
    "reserve_ram": "reserve_ram_gb",
    "niceness": "nice",
    "sudo": "_sudo",
    "user": "ssh_user",
}
_MISSPELT = (
    0.8  # how alike two names must be; lower values catch words that are somebody's own, such as "store"
)

_LEAST_NICE, _NICEST = -20, 19

# More than any machine has; what is beyond is a slip, and would end in numbers that nothing can hold.
_MOST = {"cores": 2**16, "ram_gb": 2**20, "storage_gb": 2**30}


@dataclass(frozen=True)
class NodeReserve:
    """What a node keeps for whoever works on it.

    Attributes:
        cores: cores that training leaves alone.
        ram_gb: memory that training leaves alone, in GB.
        nice: scheduling priority of the training, from -20 to 19 as in nice(1); None leaves it as it is.
    """

    cores: int = 0
    ram_gb: int = 0
    nice: int | None = None


@dataclass(frozen=True)
class DeclaredFleet:
    """A checked fleet: its nodes in the inventory's order, and what each keeps for itself, by host name."""

    nodes: tuple[NetworkNode, ...]
    reserves: Mapping[str, NodeReserve]

    @property
    def primary(self) -> NetworkNode:
        """The one primary."""
        return next(node for node in self.nodes if node.role == NodeRole.PRIMARY)


def host_name(inventory_name: str) -> str:
    """The plain name of a host of the inventory: `qfox` for `@tailscale/qfox` and for `qfox`."""
    return inventory_name.removeprefix(CONNECTOR_PREFIX)


def node_from_host_data(name: str, role: NodeRole, data: Mapping[str, object]) -> NetworkNode:
    """The node that a host's own data describe.

    Args:
        name: the host's name in the inventory, with or without `@tailscale/`.
        role: primary or compute, the group that the host is in.
        data: the host's data: `cores`, `ram_gb`, `storage_gb` as whole numbers, `gpu` where it has one,
            `tailscale_ip` where it is known. Data of groups do not belong here: their names could look like
            misspelt ones of a host.

    Raises:
        InvalidDeclarationError: all that is wrong with the host, each naming the host and the key.
    """
    node = _node(host_name(name), role, data)
    raise_if_any(_host_problems(node, data))
    return node


def reserve_from_host_data(name: str, data: Mapping[str, object]) -> NodeReserve:
    """What a host keeps for itself: `reserve_cores` and `reserve_ram_gb`, less than all it has, and `nice`.

    Raises:
        InvalidDeclarationError: all that is wrong with them, each naming the host and the key.
    """
    raise_if_any(_reserve_problems(host_name(name), data))
    return _reserve(data)


def fleet_from_host_data(hosts: Iterable[tuple[str, NodeRole, Mapping[str, object]]]) -> DeclaredFleet:
    """The fleet that an inventory describes, with all its problems told at once.

    Args:
        hosts: name, role and own data of each host, in the order of the inventory.

    Raises:
        InvalidDeclarationError: all that is wrong with any host and with the fleet as a whole.
    """
    nodes: list[NetworkNode] = []
    reserves: dict[str, NodeReserve] = {}
    problems: list[DeclarationError] = []
    for name, role, data in hosts:
        node = _node(host_name(name), role, data)
        nodes.append(node)
        reserves[node.hostname] = _reserve(data)
        problems += _host_problems(node, data)
        problems += _reserve_problems(node.hostname, data)
    problems += fleet_problems(nodes)
    raise_if_any(problems)
    return DeclaredFleet(tuple(nodes), reserves)


def _node(host: str, role: NodeRole, data: Mapping[str, object]) -> NetworkNode:
    """The node with its values as they stand, of whatever type; nothing is checked yet."""
    values: dict[str, Any] = dict(data)
    return NetworkNode(
        hostname=host,
        tailscale_ip=values.get("tailscale_ip", MASKED_ADDRESS),
        cores=values.get("cores", 0),
        ram_gb=values.get("ram_gb", 0),
        has_gpu=values.get("gpu", False),
        role=role,
        storage_gb=values.get("storage_gb", 0),
    )


def _host_problems(node: NetworkNode, data: Mapping[str, object]) -> Iterator[DeclarationError]:
    host = node.hostname
    misspelt = dict(_misspelt(data))
    for key, ours in misspelt.items():
        yield DeclarationError(
            "unknown key",
            host=host,
            field=key,
            found=shown(data[key]),
            expected=ours,
            fix=f'Did you mean "{ours}"?',
        )
    absent = {key for key in _REQUIRED if key not in data}
    for key in _REQUIRED:
        if key in absent and key not in misspelt.values():
            yield DeclarationError(
                "missing",
                host=host,
                field=key,
                found="nothing",
                expected="a whole number",
                fix=f"Add {key} to the host",
            )
    for problem in node_problems(node, name_of=lambda attribute: _KEY_OF.get(attribute, attribute)):
        if problem.field not in absent:
            yield problem
    for key, most in _MOST.items():
        value = data.get(key)
        if isinstance(value, int) and value > most:
            yield DeclarationError(
                "wrong number", host=host, field=key, found=shown(value), expected=f"at most {most:,}"
            )


def _misspelt(data: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Keys that are not ours but look as if they were meant to be, each with the one that was meant."""
    for key in data:
        # A key of another type cannot be asked for: it is named where the inventory as a whole is looked at.
        if not isinstance(key, str) or key in _KNOWN or key.startswith(_FOREIGN_PREFIXES):
            continue
        meant = _OTHER_NAMES.get(key) or nearest(key, _KNOWN, cutoff=_MISSPELT)
        # A word with a text beside our own key, such as a storage class, is somebody's own.
        if meant and (meant not in data or isinstance(data[key], int | float)):
            yield key, meant


def _reserve_problems(host: str, data: Mapping[str, object]) -> Iterator[DeclarationError]:
    checks = [
        whole_number_problem(data[key], minimum=0, below=_above_zero(data.get(whole)), field=key, host=host)
        for key, whole in (("reserve_cores", "cores"), ("reserve_ram_gb", "ram_gb"))
        if key in data
    ]
    if data.get("nice") is not None:
        checks.append(
            whole_number_problem(
                data["nice"], minimum=_LEAST_NICE, below=_NICEST + 1, field="nice", host=host
            )
        )
    return (problem for problem in checks if problem)


def _above_zero(value: object) -> int | None:
    """The value as an upper limit, where it is fit to be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _reserve(data: Mapping[str, object]) -> NodeReserve:
    """The reserve with its values as they stand."""
    values: dict[str, Any] = dict(data)
    return NodeReserve(
        cores=values.get("reserve_cores", 0),
        ram_gb=values.get("reserve_ram_gb", 0),
        nice=values.get("nice"),
    )
