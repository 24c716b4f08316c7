"""What a declared fleet and a declared training must satisfy, wherever they were declared.

The inventory and the JSON import share these checks. They take values as they come, of any type, since
nothing has looked at them before.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

from tailtrain.errors import DeclarationError
from tailtrain.spec.problems import nearest, raise_if_any, shown, shown_name
from tailtrain.spec.structures import (
    MASKED_ADDRESS,
    CoordinationProtocol,
    DistributionStrategy,
    NetworkNode,
    NodeRole,
    StorageBackend,
    TrainingConfiguration,
)

SWARM_TOPOLOGY_OPTIMIZER = "swarm_topology_optimizer"
"""Resource allocation by what the nodes were measured to do."""

DECLARED_CORES = "declared_cores"
"""Resource allocation by the specification's formula, cores over all cores."""

HEALTH_WEIGHTED = "health_weighted"
"""Load balancing that follows measured speed and health."""

STATIC = "static"
"""Load balancing that keeps the first shares."""

RESOURCE_ALLOCATIONS = (SWARM_TOPOLOGY_OPTIMIZER, DECLARED_CORES)
LOAD_BALANCINGS = (HEALTH_WEIGHTED, STATIC)

# RFC 1123, section 2.1: letters, digits and hyphens, no hyphen at an end; 63 characters a label, 253 in all.
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LONGEST_NAME = 253

Choice = TypeVar("Choice", bound=StrEnum)
FieldNaming = Callable[[int, str], str]


def parse_role(value: object, *, field: str = "role", host: str | None = None) -> NodeRole:
    """The role of that name.

    Raises:
        DeclarationError: there is no such role; a near name is suggested.
    """
    return _parse(NodeRole, value, field, host)


def parse_strategy(value: object, *, field: str = "distribution_strategy") -> DistributionStrategy:
    """The distribution strategy of that name.

    Raises:
        DeclarationError: there is no such strategy; a near name is suggested.
    """
    return _parse(DistributionStrategy, value, field)


def parse_protocol(value: object, *, field: str = "coordination_protocol") -> CoordinationProtocol:
    """The coordination protocol of that name.

    Raises:
        DeclarationError: there is no such protocol; a near name is suggested.
    """
    return _parse(CoordinationProtocol, value, field)


def parse_backend(value: object, *, field: str = "storage_backend") -> StorageBackend:
    """The storage backend of that name.

    Raises:
        DeclarationError: there is no such backend; a near name is suggested.
    """
    return _parse(StorageBackend, value, field)


def _parse(kind: type[Choice], value: object, field: str, host: str | None = None) -> Choice:
    problem = choice_problem(value, tuple(kind), field=field, host=host)
    if problem:
        raise problem
    return kind(str(value))


def choice_problem(
    value: object, names: Sequence[str], *, field: str, host: str | None = None
) -> DeclarationError | None:
    """What is wrong with a value that must be one of these names, with the name that was likely meant."""
    if isinstance(value, str) and value in names:
        return None
    meant = nearest(value, names)
    return DeclarationError(
        "unknown value",
        host=host,
        field=field,
        found=shown(value),
        expected=" or ".join(f'"{name}"' for name in names),
        fix=f'Did you mean "{meant}"?' if meant else None,
    )


