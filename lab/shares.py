"""How the machine is divided among the hosts, in proportion to what they declare."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.inventory import HostSpec

_HOSTS_PART_OF_CORES = 0.95
"""The rest is for the control side and the kernel."""

_HOSTS_PART_OF_MEMORY = 0.9
_LEAST_MEMORY = 1 << 30
"""Importing torch and training a small model take about half of this; with less, hosts would fail."""


def processor_quotas(specs: Sequence[HostSpec], cores: int | None = None) -> dict[str, float]:
    """The cores' worth of time each host may use, by name; no host gets more than it declares."""
    machine = (cores or len(os.sched_getaffinity(0))) * _HOSTS_PART_OF_CORES
    declared = sum(spec.hardware.cores for spec in specs)
    return {
        spec.name: min(float(spec.hardware.cores), machine * spec.hardware.cores / declared) for spec in specs
    }


def memory_limits(specs: Sequence[HostSpec], memory: int | None = None) -> dict[str, int]:
    """The bytes of memory each host may use, by name: at least 1 GiB, at most what it declares."""
    machine = (memory or machine_memory()) * _HOSTS_PART_OF_MEMORY
    declared = sum(spec.hardware.ram_gb for spec in specs)
    limits = {}
    for spec in specs:
        share = int(machine * spec.hardware.ram_gb / declared)
        limits[spec.name] = max(_LEAST_MEMORY, min(share, int(spec.hardware.ram_gb * (1 << 30))))
    return limits


def machine_memory() -> int:
    """The machine's memory in bytes."""
    line = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")
    )
    return int(line.split()[1]) * 1024
