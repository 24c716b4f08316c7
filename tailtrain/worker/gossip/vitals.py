"""What a node measures of itself for its health: memory and disk.

Memory is that of the control group that the worker runs in, where it has a limit, and of the machine: the
worse of both counts. Pages of files that the kernel can drop are free memory in both.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def memory_free(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> float:
    """The free share of the memory that this process may use, from 0 to 1; 1 where nothing can be read.

    Args:
        proc: where proc(5) is mounted.
        cgroups: where cgroups (version 2) are mounted.
    """
    return min(_of_machine(proc), _of_group(proc, cgroups))


def checkpoints_that_fit(folder: Path, checkpoint_bytes: int) -> float:
    """How many checkpoints the file system of this folder has room for, for an account that is not root."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize / max(1, checkpoint_bytes)


def _of_machine(proc: Path) -> float:
    found = _numbers(proc / "meminfo")
    total, available = found.get("MemTotal", 0), found.get("MemAvailable", 0)
    return available / total if total and "MemAvailable" in found else 1.0


def _of_group(proc: Path, cgroups: Path) -> float:
    try:
        own = (proc / "self" / "cgroup").read_text().strip().rpartition("::")[2].lstrip("/")
        group = cgroups / own
        most = int((group / "memory.max").read_text())  # "max" where there is no limit
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return 1.0
    droppable = _numbers(group / "memory.stat").get("inactive_file", 0)
    return min(1.0, max(0.0, 1 - (used - droppable) / most)) if most > 0 else 0.0


def _numbers(path: Path) -> dict[str, int]:
    """The lines `name: number ...` or `name number` of a file of the kernel."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