def whole_number_problem(
    value: object, *, minimum: int, field: str, host: str | None = None, below: int | None = None
) -> DeclarationError | None:
    """What is wrong with a value that must be a whole number, `minimum` or more and less than `below`."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, int) and whole and value >= minimum and (below is None or value < below):
        return None
    limits = f"{minimum} or more" if below is None else f"from {minimum} to {below - 1}"
    return DeclarationError(
        "wrong number" if whole else "not a whole number",
        host=host,
        field=field,
        found=shown(value),
        expected=f"a whole number, {limits}",
    )


def boolean_problem(value: object, *, field: str, host: str | None = None) -> DeclarationError | None:
    """What is wrong with a value that must be True or False."""
    if isinstance(value, bool):
        return None
    return DeclarationError(
        "neither true nor false", host=host, field=field, found=shown(value), expected="True or False"
    )


def host_name_problem(name: object, *, field: str = "hostname") -> DeclarationError | None:
    """What is wrong with a host name: it must be RFC 1123 labels joined by dots, and not an address."""
    if (
        isinstance(name, str)
        and len(name) <= _LONGEST_NAME
        and all(_LABEL.fullmatch(label) for label in name.split("."))
        and not _is_address(name)
    ):
        return None
    return DeclarationError(
        "not a host name",
        host=shown_name(name),
        field=field,
        found=shown(name),
        expected="letters, digits and hyphens, at most 63 between dots, no hyphen at an end",
        fix="Give the machine's name in the tailnet, as `tailscale status` shows it",
    )


def node_problems(
    node: NetworkNode, *, name_of: Callable[[str], str] = lambda attribute: attribute
) -> Iterator[DeclarationError]:
    """Everything that is wrong with one node by itself.

    Args:
        node: the node, its values of any type.
        name_of: how the declaration calls an attribute of the node, for the messages.
    """
    host = shown_name(node.hostname)
    checks = (
        host_name_problem(node.hostname, field=name_of("hostname")),
        _address_problem(node.tailscale_ip, field=name_of("tailscale_ip"), host=host),
        whole_number_problem(node.cores, minimum=1, field=name_of("cores"), host=host),
        whole_number_problem(node.ram_gb, minimum=1, field=name_of("ram_gb"), host=host),
        boolean_problem(node.has_gpu, field=name_of("has_gpu"), host=host),
        choice_problem(node.role, tuple(NodeRole), field=name_of("role"), host=host),
        whole_number_problem(node.storage_gb, minimum=0, field=name_of("storage_gb"), host=host),
    )
    return (problem for problem in checks if problem)


def fleet_problems(
    nodes: Sequence[NetworkNode], *, name_of: FieldNaming = lambda _, attribute: attribute
) -> Iterator[DeclarationError]:
    """What is wrong with the nodes together: none, not one primary, a host or an address given twice."""
    if not nodes:
        yield DeclarationError(
            "the fleet is empty",
            field="nodes",
            found="no nodes",
            expected="one primary and any number of compute nodes",
        )
        return
    yield from repeated_hosts(nodes, name_of=name_of)
    known = [node for node in nodes if node.tailscale_ip != MASKED_ADDRESS]
    for place, first in _repeated(known, lambda node: str(node.tailscale_ip)):
        if known[place].hostname != known[first].hostname:
            yield DeclarationError(
                "two hosts have one address",
                host=shown_name(known[place].hostname),
                field=name_of(nodes.index(known[place]), "tailscale_ip"),
                found=f"{known[place].tailscale_ip}, which is also {shown_name(known[first].hostname)}'s",
                expected="an address of its own",
            )
    primaries = [str(shown_name(node.hostname)) for node in nodes if node.role == NodeRole.PRIMARY]
    if len(primaries) != 1:
        yield DeclarationError(
            "the fleet has more than one primary" if primaries else "the fleet has no primary",
            host=primaries[1] if primaries else None,
            field="role",
            found=" and ".join(primaries) if primaries else f"{len(nodes)} compute nodes",
            expected="one primary",
            fix="Declare one host as primary and the others as compute"
            if primaries
            else "Declare one host as primary",
        )


def repeated_hosts(
    nodes: Sequence[NetworkNode], *, name_of: FieldNaming = lambda _, attribute: attribute
) -> Iterator[DeclarationError]:
    """Hosts that are declared more than once; host names do not differ by case."""
    for place, first in _repeated(nodes, lambda node: str(node.hostname).casefold()):
        yield DeclarationError(
            "the host is declared twice",
            host=shown_name(nodes[place].hostname),
            field=name_of(place, "hostname"),
            found=f"as number {first + 1} and number {place + 1}",
            expected="each host once",
        )


def validate_nodes(
    nodes: Sequence[NetworkNode], *, name_of: FieldNaming = lambda _, attribute: attribute
) -> None:
    """Checks a fleet: each node's values, host names, one primary, no host twice.

    Args:
        nodes: the fleet, in its order.
        name_of: how the declaration calls an attribute of the node at a place, for the messages.

    Raises:
        InvalidDeclarationError: all that is wrong, each with host, field, found and expected.
    """
    problems: list[DeclarationError] = []
    for place, node in enumerate(nodes):
        problems += node_problems(node, name_of=partial(name_of, place))
    problems += fleet_problems(nodes, name_of=name_of)
    raise_if_any(problems)


def validate_training(
    training: TrainingConfiguration, *, name_of: Callable[[str], str] = lambda attribute: attribute
) -> None:
    """Checks a training's settings: known names, and true or false where due.

    Raises:
        InvalidDeclarationError: all that is wrong, each with field, found and expected.
    """
    choices: tuple[tuple[str, Sequence[str]], ...] = (
        ("distribution_strategy", tuple(DistributionStrategy)),
        ("coordination_protocol", tuple(CoordinationProtocol)),
        ("storage_backend", tuple(StorageBackend)),
        ("resource_allocation", RESOURCE_ALLOCATIONS),
        ("load_balancing", LOAD_BALANCINGS),
    )
    problems = [
        choice_problem(getattr(training, attribute), names, field=name_of(attribute))
        for attribute, names in choices
    ]
    problems += [
        boolean_problem(getattr(training, attribute), field=name_of(attribute))
        for attribute in ("data_sharding", "fault_tolerance")
    ]
    raise_if_any(problem for problem in problems if problem)


def _repeated(nodes: Sequence[NetworkNode], key: Callable[[NetworkNode], str]) -> Iterator[tuple[int, int]]:
    first: dict[str, int] = {}
    for place, node in enumerate(nodes):
        if first.setdefault(key(node), place) != place:
            yield place, first[key(node)]


def _is_address(name: object) -> bool:
    try:
        ipaddress.ip_address(name)  # type: ignore[arg-type]  # refuses other types with ValueError
    except ValueError:
        return False
    return isinstance(name, str)


def _address_problem(value: object, *, field: str, host: str | None) -> DeclarationError | None:
    if value == MASKED_ADDRESS or _is_address(value):
        return None
    return DeclarationError(
        "not an address",
        host=host,
        field=field,
        found=shown(value),
        expected=f'an IP address, or "{MASKED_ADDRESS}" where it is not known',
    )
