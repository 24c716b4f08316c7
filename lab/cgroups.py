"""Cgroups: what keeps a lab's processes together, limits its hosts, and finds them again.

A lab has one directory in each hierarchy, with one directory for each host below it. On hybrid cgroups
(version 1 controllers beside an empty version 2 tree) there are several hierarchies, on pure version 2 one.
Children inherit the cgroup, so whatever a host started is found there, whoever its parent was.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tailtrain.errors import LabError

_PERIOD_MICROSECONDS = 100_000
_KILL_SECONDS = 20.0
_WANTED_V1 = ("name=systemd", "cpu", "cpuacct", "memory")
_MOUNT_FIELDS_BEFORE_TYPE = " - "


@dataclass(frozen=True)
class Hierarchies:
    """Where the machine mounts its cgroups."""

    v2: Path | None
    v1: dict[str, Path]

    @property
    def roots(self) -> tuple[Path, ...]:
        """Every hierarchy that a lab's processes are placed in."""
        found = list(self.v1.values()) + ([self.v2] if self.v2 else [])
        return tuple(dict.fromkeys(found))

    def with_controller(self, controller: str) -> tuple[Path, int]:
        """The hierarchy that has this controller, and its version."""
        if controller in self.v1:
            return self.v1[controller], 1
        if self.v2 and controller in (self.v2 / "cgroup.controllers").read_text().split():
            return self.v2, 2
        raise LabError(
            f"this machine's cgroups cannot limit {controller}",
            fix=f"Boot it with the {controller} cgroup controller enabled.",
        )


@cache
def hierarchies() -> Hierarchies:
    """The cgroup hierarchies of this machine, as /proc/self/mountinfo names them."""
    v2: Path | None = None
    v1: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, rest = line.partition(_MOUNT_FIELDS_BEFORE_TYPE)
        kind, _source, options = rest.split()[:3]
        point = Path(mount.split()[4])
        if kind == "cgroup2":
            v2 = v2 or point
        elif kind == "cgroup":
            for name in set(options.split(",")) & set(_WANTED_V1):
                v1.setdefault(name, point)
    if v2 is None and not v1:
        raise LabError("this machine has no cgroups mounted, which the lab limits its hosts with")
    return Hierarchies(v2, v1)


def create(group: str, place: str) -> list[Path]:
    """Make the directories of one host; gives the files that a process writes its id to, to be in them."""
    doors = []
    for root in hierarchies().roots:
        parent = root / group
        parent.mkdir(exist_ok=True)
        if root == hierarchies().v2:
            _delegate(root)
            _delegate(parent)
        (parent / place).mkdir(exist_ok=True)
        doors.append(parent / place / "cgroup.procs")
    return doors


def entrance(group: str, place: str) -> list[Path]:
    """As `create`, but for a process that joins a host that runs already.

    A leaf of its own, since version 2 allows no process in a directory that has limited children.
    """
    doors = []
    for root in hierarchies().roots:
        leaf = root / group / place / "enter"
        leaf.mkdir(exist_ok=True)
        doors.append(leaf / "cgroup.procs")
    return doors


def _delegate(directory: Path) -> None:
    """Let version 2 directories below this one have the limits that the lab sets."""
    available = (directory / "cgroup.controllers").read_text().split()
    for controller in {"cpu", "memory"} & set(available):
        (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def set_cpu_quota(group: str, place: str, cores: float | None) -> None:
    """Limit a host to this many cores' worth of time; None lifts the limit."""
    root, version = hierarchies().with_controller("cpu")
    directory = root / group / place
    quota = None if cores is None else max(1_000, round(cores * _PERIOD_MICROSECONDS))
    if version == 1:
        (directory / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
        (directory / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))
    else:
        limit = "max" if quota is None else str(quota)
        (directory / "cpu.max").write_text(f"{limit} {_PERIOD_MICROSECONDS}")


def cpu_quota(group: str, place: str) -> float | None:
    """The cores' worth of time that a host is limited to, as the kernel has it; None: no limit."""
    root, version = hierarchies().with_controller("cpu")
    directory = root / group / place
    if version == 1:
        quota = int((directory / "cpu.cfs_quota_us").read_text())
        period = int((directory / "cpu.cfs_period_us").read_text())
        return None if quota < 0 else quota / period
    limit, period_text = (directory / "cpu.max").read_text().split()
    return None if limit == "max" else int(limit) / int(period_text)


def set_memory_limit(group: str, place: str, limit: int) -> None:
    """Limit a host's memory to this many bytes; a process beyond it is killed."""
    root, version = hierarchies().with_controller("memory")
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    (root / group / place / name).write_text(str(limit))


def cpu_seconds(group: str, place: str) -> float:
    """The processor time that a host has used since it was booted."""
    known = hierarchies()
    if "cpuacct" in known.v1:
        return int((known.v1["cpuacct"] / group / place / "cpuacct.usage").read_text()) / 1e9
    root, _ = known.with_controller("cpu")
    lines = (root / group / place / "cpu.stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6


def processes(group: str, place: str | None = None) -> set[int]:
    """The ids of all processes of a lab, or of one host of it."""
    found: set[int] = set()
    for root in hierarchies().roots:
        top = root / group / place if place else root / group
        for directory, _, files in os.walk(top):
            if "cgroup.procs" in files:
                try:
                    found.update(int(line) for line in (Path(directory) / "cgroup.procs").read_text().split())
                except OSError:
                    continue  # the directory went away, or is a threaded one
    return found


def kill(group: str, place: str | None = None) -> None:
    """Kill all processes of a lab, or of one host, and remove their cgroups.

    Raises:
        LabError: a process does not end within 20 s.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    while alive := processes(group, place):
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise LabError(
                f"processes {', '.join(map(str, sorted(alive)))} do not end",
                host=place,
                fix="Look at them with ps; a process in state D waits for a disk.",
            )
        time.sleep(0.02)
    for root in hierarchies().roots:
        _remove(root / group / place if place else root / group, deadline)


def _remove(top: Path, deadline: float) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        while True:
            try:
                Path(directory).rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                # The kernel empties a cgroup a moment after its last process.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def places(group: str) -> set[str]:
    """The hosts that have a cgroup in this lab."""
    return {
        entry.name
        for root in hierarchies().roots
        if (root / group).is_dir()
        for entry in (root / group).iterdir()
        if entry.is_dir()
    }
