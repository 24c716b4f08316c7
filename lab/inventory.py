"""Reading which hosts to boot from a pyinfra inventory file, without pyinfra."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = ("primary", "compute")
"""The lists of the inventory file that name machines, in the order in which they are read."""

_CONNECTOR = "@tailscale/"
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Hardware:
    """What the inventory declares a host to have, and the lab emulates."""

    cores: float
    ram_gb: float
    gpu: bool = False
    storage_gb: float = 0


@dataclass(frozen=True)
class HostSpec:
    """One host to boot."""

    name: str
    hardware: Hardware


def read_inventory(path: Path) -> tuple[HostSpec, ...]:
    """The hosts of an inventory file, in order.

    Raises:
        LabError: the file is missing or fails, or a host lacks a usable name, cores or memory.
    """
    if not path.is_file():
        raise LabError("there is no inventory file", field=str(path), fix="Name one with --inventory FILE.")
    try:
        declared = runpy.run_path(str(path))
    except Exception as error:
        raise LabError(f"the inventory file fails with {error!r}", field=str(path)) from error
    hosts = [
        _host(entry, field=f"{path.name}: {group}") for group in GROUPS for entry in declared.get(group, ())
    ]
    if not hosts:
        raise LabError("no host is declared", field=str(path), expected=f"lists named {' and '.join(GROUPS)}")
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise LabError("declared twice", host=name, field=str(path))
    return tuple(hosts)


def _host(entry: object, *, field: str) -> HostSpec:
    match entry:
        case (str(name), Mapping() as data):
            pass
        case _:
            raise LabError(
                "a host must be declared with its hardware",
                field=field,
                found=repr(entry),
                expected='("@tailscale/NAME", {"cores": 4, "ram_gb": 8})',
            )
    short = name.removeprefix(_CONNECTOR)
    if not _HOST.fullmatch(short):
        raise LabError("not a host name of a tailnet", field=field, found=repr(name))
    return HostSpec(
        name=short,
        hardware=Hardware(
            cores=_positive(data, "cores", host=short),
            ram_gb=_positive(data, "ram_gb", host=short),
            gpu=bool(data.get("gpu", False)),
            storage_gb=float(data.get("storage_gb", 0)),
        ),
    )


def _positive(data: Mapping[str, Any], key: str, *, host: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise LabError("wrong value", host=host, field=key, found=repr(value), expected="a number above 0")
    return value
